import type { Pool } from "pg";
import type { Definition } from "../model/definition.ts";
import { sourcesOf } from "../model/definition-graph.ts";
import type { InputItem, NodeInput, ReadInput } from "../nodes/node-step.ts";
import { ITEM_BYTES_PER_READ, readItems } from "../store/node-items.ts";
import { listNodeRuns } from "../store/node-runs.ts";
import type { ClaimedStep } from "../store/steps.ts";

/** A node's input: what its sources have handed on, in the order of the edges, then of the items. */
export function createInputReader(
  pool: Pool,
  { accountId, runId }: ClaimedStep,
  definition: Definition,
  nodeId: string,
): ReadInput {
  return async (place, countMax): Promise<NodeInput> => {
    const nodeRuns = await listNodeRuns(pool, accountId, runId);
    const sequences = new Map(nodeRuns.map((nodeRun) => [nodeRun.nodeId, nodeRun.sequence]));
    const sources = sourcesOf(definition, nodeId);
    const found: InputItem[] = [];
    let bytesLeft = ITEM_BYTES_PER_READ;
    for (let source = place?.source ?? 0; source < sources.length; source++) {
      const sequence = sequences.get(sources[source]!)!;
      const after = source === place?.source ? place.index : -1;
      const nodeRun = { accountId, runId, sequence };
      const read = await readItems(pool, nodeRun, after, countMax - found.length, bytesLeft);
      found.push(...read.items.map(({ index, item }) => ({ item, place: { source, index } })));
      if (read.isFull) return { items: found, isEnd: false };
      bytesLeft -= read.bytes;
    }
    return { items: found, isEnd: true };
  };
}
