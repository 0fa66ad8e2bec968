import type { ClientBase } from "pg";
import { sourcesOf, targetsOf } from "../model/definition.ts";
import { SOURCE_KINDS } from "../model/node-kinds.ts";
import { allows } from "../model/roles.ts";
import {
  ITEMS_DROPPED_FOR,
  RUN_ITEMS_MAX,
  RUN_SUMMARY_BYTES_MAX,
  runItemBytesMax,
  STEP_ATTEMPTS_MAX,
} from "../model/workflows.ts";
import { NodeFailedError, type NodeStepResult } from "../nodes/node-step.ts";
import { awaitAnalysis } from "../store/awaited-analyses.ts";
import {
  cancelNodeRuns,
  dropItems,
  type HandedItems,
  type Item,
  insertItems,
  insertNodeRuns,
  listNodeRuns,
  readItems,
  type StoredNodeRun,
} from "../store/node-runs.ts";
import { insertRunEvents, type NewRunEvent } from "../store/run-events.ts";
import {
  holdRequesterRole,
  type LockedRun,
  lockRun,
  publishInside,
  type RunError,
  setRunEnd,
  setRunStatus,
} from "../store/runs.ts";
import { changeNodeRun, type NodeChange, type Step, startNodeRun } from "../store/steps.ts";

/** What became of a step. `lost`: it was somebody else's by then, or its run had ended. */
export type StepEnd = "recorded" | "lost" | "given_back" | "run_succeeded" | "run_failed";

/** Of those that the last nodes have handed on, as many as there is room for. */
const ITEMS_MAX = 100;
/** An analysis may have 512, and three are around an item. */
const ITEM_LEVELS_MAX = 509;

type EndedRun = {
  /** The one that ends it. */
  readonly step: Step;
  readonly nodeRuns: readonly StoredNodeRun[];
  /** Null: it has succeeded. */
  readonly error: RunError | null;
};

/**
 * What a webhook has room for; the rest is read as the run's node items. `items`: of the nodes that no edge leads from,
 * in the order in which they began. `items_total`: all that these nodes have handed on.
 */
async function summarizeRun(tx: ClientBase, { step, nodeRuns }: EndedRun) {
  const { accountId, runId, definition } = step;
  const nodes = nodeRuns.map(({ node_id, output_counts }) => ({ node_id, ...output_counts }));
  const last = nodeRuns.filter(({ node_id }) => targetsOf(definition, node_id).length === 0);
  const items_total = last.reduce((sum, { output_counts }) => sum + output_counts.items, 0);
  const items: Item[] = [];
  let bytes = Buffer.byteLength(JSON.stringify({ nodes, items, items_total }));
  for (const { sequence } of last) {
    const nodeRun = { accountId, runId, sequence };
    const countMax = ITEMS_MAX - items.length;
    // With the item that has no room any more, if there is one.
    const found = await readItems(tx, nodeRun, -1, countMax, RUN_SUMMARY_BYTES_MAX);
    for (const { item: text } of found.items) {
      const item: Item = JSON.parse(text);
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

/**
 * Ends a run that is locked, and publishes its analysis in the same transaction: both, or neither. Where publishing
 * refuses it the run has failed, and the least that tells so is published; if that is refused, too, the run says it. A
 * test publishes nothing.
 */
async function endRun(tx: ClientBase, run: EndedRun): Promise<StepEnd> {
  const { accountId, runId, workflowId: workflow_id, traceparent, attempt } = run.step;
  // Receivers would take a part for the result.
  if (run.step.testNodeId !== null) return await end(tx, run.step, run.error, null);
  const publish = (analysis: object, webhookUrl: string | null) => {
    const publication = { accountId, analysis: JSON.stringify(analysis), webhookUrl, traceparent };
    // In the last try whatever goes wrong ends the run all the same.
    return publishInside(tx, publication, attempt >= STEP_ATTEMPTS_MAX);
  };
  const url = await urlOf(tx, run.step);
  const published = await publish(await analysisOf(tx, run), url);
  if (typeof published === "string") return await end(tx, run.step, run.error, published);
  const error = run.error ?? {
    code: "publish_refused",
    message: `The run's analysis could not be published: ${published.message}`,
    details: null,
  };
  // What cannot go to the run's own URL is for the account's endpoint.
  const leastUrl = published.code === "target_refused" ? null : url;
  const least = { id: runId, status: "failed", workflow_id, error_code: error.code };
  const second = await publish(least, leastUrl);
  const isPublished = typeof second === "string";
  const details = { ...error.details, publication: isPublished ? [published] : [published, second] };
  return await end(tx, run.step, { ...error, details }, isPublished ? second : null);
}

/**
 * A run's own URL is its requester's: who may no longer run workflows in the space, or asked with a key that is no
 * longer valid, is told of it no more. Null: the account's endpoint.
 */
async function urlOf(tx: ClientBase, { accountId, runId, webhookUrl }: Step): Promise<string | null> {
  if (webhookUrl === null) return null;
  const requester = await holdRequesterRole(tx, accountId, runId);
  return requester !== null && allows(requester.role, "run_workflows") ? webhookUrl : null;
}

async function analysisOf(tx: ClientBase, run: EndedRun): Promise<object> {
  const { runId: id, workflowId: workflow_id } = run.step;
  if (run.error !== null) {
    const { code: error_code, message: error_message } = run.error;
    return { id, status: "failed", workflow_id, error_code, error_message };
  }
  return { id, status: "succeeded", workflow_id, result: await summarizeRun(tx, run) };
}

async function end(
  tx: ClientBase,
  { accountId, runId }: Step,
  error: RunError | null,
  deliveryId: string | null,
): Promise<StepEnd> {
  await setRunStatus(tx, accountId, runId, error === null ? "SUCCEEDED" : "FAILED");
  await setRunEnd(tx, accountId, runId, deliveryId, error ?? {});
  const kind = error === null ? "run.succeeded" : "run.failed";
  const details = error === null ? {} : { details: { error_code: error.code } };
  await insertRunEvents(tx, accountId, runId, [{ kind, nodeId: null, ...details }]);
  return error === null ? "run_succeeded" : "run_failed";
}

/** The node run begins, or goes on after a wait. Null: the step is somebody else's. */
export async function recordStart(tx: ClientBase, step: Step): Promise<Date | null> {
  const { accountId, runId, nodeId } = step;
  const run = await lockRun(tx, accountId, runId);
  const begun = await startNodeRun(tx, step);
  if (run === null || begun === null) return null;
  const kind = step.nodeStatus === "QUEUED" ? "node.started" : "node.resumed";
  const events: NewRunEvent[] = [{ kind, nodeId }];
  if (run.status === "QUEUED") events.unshift({ kind: "run.started", nodeId: null });
  if (run.status !== "ACTIVE") await setRunStatus(tx, accountId, runId, "ACTIVE");
  await insertRunEvents(tx, accountId, runId, events);
  return begun.startedAt;
}

/** @throws NodeFailedError: the run would hold more than it may */
export async function recordResult(tx: ClientBase, step: Step, result: NodeStepResult): Promise<StepEnd> {
  const { accountId, runId, nodeId } = step;
  const run = await lockRun(tx, accountId, runId);
  const items = result.kind === "waiting" ? [] : result.items;
  // They say of themselves that something is wrong with them.
  const errorItems = items.filter(({ error }) => typeof error === "object" && error !== null).length;
  const texts = items.map((item) => JSON.stringify(item));
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const change = { items: items.length, errorItems, ...changeOf(result) };
  const handedOn = await changeNodeRun(tx, step, change);
  if (run === null || handedOn === null) return "lost";
  const isSource = SOURCE_KINDS.includes(step.definition.nodes.find(({ id }) => id === nodeId)!.kind);
  const handed = { count: items.length, bytes, broughtBytes: isSource ? bytes : 0 };
  requireRoom(run, handed);
  if (items.length > 0) await insertItems(tx, step, texts, handed);
  const details =
    result.kind === "waiting"
      ? { until: result.until, ...(result.analysisId !== null && { analysis_id: result.analysisId }) }
      : handedOn;
  await insertRunEvents(tx, accountId, runId, [{ kind: `node.${result.kind}`, nodeId, details }]);
  if (result.kind === "succeeded") return await goOn(tx, step);
  if (result.kind === "waiting") {
    if (result.analysisId !== null) await awaitAnalysis(tx, step, result.analysisId);
    await settleStatus(tx, step, await listNodeRuns(tx, accountId, runId));
  }
  return "recorded";
}

function changeOf(result: NodeStepResult): NodeChange {
  switch (result.kind) {
    case "progressed":
      return { status: "ACTIVE", position: result.position, inMs: 0 };
    case "waiting":
      return { status: "WAITING", until: result.until, awaitedAnalysisId: result.analysisId };
    case "succeeded":
      return { status: "SUCCEEDED" };
    default:
      throw new Error(`A result of unknown kind: ${JSON.stringify(result satisfies never)}`);
  }
}

function requireRoom({ itemCount, itemBytes, ...run }: LockedRun, handed: HandedItems): void {
  const bytesMax = runItemBytesMax(run.broughtBytes + handed.broughtBytes);
  if (itemCount + handed.count <= RUN_ITEMS_MAX && itemBytes + handed.bytes <= bytesMax) return;
  const message =
    `The nodes of this run may pass on ${RUN_ITEMS_MAX} items and ${bytesMax} bytes in total, a limit that follows ` +
    "from what it began with. Run the workflow on fewer documents, or with fewer branches that are joined again.";
  throw new NodeFailedError("run_too_large", message);
}

/** A node has ended: those begin whose last source it was; when all have, the run has. */
async function goOn(tx: ClientBase, step: Step): Promise<StepEnd> {
  const { accountId, runId, definition, nodeId } = step;
  const nodeRuns = await listNodeRuns(tx, accountId, runId);
  const ended = new Map(
    nodeRuns.filter(({ status }) => status === "SUCCEEDED").map((nodeRun) => [nodeRun.node_id, nodeRun]),
  );
  if (ended.size === definition.nodes.length) {
    return await endRun(tx, { step, nodeRuns, error: null });
  }
  const next = targetsOf(definition, nodeId).flatMap((target) => {
    const sources = sourcesOf(definition, target).map((source) => ended.get(source));
    if (sources.includes(undefined)) return [];
    return [
      { nodeId: target, inputCount: sources.reduce((sum, source) => sum + source!.output_counts.items, 0) },
    ];
  });
  if (next.length > 0) await insertNodeRuns(tx, accountId, runId, next);
  else await settleStatus(tx, step, nodeRuns);
  return "recorded";
}

/** A run whose nodes all wait, waits. */
async function settleStatus(
  tx: ClientBase,
  { accountId, runId }: Step,
  nodeRuns: readonly StoredNodeRun[],
): Promise<void> {
  if (nodeRuns.some(({ status }) => status === "QUEUED" || status === "ACTIVE")) return;
  await setRunStatus(tx, accountId, runId, "WAITING");
  await insertRunEvents(tx, accountId, runId, [{ kind: "run.waiting", nodeId: null }]);
}

/** The step is tried again in `delayMs`. Whether it had begun, its row alone knows. */
export async function recordRetry(tx: ClientBase, step: Step, delayMs: number): Promise<StepEnd> {
  const { accountId, runId, nodeId } = step;
  const attempt = step.attempt + 1;
  await lockRun(tx, accountId, runId);
  const handedOn = await changeNodeRun(tx, step, { status: null, attempt, inMs: delayMs });
  if (handedOn === null) return "lost";
  await insertRunEvents(tx, accountId, runId, [{ kind: "node.retried", nodeId, details: { attempt } }]);
  return "recorded";
}

/** The node has failed, and with it the run: the other nodes stop where they are. */
export async function recordFailure(tx: ClientBase, step: Step, error: NodeFailedError): Promise<StepEnd> {
  const { accountId, runId, nodeId } = step;
  const { code, message } = error;
  await lockRun(tx, accountId, runId);
  const attempt = Math.min(step.attempt, STEP_ATTEMPTS_MAX);
  const failed = { status: "FAILED", attempt, errorCode: code, errorMessage: message } as const;
  const handedOn = await changeNodeRun(tx, step, failed);
  if (handedOn === null) return "lost";
  const cancelled = await cancelNodeRuns(tx, accountId, runId);
  await insertRunEvents(tx, accountId, runId, [
    { kind: "node.failed", nodeId, details: { error_code: code } },
    ...cancelled,
  ]);
  if (ITEMS_DROPPED_FOR.includes(code)) await dropItems(tx, accountId, runId);
  const nodeRuns = await listNodeRuns(tx, accountId, runId);
  const runError = { code, message, details: { node_id: nodeId } };
  return await endRun(tx, { step, nodeRuns, error: runError });
}
