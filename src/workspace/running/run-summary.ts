import type { ClientBase } from "pg";
import type { Definition } from "../model/definition.ts";
import { targetsOf } from "../model/definition-graph.ts";
import { RUN_SUMMARY_BYTES_MAX } from "../model/runs.ts";
import { type Item, readItems } from "../store/node-items.ts";
import type { StoredNodeRun } from "../store/node-runs.ts";

/** Of those that the last nodes have handed on, as many as there is room for. */
const ITEMS_MAX = 100;
/** An analysis may have 512, and three are around an item. */
const ITEM_LEVELS_MAX = 509;

/** Of the run; what is left out is read as the run's node items. */
export type RunSummary = {
  readonly nodes: readonly { readonly node_id: string; readonly items: number; readonly errors: number }[];
  /** Of the nodes that no edge leads from, in the order in which they began. */
  readonly items: readonly Item[];
  /** All that these nodes have handed on. */
  readonly items_total: number;
};

type EndedRun = {
  readonly accountId: string;
  readonly runId: string;
  readonly definition: Definition;
  readonly nodeRuns: readonly StoredNodeRun[];
};

/** What a webhook has room for. */
export async function summarizeRun(
  tx: ClientBase,
  { accountId, runId, definition, nodeRuns }: EndedRun,
): Promise<RunSummary> {
  const nodes = nodeRuns.map(({ nodeId, itemCount, errorItemCount }) => {
    return { node_id: nodeId, items: itemCount, errors: errorItemCount };
  });
  const last = nodeRuns.filter(({ nodeId }) => targetsOf(definition, nodeId).length === 0);
  const items_total = last.reduce((sum, { itemCount }) => sum + itemCount, 0);
  const items: Item[] = [];
  let bytes = Buffer.byteLength(JSON.stringify({ nodes, items, items_total }));
  for (const { sequence } of last) {
    const nodeRun = { accountId, runId, sequence };
    const countMax = ITEMS_MAX - items.length;
    // With the item that has no room any more, if there is one.
    const found = await readItems(tx, nodeRun, -1, countMax, RUN_SUMMARY_BYTES_MAX);
    for (const { item } of found.items) {
      bytes += Buffer.byteLength(JSON.stringify(item)) + 1;
      if (bytes > RUN_SUMMARY_BYTES_MAX || isDeeperThan(item, ITEM_LEVELS_MAX)) {
        return { nodes, items, items_total };
      }
      items.push(item);
    }
  }
  return { nodes, items, items_total };
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((member) => isDeeperThan(member, levels - 1));
}
