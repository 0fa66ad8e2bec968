import type { ClientBase, Pool } from "pg";
import type { RunEventKind } from "../model/runs.ts";

export type NewRunEvent = {
  readonly kind: RunEventKind;
  /** Null: the whole run. */
  readonly nodeId: string | null;
  readonly details?: Readonly<Record<string, unknown>>;
};

export type StoredRunEvent = {
  readonly sequence: number;
  readonly kind: RunEventKind;
  readonly nodeId: string | null;
  readonly details: Readonly<Record<string, unknown>> | null;
  readonly createdAt: Date;
};

/** In this order, behind those that the run has. It is locked, so that nobody sees a later one first. */
export async function insertRunEvents(
  tx: ClientBase,
  accountId: string,
  runId: string,
  events: readonly NewRunEvent[],
): Promise<void> {
  await tx.query({
    name: "insert_run_events",
    text: `
      with counted as (
        update workspace.runs set event_count = event_count + cardinality($3::text[])
        where account_id = $1 and id = $2 returning event_count - cardinality($3::text[]) as before
      )
      insert into workspace.run_events (account_id, run_id, sequence, kind, node_id, details, created_at)
      select $1, $2, counted.before + event.n, event.kind, event.node_id, event.details, clock_timestamp()
      from counted, unnest($3::text[], $4::text[], $5::json[]) with ordinality as event (kind, node_id, details, n)`,
    values: [
      accountId,
      runId,
      events.map(({ kind }) => kind),
      events.map(({ nodeId }) => nodeId),
      events.map(({ details }) => (details === undefined ? null : JSON.stringify(details))),
    ],
  });
}

/** Those behind the first `after`, in their order. */
export async function readRunEvents(
  pool: Pool,
  accountId: string,
  runId: string,
  after: number,
  limit: number,
): Promise<readonly StoredRunEvent[]> {
  const { rows } = await pool.query<StoredRunEvent>(
    `select sequence, kind, node_id as "nodeId", details, created_at as "createdAt" from workspace.run_events
     where account_id = $1 and run_id = $2 and sequence > $3 order by sequence limit $4`,
    [accountId, runId, after, limit],
  );
  return rows;
}
