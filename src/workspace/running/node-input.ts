import type { Pool } from "pg";
import type { Definition } from "../model/definition.ts";
import { sourcesOf } from "../model/definition-graph.ts";
import type { InputItem, InputPlace } from "../nodes/node-step.ts";
import { readItems } from "../store/node-items.ts";
import { listNodeRuns } from "../store/node-runs.ts";
import type { ClaimedStep } from "../store/steps.ts";

type ReadInput = (place: InputPlace | null, countMax: number) => Promise<readonly InputItem[]>;

/** A node's input: what its sources have handed on, in the order of the edges, then of the items. */
export function createInputReader(
  pool: Pool,
  { accountId, runId }: ClaimedStep,
  definition: Definition,
  nodeId: string,
): ReadInput {
  return async (place, countMax) => {
    const nodeRuns = await listNodeRuns(pool, accountId, runId);
    const sequences = new Map(nodeRuns.map((nodeRun) => [nodeRun.nodeId, nodeRun.sequence]));
    const sources = sourcesOf(definition, nodeId);
    const found: InputItem[] = [];
    for (let source = place?.source ?? 0; source < sources.length && found.length < countMax; source++) {
      const sequence = sequences.get(sources[source]!)!;
      const after = source === place?.source ? place.index : -1;
      const items = await readItems(pool, accountId, runId, sequence, after, countMax - found.length);
      found.push(...items.map(({ index, item }) => ({ item, place: { source, index } })));
    }
    return found;
  };
}
