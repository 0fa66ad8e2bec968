import type { Pool } from "pg";
import { storageRefusalOf } from "../../base/database/storage.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { abortableDelay, backoffMs, repeat } from "../../base/model/backoff.ts";
import { refusalOf } from "../../base/model/storage.ts";
import { partUpTo, sourcesOf } from "../model/definition.ts";
import type { NodeKind } from "../model/node-kinds.ts";
import { STEP_ATTEMPTS_MAX } from "../model/workflows.ts";
import {
  type InputItem,
  NodeFailedError,
  type NodeStep,
  type NodeStepResult,
  type ReadInput,
} from "../nodes/node-step.ts";
import { NODE_STEPS, type NodeSteps } from "../nodes/node-steps.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { findReaders, wakeAwaiting } from "../store/awaited-analyses.ts";
import { byTurns } from "../store/lists.ts";
import { ITEM_BYTES_PER_READ, listNodeRuns, readItems } from "../store/node-runs.ts";
import { removeEndedRuns } from "../store/runs.ts";
import type { ClaimedStep } from "../store/statements.ts";
import {
  claimLightStep,
  claimStep,
  giveBackStep,
  makeStepsReady,
  readStep,
  renewLease,
  type Step,
} from "../store/steps.ts";
import { createScheduling, START_EVERY_MS } from "./schedules.ts";
import { recordFailure, recordResult, recordRetry, recordStart, type StepEnd } from "./step-record.ts";

/** A node's input: what its sources have handed on, in the order of the edges, then of the items. */
function createInputReader(pool: Pool, { accountId, runId, definition, nodeId }: Step): ReadInput {
  return async (place, countMax) => {
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

type StepWork = Pick<RunnerOptions, "pool" | "objects" | "random"> & {
  readonly nodeSteps: NodeSteps;
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
  const found = await readStep(pool, claimed);
  if (found === null) return "lost";
  const step = { ...found, definition: partUpTo(found.definition, found.testNodeId) };
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
  const message = `${refusalOf(refusal).message} Start it again when older runs are gone, or on fewer documents.`;
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

/** Attempts a second of the dispatcher that would leave steps no time: half of what two cores carry. */
const ATTEMPTS_PER_SECOND_MAX = 500;
/** Of the time, however many there are: runs are slower then, and never stand still. */
const SHARE_MIN = 1 / 10;
/** A step is rested from for 4.5 s at most: this is for those that end together. */
const REST_MAX_MS = 10_000;
/** What a step usually takes at most. Nobody else rests for what one takes beyond that. */
const LONG_STEP_MS = 500;

/**
 * Says when the next step may be taken. What a low priority cannot lower (a database's work, a processor's caches, the
 * other half of a core) would slow webhooks down: the more of them go out, the longer steps rest.
 */
export class Pace {
  #restsUntilMs = Number.NEGATIVE_INFINITY;
  #share = 1;

  /** What the dispatcher does now. Returns the share of the time that steps may take beside it: 1 is all of it. */
  told(attemptsPerSecond: number): number {
    this.#share = Math.max(SHARE_MIN, 1 - attemptsPerSecond / ATTEMPTS_PER_SECOND_MAX);
    if (this.#share === 1) this.#restsUntilMs = Number.NEGATIVE_INFINITY;
    return this.#share;
  }

  /** A step has taken so long. Times are of a clock that only goes on. */
  ended(tookMs: number, nowMs: number): void {
    const restMs = Math.min(tookMs, LONG_STEP_MS) * (1 / this.#share - 1);
    this.#restsUntilMs = Math.min(Math.max(this.#restsUntilMs, nowMs) + restMs, nowMs + REST_MAX_MS);
  }

  mayTake(nowMs: number): boolean {
    return nowMs >= this.#restsUntilMs;
  }
}

/**
 * How soon a new run, or the end of a wait, is noticed. A NOTIFY would be sooner, but every transaction that sends one
 * waits for all others that do, webhooks' included.
 */
const LOOK_EVERY_MS = 200;
/** How soon an analysis that a node waits for is noticed, once it has its place in the feed. */
const READ_FEEDS_EVERY_MS = 500;
/** Nobody else takes a step that is being taken; one whose process has died is taken again then. */
const LEASE_MS = 15_000;
const RENEW_EVERY_MS = 5_000;
/** Few: webhooks come first. The last place is kept for light accounts: others may hold theirs for long. */
const STEPS_AT_ONCE = 3;
/** An account whose steps are half as long has not the kept place, however long others' are. */
const HEAVY_STEP_MS = 2_000;
/** What a step took counts half after this, and is forgotten if none follows. */
const HALF_LIFE_MS = 600_000;
const CLEAN_EVERY_MS = 3_600_000;
export type RunnerWork = "look" | "step" | "clean";

export type RunnerOptions = {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** How long ended runs are kept. */
  readonly retentionMs: number;
  readonly onTaken: () => void;
  readonly onError: (work: RunnerWork, error: unknown) => void;
  /** Absent: a fifth of a second. */
  readonly lookEveryMs?: number;
  /** Absent: half a second. */
  readonly readFeedsEveryMs?: number;
  /** Absent: 15 s. */
  readonly leaseMs?: number;
  /** An account whose steps are half as long has not the kept place. Absent: two seconds. */
  readonly heavyStepMs?: number;
};

/** Whose step it is, and whether it has the kept place. */
type Taking = { readonly accountId: string; readonly isKept: boolean; readonly startedMs: number };

/**
 * Takes the steps of runs. Any number of processes may run one: the rows of `workspace.node_runs` are the truth, and
 * each step is one process's.
 */
export function startRunner(options: RunnerOptions) {
  const { pool, objects, random, retentionMs, onTaken, onError } = options;
  const { lookEveryMs = LOOK_EVERY_MS, readFeedsEveryMs = READ_FEEDS_EVERY_MS } = options;
  const { leaseMs = LEASE_MS, heavyStepMs = HEAVY_STEP_MS } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const taking = new Map<Promise<void>, Taking>();
  /** What each account's steps took lately, and the squares of that; as many accounts as there was time for. */
  const lately = new Map<string, { readonly squares: number; readonly ms: number; readonly atMs: number }>();
  const pace = new Pace();
  /** The kept place's own: it goes on while others rest from what heavy accounts took. */
  const keptPace = new Pace();
  const onFault = (error: unknown) => onError("step", error);
  const work = { pool, objects, nodeSteps: NODE_STEPS, random, onFault };
  const claim = byTurns((after) => claimStep(pool, after, leaseMs));
  const claimLight = byTurns((after) => claimLightStep(pool, after, leaseMs, ...accountsByLength()));
  /**
   * Who may not have the kept place, and who comes last of the others. An account's steps are as long as the one that
   * whoever comes while it has a place meets on average. The place stays empty rather than go to steps half as long as
   * the longest: the next one would wait. Losing options: a constant, below which usual steps end; what steps take in
   * all, as short runs one after the other take more than one of twenty heavy accounts gets.
   */
  function accountsByLength(): [leftOut: string[], last: string[]] {
    const nowMs = performance.now();
    for (const [id, { atMs }] of lately) if (atMs + HALF_LIFE_MS < nowMs) lately.delete(id);
    const known = Array.from(lately, ([id, { squares, ms }]) => ({ id, length: squares / ms }));
    known.sort((one, other) => one.length - other.length);
    const taken = [...taking.values()];
    const longest = Math.max(known.at(-1)?.length ?? 0, ...taken.map(({ startedMs }) => nowMs - startedMs));
    const lightMs = Math.min(longest, heavyStepMs) / 2;
    const idsOf = (those: typeof known) => those.map(({ id }) => id);
    return [
      [...taken.map(({ accountId }) => accountId), ...idsOf(known.filter(({ length }) => length >= lightMs))],
      idsOf(known.filter(({ length }) => length >= longest / 8 && length < lightMs)),
    ];
  }

  async function attempt<T>(what: RunnerWork, does: () => Promise<T>): Promise<T | undefined> {
    try {
      return await does();
    } catch (error) {
      if (!signal.aborted) onError(what, error);
      return undefined;
    }
  }

  async function takeSteps(): Promise<void> {
    let lookedAt = Number.NEGATIVE_INFINITY;
    while (!signal.aborted) {
      if (performance.now() - lookedAt >= lookEveryMs) {
        lookedAt = performance.now();
        await attempt("look", () => makeStepsReady(pool));
      }
      while (!signal.aborted && taking.size < STEPS_AT_ONCE) {
        const startedMs = performance.now();
        const open = [...taking.values()].filter((one) => !one.isKept);
        const isKept = open.length >= STEPS_AT_ONCE - 1 || !pace.mayTake(startedMs);
        if (isKept && (open.length < taking.size || !keptPace.mayTake(startedMs))) break;
        const step = await attempt("look", isKept ? claimLight : claim);
        if (!step) break;
        const taken: Promise<void> = take(step, isKept).finally(() => taking.delete(taken));
        taking.set(taken, { accountId: step.accountId, isKept, startedMs });
      }
      const wait = new AbortController();
      const looking = abortableDelay(lookEveryMs, AbortSignal.any([signal, wait.signal]));
      // With places left nothing more is to be had now, but a step that ends may have made the next one.
      await Promise.race([looking, ...taking.keys()]);
      wait.abort();
    }
  }

  async function take(step: ClaimedStep, isKept: boolean): Promise<void> {
    const lost = new AbortController();
    const renew = () =>
      renewLease(pool, step, leaseMs).then(
        (isOurs) => isOurs || lost.abort(),
        // Whoever records it finds out whose it is.
        () => undefined,
      );
    const renewing = setInterval(renew, Math.min(RENEW_EVERY_MS, leaseMs / 3));
    const startedMs = performance.now();
    const end = await attempt("step", () => takeStep(work, step, AbortSignal.any([signal, lost.signal])));
    const endedMs = performance.now();
    const tookMs = endedMs - startedMs;
    (isKept ? keptPace : pace).ended(tookMs, endedMs);
    const { squares, ms, atMs } = lately.get(step.accountId) ?? { squares: 0, ms: 0, atMs: endedMs };
    const part = 2 ** ((atMs - endedMs) / HALF_LIFE_MS);
    const now = { squares: part * squares + tookMs ** 2, ms: part * ms + tookMs, atMs: endedMs };
    lately.set(step.accountId, now);
    clearInterval(renewing);
    if (end !== undefined && end !== "lost" && end !== "given_back") onTaken();
  }

  /** Returns whether there may be more to read. */
  async function readFeeds(): Promise<boolean> {
    let isMore = false;
    for (const accountId of await findReaders(pool)) {
      if (signal.aborted) break;
      // Each by itself: an error with one account's feed delays no other's.
      if (await attempt("look", () => wakeAwaiting(pool, accountId))) isMore = true;
    }
    return isMore;
  }

  const loop = (what: RunnerWork, everyMs: number, step: () => Promise<boolean>) =>
    repeat(everyMs, signal, step, (error) => onError(what, error));
  const loops = Promise.all([
    takeSteps(),
    loop("look", readFeedsEveryMs, readFeeds),
    loop("look", START_EVERY_MS, createScheduling(pool)),
    loop("clean", CLEAN_EVERY_MS, () => removeEndedRuns(pool, retentionMs)),
  ]);
  return {
    /**
     * How many attempts the dispatcher makes in a second now, beside which steps are taken. Returns the share of the
     * time that steps may take: 1 is all of it.
     */
    giveWayTo: (attemptsPerSecond: number) => {
      keptPace.told(attemptsPerSecond);
      return pace.told(attemptsPerSecond);
    },
    /** Steps that are being taken are given back. */
    stop: async () => {
      stopping.abort();
      await loops;
      await Promise.all(taking.keys());
    },
  };
}
