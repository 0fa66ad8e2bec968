import type { Pool } from "pg";
import { storageRefusalOf } from "../../base/database/storage.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { backoffMs } from "../../base/model/backoff.ts";
import { sourcesOf } from "../model/definition.ts";
import type { NodeKind } from "../model/node-kinds.ts";
import { STEP_ATTEMPTS_MAX } from "../model/workflows.ts";
import {
  type InputItem,
  NodeFailedError,
  type NodeInput,
  type NodeStep,
  type NodeStepResult,
  type ReadInput,
} from "../nodes/node-step.ts";
import type { NodeSteps } from "../nodes/node-steps.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { ITEM_BYTES_PER_READ, listNodeRuns, readItems } from "../store/node-runs.ts";
import { type ClaimedStep, giveBackStep, readStep, type Step } from "../store/steps.ts";
import { recordFailure, recordResult, recordRetry, recordStart, type StepEnd } from "./step-record.ts";

/** A node's input: what its sources have handed on, in the order of the edges, then of the items. */
function createInputReader(pool: Pool, { accountId, runId, definition, nodeId }: Step): ReadInput {
  return async (place, countMax): Promise<NodeInput> => {
    const nodeRuns = await listNodeRuns(pool, accountId, runId);
    const sequences = new Map(nodeRuns.map((nodeRun) => [nodeRun.node_id, nodeRun.sequence]));
    const sources = sourcesOf(definition, nodeId);
    const found: InputItem[] = [];
    let bytesLeft = ITEM_BYTES_PER_READ;
    for (let source = place?.source ?? 0; source < sources.length; source++) {
      const sequence = sequences.get(sources[source]!)!;
      const after = source === place?.source ? place.index : -1;
      const nodeRun = { accountId, runId, sequence };
      const read = await readItems(pool, nodeRun, after, countMax - found.length, bytesLeft);
      found.push(
        ...read.items.map(({ index, item }) => ({ item: JSON.parse(item), place: { source, index } })),
      );
      if (read.isFull) return { items: found, isEnd: false };
      bytesLeft -= read.bytes;
    }
    return { items: found, isEnd: true };
  };
}

const RETRY_BACKOFF = { baseMs: 1_000, maxMs: 300_000 };

type StepWork = {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  readonly nodeSteps: NodeSteps;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** The step failed for reasons that are not its node's, and is tried again, or was for the last time. */
  readonly onFault: (error: unknown) => void;
};

const EXHAUSTED = new NodeFailedError(
  "attempts_exhausted",
  `The node could not do its work in ${STEP_ATTEMPTS_MAX} attempts. Start the run again; report it if that fails, too.`,
);

/**
 * Takes a step that was claimed: reads what it is about, does what its node does, and records what that came to, which
 * only the owner of the lease can.
 */
export async function takeStep(work: StepWork, claimed: ClaimedStep, signal: AbortSignal): Promise<StepEnd> {
  const { pool } = work;
  const step = await readStep(pool, claimed);
  if (step === null) return "lost";
  const fail = (error: NodeFailedError) => inTransaction(pool, (tx) => recordFailure(tx, step, error));
  // Whatever it does, it ends its process before it has done it.
  if (step.attempt > STEP_ATTEMPTS_MAX) return await fail(EXHAUSTED);
  try {
    const isBegun = step.nodeStatus === "ACTIVE";
    const startedAt = isBegun ? step.startedAt : await inTransaction(pool, (tx) => recordStart(tx, step));
    if (startedAt === null) return "lost";
    const result = await doStep(work, step, startedAt, signal);
    return await inTransaction(pool, (tx) => recordResult(tx, step, result));
  } catch (error) {
    if (signal.aborted) {
      await giveBackStep(pool, step);
      return "given_back";
    }
    const failure = error instanceof NodeFailedError ? error : storageFailureOf(error);
    if (failure !== null) return await fail(failure);
    work.onFault(error);
    if (step.attempt >= STEP_ATTEMPTS_MAX) return await fail(EXHAUSTED);
    const delayMs = backoffMs(step.attempt - 1, RETRY_BACKOFF, work.random());
    return await inTransaction(pool, (tx) => recordRetry(tx, step, delayMs));
  }
}

/** The account may store no more. Null: the error is another one. */
function storageFailureOf(error: unknown): NodeFailedError | null {
  const refusal = storageRefusalOf(error);
  if (refusal === null) return null;
  const message =
    `Runs of the account may store ${refusal.bytesMax} bytes together, ended ones included, and this one would ` +
    "exceed that. Start it again when older runs are gone, or on fewer documents.";
  return new NodeFailedError("storage_full", message);
}

async function doStep(
  { pool, objects, nodeSteps }: StepWork,
  step: Step,
  startedAt: Date,
  signal: AbortSignal,
): Promise<NodeStepResult> {
  const node = step.definition.nodes.find(({ id }) => id === step.nodeId)!;
  const readInput = createInputReader(pool, step);
  const take = nodeSteps[node.kind] as NodeStep<NodeKind>;
  return await take({ ...step, startedAt, pool, objects, node, signal, readInput });
}
