import type { ClientBase } from "pg";
import { sourcesOf, targetsOf } from "../model/definition-graph.ts";
import { SOURCE_KINDS } from "../model/node-kinds.ts";
import { ITEMS_DROPPED_FOR, RUN_ITEMS_MAX, runItemBytesMax, STEP_ATTEMPTS_MAX } from "../model/runs.ts";
import { NodeFailedError, type NodeStepResult } from "../nodes/node-step.ts";
import { awaitAnalysis } from "../store/awaited-analyses.ts";
import { dropItems, type Item, insertItems } from "../store/node-items.ts";
import { cancelNodeRuns, insertNodeRuns, listNodeRuns, type StoredNodeRun } from "../store/node-runs.ts";
import { insertRunEvents, type NewRunEvent } from "../store/run-events.ts";
import { addRunItems, type HandedItems, type LockedRun, lockRun, setRunStatus } from "../store/runs.ts";
import { type ClaimedStep, changeNodeRun, type StepFacts, startNodeRun } from "../store/steps.ts";
import { endRun } from "./run-end.ts";
import type { StepEnd } from "./step-end.ts";

/** The node run begins, or goes on after a wait. Null: the step is somebody else's. */
export async function recordStart(tx: ClientBase, step: ClaimedStep, facts: StepFacts): Promise<Date | null> {
  const { accountId, runId } = step;
  const run = await lockRun(tx, accountId, runId);
  const startedAt = await startNodeRun(tx, step);
  if (run === null || startedAt === null) return null;
  const kind = facts.nodeStatus === "QUEUED" ? "node.started" : "node.resumed";
  const events: NewRunEvent[] = [{ kind, nodeId: facts.nodeId }];
  if (run.status === "QUEUED") events.unshift({ kind: "run.started", nodeId: null });
  if (run.status !== "ACTIVE") await setRunStatus(tx, accountId, runId, "ACTIVE");
  await insertRunEvents(tx, accountId, runId, events);
  return startedAt;
}

/** @throws NodeFailedError: the run would hold more than it may */
export async function recordResult(
  tx: ClientBase,
  step: ClaimedStep,
  facts: StepFacts,
  result: NodeStepResult,
): Promise<StepEnd> {
  const { accountId, runId, sequence } = step;
  const { nodeId } = facts;
  const run = await lockRun(tx, accountId, runId);
  const items = result.kind === "waiting" ? [] : result.items;
  const errorItems = items.filter(isError).length;
  const texts = items.map((item) => JSON.stringify(item));
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const change = { items: items.length, errorItems, attempt: 1, errorCode: null, errorMessage: null };
  const handedOn = await changeNodeRun(tx, step, { ...change, ...changeOf(result, facts) });
  if (run === null || handedOn === null) return "lost";
  const isSource = SOURCE_KINDS.includes(facts.definition.nodes.find(({ id }) => id === nodeId)!.kind);
  const handed = { count: items.length, bytes, broughtBytes: isSource ? bytes : 0 };
  requireRoom(run, handed);
  if (items.length > 0) {
    await insertItems(tx, accountId, runId, sequence, texts);
    await addRunItems(tx, accountId, runId, handed);
  }
  const details = result.kind === "waiting" ? waitDetails(result) : handedOn;
  await insertRunEvents(tx, accountId, runId, [{ kind: `node.${result.kind}`, nodeId, details }]);
  switch (result.kind) {
    case "progressed":
      return "recorded";
    case "waiting":
      if (result.analysisId !== null) await awaitAnalysis(tx, step, result.analysisId);
      await settleStatus(tx, step, await listNodeRuns(tx, accountId, runId));
      return "recorded";
    case "succeeded":
      return await goOn(tx, step, facts);
    default:
      throw new Error(`A result of unknown kind: ${JSON.stringify(result satisfies never)}`);
  }
}

function waitDetails({ until, analysisId }: NodeStepResult & { kind: "waiting" }) {
  return { until: until.toISOString(), ...(analysisId !== null && { analysis_id: analysisId }) };
}

function changeOf(result: NodeStepResult, { position }: StepFacts) {
  const none = { awaitedAnalysisId: null };
  switch (result.kind) {
    case "progressed":
      return { ...none, status: "ACTIVE", position: result.position, next: { inMs: 0 } } as const;
    case "waiting": {
      const { until, analysisId: awaitedAnalysisId } = result;
      return { status: "WAITING", position, next: { at: until }, awaitedAnalysisId } as const;
    }
    case "succeeded":
      return { ...none, status: "SUCCEEDED", position, next: null } as const;
    default:
      throw new Error(`A result of unknown kind: ${JSON.stringify(result satisfies never)}`);
  }
}

/** Of items that say of themselves that something is wrong with them. */
function isError({ error }: Item): boolean {
  return typeof error === "object" && error !== null;
}

function requireRoom({ itemCount, itemBytes, ...run }: LockedRun, handed: HandedItems): void {
  const bytesMax = runItemBytesMax(run.broughtBytes + handed.broughtBytes);
  if (itemCount + handed.count <= RUN_ITEMS_MAX && itemBytes + handed.bytes <= bytesMax) return;
  const message =
    `The nodes of this run may hand on ${RUN_ITEMS_MAX} items of ${bytesMax} bytes together, which follows from what ` +
    "it began with. Run the workflow on fewer documents, or with fewer branches that are joined again.";
  throw new NodeFailedError("run_too_large", message);
}

/** A node has ended: those begin whose last source it was; when all have, the run has. */
async function goOn(tx: ClientBase, step: ClaimedStep, facts: StepFacts): Promise<StepEnd> {
  const { accountId, runId } = step;
  const { definition, nodeId } = facts;
  const nodeRuns = await listNodeRuns(tx, accountId, runId);
  const ended = new Map(
    nodeRuns.filter(({ status }) => status === "SUCCEEDED").map((nodeRun) => [nodeRun.nodeId, nodeRun]),
  );
  if (ended.size === definition.nodes.length) {
    const isLastTry = step.attempt >= STEP_ATTEMPTS_MAX;
    return await endRun(tx, { step, facts, nodeRuns, error: null, isLastTry });
  }
  const next = targetsOf(definition, nodeId).flatMap((target) => {
    const sources = sourcesOf(definition, target).map((source) => ended.get(source));
    if (sources.includes(undefined)) return [];
    return [{ nodeId: target, inputCount: sources.reduce((sum, source) => sum + source!.itemCount, 0) }];
  });
  if (next.length > 0) await insertNodeRuns(tx, accountId, runId, next);
  else await settleStatus(tx, step, nodeRuns);
  return "recorded";
}

/** A run whose nodes all wait, waits. */
async function settleStatus(
  tx: ClientBase,
  { accountId, runId }: ClaimedStep,
  nodeRuns: readonly StoredNodeRun[],
): Promise<void> {
  if (nodeRuns.some(({ status }) => status === "QUEUED" || status === "ACTIVE")) return;
  await setRunStatus(tx, accountId, runId, "WAITING");
  await insertRunEvents(tx, accountId, runId, [{ kind: "run.waiting", nodeId: null }]);
}

/** The step is tried again in `delayMs`. Whether it had begun, its row alone knows. */
export async function recordRetry(
  tx: ClientBase,
  step: ClaimedStep,
  facts: StepFacts,
  delayMs: number,
): Promise<StepEnd> {
  const { accountId, runId, attempt } = step;
  const { nodeId, position } = facts;
  await lockRun(tx, accountId, runId);
  const change = { items: 0, errorItems: 0, errorCode: null, errorMessage: null, awaitedAnalysisId: null };
  const retried = { status: null, position, attempt: attempt + 1, next: { inMs: delayMs } } as const;
  if (!(await changeNodeRun(tx, step, { ...change, ...retried }))) return "lost";
  await insertRunEvents(tx, accountId, runId, [
    { kind: "node.retried", nodeId, details: { attempt: attempt + 1 } },
  ]);
  return "recorded";
}

/** The node has failed, and with it the run: the other nodes stop where they are. */
export async function recordFailure(
  tx: ClientBase,
  step: ClaimedStep,
  facts: StepFacts,
  { code, message }: NodeFailedError,
): Promise<StepEnd> {
  const { accountId, runId, attempt } = step;
  const { nodeId, position } = facts;
  await lockRun(tx, accountId, runId);
  const attempts = Math.min(attempt, STEP_ATTEMPTS_MAX);
  const change = { items: 0, errorItems: 0, attempt: attempts, position, awaitedAnalysisId: null };
  const failed = { status: "FAILED", errorCode: code, errorMessage: message, next: null } as const;
  if (!(await changeNodeRun(tx, step, { ...change, ...failed }))) return "lost";
  const cancelled = await cancelNodeRuns(tx, accountId, runId);
  await insertRunEvents(tx, accountId, runId, [
    { kind: "node.failed", nodeId, details: { error_code: code } },
    ...cancelled.map((id) => ({ kind: "node.cancelled" as const, nodeId: id })),
  ]);
  if (ITEMS_DROPPED_FOR.includes(code)) await dropItems(tx, accountId, runId);
  const nodeRuns = await listNodeRuns(tx, accountId, runId);
  const error = { code, message, details: { node_id: nodeId } };
  const isLastTry = attempt >= STEP_ATTEMPTS_MAX;
  return await endRun(tx, { step, facts, nodeRuns, error, isLastTry });
}
