import type { ClientBase, Pool } from "pg";
import type { NodeErrorCode, RunStatus } from "../model/runs.ts";

/** A node that a run has come to. */
export type StoredNodeRun = {
  readonly id: string;
  readonly sequence: number;
  readonly nodeId: string;
  readonly status: RunStatus;
  readonly attempt: number;
  readonly inputCount: number;
  readonly itemCount: number;
  readonly errorItemCount: number;
  readonly errorCode: NodeErrorCode | null;
  readonly errorMessage: string | null;
  readonly wakeAt: Date | null;
  /** The analysis that it waits for; null: for none. */
  readonly awaitedAnalysisId: string | null;
  readonly startedAt: Date | null;
  readonly completedAt: Date | null;
};

/** Of a run, in the order in which they began. */
export async function listNodeRuns(
  database: Pool | ClientBase,
  accountId: string,
  runId: string,
): Promise<readonly StoredNodeRun[]> {
  const { rows } = await database.query<StoredNodeRun>({
    name: "list_node_runs",
    text: `
      select id, sequence, node_id as "nodeId", status, attempt, input_count as "inputCount",
        item_count as "itemCount", error_item_count as "errorItemCount", error_code as "errorCode",
        error_message as "errorMessage", wake_at as "wakeAt", awaited_analysis_id as "awaitedAnalysisId",
        started_at as "startedAt", completed_at as "completedAt"
      from workspace.node_runs where account_id = $1 and run_id = $2 order by sequence`,
    values: [accountId, runId],
  });
  return rows;
}

/** A node that a run comes to. */
export type NewNodeRun = { readonly nodeId: string; readonly inputCount: number };

/** The run comes to these nodes. It is locked. */
export async function insertNodeRuns(
  tx: ClientBase,
  accountId: string,
  runId: string,
  nodes: readonly NewNodeRun[],
): Promise<void> {
  await tx.query(
    `with counted as (
       update workspace.runs set node_run_count = node_run_count + cardinality($3::text[])
       where account_id = $1 and id = $2 returning node_run_count - cardinality($3::text[]) as before
     )
     insert into workspace.node_runs (account_id, run_id, sequence, node_id, input_count)
     select $1, $2, counted.before + node.n, node.id, node.inputs
     from counted, unnest($3::text[], $4::integer[]) with ordinality as node (id, inputs, n)`,
    [accountId, runId, nodes.map(({ nodeId }) => nodeId), nodes.map(({ inputCount }) => inputCount)],
  );
}

/** Ends those that go on: nobody records a step of them any more. The run is locked. Returns their nodes. */
export async function cancelNodeRuns(
  tx: ClientBase,
  accountId: string,
  runId: string,
): Promise<readonly string[]> {
  const { rows } = await tx.query<{ node_id: string }>(
    `update workspace.node_runs
     set status = 'CANCELLED', completed_at = clock_timestamp(), wake_at = null, awaited_analysis_id = null,
       is_ready = false, next_at = null, lease_token = null
     where account_id = $1 and run_id = $2 and next_at is not null returning node_id`,
    [accountId, runId],
  );
  return rows.map((row) => row.node_id);
}
