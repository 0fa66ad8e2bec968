import type { ClientBase, Pool } from "pg";
import { timeText } from "../../base/database/time-text.ts";
import type { NODE_RUN_CONSTANTS, NodeRun } from "../model/runs.ts";
import type { NewRunEvent } from "./run-events.ts";
import { type ClaimedStep, change, rowsOf } from "./statements.ts";

/** What nodes hand on: an object. */
export type Item = Readonly<Record<string, unknown>>;

/** `item`: JSON, as it is stored. */
export type StoredItem = { readonly index: number; readonly item: string };

/** That are in memory at a time, and one more: an analysis that was handed on may have megabytes. */
export const ITEM_BYTES_PER_READ = 4 * 1_024 ** 2;

export type ReadItems = {
  readonly items: readonly StoredItem[];
  readonly bytes: number;
  /** There may be more. */
  readonly isFull: boolean;
};

/**
 * Those of a node run, in their order, up to the one with which they have `bytesMax` bytes.
 *
 * @param afterIndex -1: from the first
 */
export async function readItems(
  database: Pool | ClientBase,
  { accountId, runId, sequence }: Pick<ClaimedStep, "accountId" | "runId" | "sequence">,
  afterIndex: number,
  countMax: number,
  bytesMax: number,
): Promise<ReadItems> {
  const { rows } = await database.query<StoredItem & { readonly bytes: number }>({
    name: "read_items",
    text: `
      with recursive walked as (
        select 0 as n, $4::integer as index, null::json as item, 0::float8 as bytes
        union all
        select walked.n + 1, following.index, following.item, walked.bytes + octet_length(following.item::text)
        from walked cross join lateral (
          select index, item from workspace.node_items
          where account_id = $1 and run_id = $2 and sequence = $3 and index > walked.index order by index limit 1
        ) as following
        where walked.n < $5::integer and walked.bytes < $6::float8
      )
      select index, item::text as item, bytes from walked where n > 0 order by n`,
    values: [accountId, runId, sequence, afterIndex, countMax, bytesMax],
  });
  const items = rows.map(({ index, item }) => ({ index, item }));
  const bytes = rows.at(-1)?.bytes ?? 0;
  return { items, bytes, isFull: items.length === countMax || bytes >= bytesMax };
}

/** All that a run has handed on is gone; it is locked, and has ended. What its nodes counted stays. */
export const dropItems = change<string, [runId: string]>(
  `with dropped as (delete from workspace.node_items where account_id = $1 and run_id = $2)
   update workspace.runs set item_count = 0, item_bytes = 0 where account_id = $1 and id = $2`,
);

/** What a step has handed on. */
export type HandedItems = { readonly count: number; readonly bytes: number; readonly broughtBytes: number };

/** Behind those that the node run has; its run, which is locked, counts them. @param items JSON */
export async function insertItems(
  tx: ClientBase,
  { accountId, runId, sequence }: ClaimedStep,
  items: readonly string[],
  { count, bytes, broughtBytes }: HandedItems,
): Promise<void> {
  await tx.query(
    `with counted as (
       update workspace.runs
       set item_count = item_count + $5, item_bytes = item_bytes + $6, brought_bytes = brought_bytes + $7
       where account_id = $1 and id = $2
     )
     insert into workspace.node_items (account_id, run_id, sequence, index, item)
     select $1, $2, $3, before.n + handed.n - 1, handed.item
     from (
       select coalesce(max(index) + 1, 0) as n from workspace.node_items
       where account_id = $1 and run_id = $2 and sequence = $3
     ) as before, unnest($4::json[]) with ordinality as handed (item, n)`,
    [accountId, runId, sequence, items, count, bytes, broughtBytes],
  );
}

/** A node that a run has come to, without what its definition says of it. */
export type StoredNodeRun = Omit<
  NodeRun,
  "node_kind" | "node_name" | "retryable" | "duration_ms" | "wait" | keyof typeof NODE_RUN_CONSTANTS
> & {
  /** The analysis that it waits for; null: for none. */
  readonly awaitedAnalysisId: string | null;
};

/** Of a run, in the order in which they began. */
export const listNodeRuns = rowsOf<StoredNodeRun, string, [runId: string]>(
  `select id, sequence, node_id, status, attempt, input_count,
     json_build_object('items', item_count, 'errors', error_item_count) as output_counts, error_code, error_message,
     ${timeText("wake_at")} as wake_at, awaited_analysis_id as "awaitedAnalysisId",
     ${timeText("started_at")} as started_at, ${timeText("completed_at")} as completed_at
   from workspace.node_runs where account_id = $1 and run_id = $2 order by sequence`,
  "list_node_runs",
);

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

/** Ends those that go on: nobody records a step of them any more. The run is locked. Returns what tells so. */
export const cancelNodeRuns = rowsOf<NewRunEvent & { readonly nodeId: string }, string, [runId: string]>(
  `update workspace.node_runs
   set status = 'CANCELLED', completed_at = clock_timestamp(), wake_at = null, awaited_analysis_id = null,
     is_ready = false, next_at = null, lease_token = null
   where account_id = $1 and run_id = $2 and next_at is not null
   returning node_id as "nodeId", 'node.cancelled' as kind`,
);
