import type { ClientBase } from "pg";
import type { Definition } from "../model/definition.ts";
import { isTriggerKind } from "../model/node-kinds.ts";
import { isUnfinished } from "../model/runs.ts";
import { cancelNodeRuns, insertNodeRuns } from "./node-runs.ts";
import { insertRunEvents } from "./run-events.ts";
import { insertRun, lockRun, type NewRun, setRunStatus } from "./runs.ts";
import type { SpaceUser } from "./spaces.ts";

/** A run that begins at its trigger. Returns its id. */
export async function createRun(
  tx: ClientBase,
  user: SpaceUser,
  { definition, ...run }: NewRun & { readonly definition: Definition },
): Promise<string> {
  const { accountId } = user;
  const runId = await insertRun(tx, user, run);
  const trigger = definition.nodes.find(({ kind }) => isTriggerKind(kind))!;
  await insertNodeRuns(tx, accountId, runId, [{ nodeId: trigger.id, inputCount: 0 }]);
  await insertRunEvents(tx, accountId, runId, [{ kind: "run.created", nodeId: null }]);
  return runId;
}

/** False: it had ended. Whoever is at a step of it cannot record it any more. */
export async function cancelRun(tx: ClientBase, accountId: string, runId: string): Promise<boolean> {
  const run = await lockRun(tx, accountId, runId);
  if (run === null || !isUnfinished(run.status)) return false;
  const nodes = await cancelNodeRuns(tx, accountId, runId);
  await setRunStatus(tx, accountId, runId, "CANCELLED");
  await insertRunEvents(tx, accountId, runId, [
    ...nodes.map((nodeId) => ({ kind: "node.cancelled" as const, nodeId })),
    { kind: "run.cancelled", nodeId: null },
  ]);
  return true;
}
