import type { Pool } from "pg";
import { abortableDelay } from "../../base/model/backoff.ts";
import { NODE_STEPS } from "../nodes/node-steps.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { findReaders, wakeAwaiting } from "../store/awaited-analyses.ts";
import { byTurns } from "../store/lists.ts";
import { removeEndedRuns } from "../store/runs.ts";
import { type ClaimedStep, claimStep, makeStepsReady, renewLease } from "../store/steps.ts";
import { takeStep } from "./step.ts";

/** Attempts a second of the dispatcher that would leave steps no time: half of what two cores carry. */
const ATTEMPTS_PER_SECOND_MAX = 500;
/** Of the time, however many there are: runs are slower then, and never stand still. */
const SHARE_MIN = 1 / 10;
/** A step usually takes half a second and rests 4.5 s at most: this is for one that took far longer. */
const REST_MAX_MS = 10_000;

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
    const restMs = tookMs * (1 / this.#share - 1);
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
/** Few: webhooks come first. While one is at a document of its account, another account's has the other place. */
const STEPS_AT_ONCE = 2;
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
};

export type Runner = {
  /**
   * How many attempts the dispatcher makes in a second now, beside which steps are taken. Returns the share of the time
   * that steps may take: 1 is all of it.
   */
  giveWayTo(attemptsPerSecond: number): number;
  /** Steps that are being taken are given back. */
  stop(): Promise<void>;
};

/**
 * Takes the steps of runs. Any number of processes may run one: the rows of `workspace.node_runs` are the truth, and
 * each step is one process's.
 */
export function startRunner(options: RunnerOptions): Runner {
  const { pool, objects, random, retentionMs, onTaken, onError } = options;
  const { lookEveryMs = LOOK_EVERY_MS, readFeedsEveryMs = READ_FEEDS_EVERY_MS, leaseMs = LEASE_MS } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const taking = new Set<Promise<void>>();
  const pace = new Pace();
  const work = {
    pool,
    objects,
    nodeSteps: NODE_STEPS,
    random,
    onFault: (error: unknown) => onError("step", error),
  };
  const claim = byTurns((after) => claimStep(pool, after, leaseMs));

  async function attempt<T>(what: RunnerWork, does: () => Promise<T>): Promise<T | undefined> {
    try {
      return await does();
    } catch (error) {
      if (!signal.aborted) onError(what, error);
      return undefined;
    }
  }

  /** @param does resolves with whether there is more to do at once */
  async function repeat(what: RunnerWork, everyMs: number, does: () => Promise<boolean>): Promise<void> {
    while (!signal.aborted) if (!(await attempt(what, does))) await abortableDelay(everyMs, signal);
  }

  async function takeSteps(): Promise<void> {
    let lookedAt = Number.NEGATIVE_INFINITY;
    while (!signal.aborted) {
      if (performance.now() - lookedAt >= lookEveryMs) {
        lookedAt = performance.now();
        await attempt("look", () => makeStepsReady(pool));
      }
      while (!signal.aborted && taking.size < STEPS_AT_ONCE && pace.mayTake(performance.now())) {
        const step = await attempt("look", claim);
        if (!step) break;
        const taken: Promise<void> = take(step).finally(() => taking.delete(taken));
        taking.add(taken);
      }
      const wait = new AbortController();
      const looking = abortableDelay(lookEveryMs, AbortSignal.any([signal, wait.signal]));
      // With places left nothing more is to be had now, but a step that ends may have made the next one.
      await Promise.race([looking, ...taking]);
      wait.abort();
    }
  }

  async function take(step: ClaimedStep): Promise<void> {
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
    pace.ended(performance.now() - startedMs, performance.now());
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

  const loops = Promise.all([
    takeSteps(),
    repeat("look", readFeedsEveryMs, readFeeds),
    repeat("clean", CLEAN_EVERY_MS, () => removeEndedRuns(pool, retentionMs)),
  ]);
  return {
    giveWayTo: (attemptsPerSecond) => pace.told(attemptsPerSecond),
    stop: async () => {
      stopping.abort();
      await loops;
      await Promise.all(taking);
    },
  };
}
