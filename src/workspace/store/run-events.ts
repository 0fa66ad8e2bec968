import type { ClientBase } from "pg";
import { timeText } from "../../base/database/time-text.ts";
import type { RunEvent } from "../model/runs.ts";
import type { RunEventKind } from "../model/workflows.ts";
import { rowsOf } from "./statements.ts";

export type NewRunEvent = {
  readonly kind: RunEventKind;
  /** Null: the whole run. */
  readonly nodeId: string | null;
  readonly details?: Readonly<Record<string, unknown>>;
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
        update workspace.runs set event_count = event_count + json_array_length($3::json)
        where account_id = $1 and id = $2 returning event_count - json_array_length($3::json) as before
      )
      insert into workspace.run_events (account_id, run_id, sequence, kind, node_id, details, created_at)
      select $1, $2, counted.before + event.n, event.kind, event.node_id, event.details, clock_timestamp()
      from counted, rows from (json_to_recordset($3) as (kind text, "nodeId" text, details json))
        with ordinality as event (kind, node_id, details, n)`,
    values: [accountId, runId, JSON.stringify(events)],
  });
}

/** Those behind the first `after`, in their order. */
export const readRunEvents = rowsOf<RunEvent, string, [runId: string, after: number, limit: number]>(
  `select sequence, kind, node_id, coalesce(details, '{}') as details, ${timeText("created_at")} as created_at
   from workspace.run_events where account_id = $1 and run_id = $2 and sequence > $3 order by sequence limit $4`,
);
