import { randomUUID } from "node:crypto";
import type { Work } from "../base/metrics/database-metrics.ts";
import { abortableDelay } from "../base/model/backoff.ts";
import type { Lead, Promotion } from "./promote-sql.ts";

/** How often the leader looks for what is due: the S in "sent again within lease + sweep". */
const SWEEP_MAX_MS = 1_000;
const SWEEP_MIN_MS = 50;

/** A second, unless the retry window is compressed (demo, tests): then in proportion, or retries would bunch up. */
export function sweepMs(windowMs: number): number {
  return Math.min(SWEEP_MAX_MS, Math.max(SWEEP_MIN_MS, windowMs / 100));
}

/** Much less than an attempt's shortest lease (5 s), so that a dead leader has a successor before any lease ends. */
const LEADER_LEASE_MS = 2_500;
/** Seldom, as dispatchers have most of it at hand: at rest each statement counts. */
const WAKE_PROVEN_EVERY_SWEEPS = 5;
const SWEEP_JOBS_EVERY_MS = 60_000;
const FORGET_EVERY_MS = 60_000;
const KEEP_HOUSE_EVERY_MS = 3_600_000;
/** How old activity is at most, besides its lag; in proportion while the window is compressed. */
const COUNT_ACTIVITY_EVERY_SWEEPS = 30;
/** Of replays and of what was held: what a whole second brings at once, everybody else would notice. */
export const PACED_STEPS_PER_SWEEP = 5;

export type LeaderOptions = {
  readonly sweepMs: number;
  readonly lead: (holder: string, leaseMs: number) => Promise<Omit<Lead, "atMs">>;
  /** Wakes what is due; isFull: there was more than one step takes. */
  readonly promote: () => Promise<Pick<Promotion, "woken" | "isFull">>;
  /** One paced step of the bulk replays: beside promoting, which nothing may hold up; single-flight. */
  readonly advanceReplays: () => Promise<number>;
  /** One paced step of what is held; after each of the replays'. */
  readonly advanceHolds: () => Promise<number>;
  /** Wakes what has waited for receivers that have proven themselves: beside promoting; single-flight. */
  readonly wakeProven: () => Promise<void>;
  readonly sweepJobs: () => Promise<unknown>;
  /** Adds up what has ended, until it has caught up: beside promoting; single-flight; the signal cuts it short. */
  readonly countActivity: (signal: AbortSignal) => Promise<void>;
  /** Partitions and retention: slow work, beside promoting; single-flight; the signal cuts it short. */
  readonly keepHouse: (signal: AbortSignal) => Promise<void>;
  /** Absent: an hour. */
  readonly keepHouseEveryMs?: number;
  /** Erases what endpoints that forget were delivered. */
  readonly forget: (signal: AbortSignal) => Promise<void>;
  readonly onError: (work: Work, error: unknown) => void;
};

/**
 * Every dispatcher runs one; at any time one of them holds the lease, promotes and keeps house for all. Returns what
 * ends it.
 */
export function startLeader(options: LeaderOptions): () => Promise<void> {
  const { sweepMs, sweepJobs, countActivity, keepHouse, keepHouseEveryMs = KEEP_HOUSE_EVERY_MS } = options;
  const holder = randomUUID();
  const stopping = new AbortController();
  const { signal } = stopping;
  const besides = new Map<Work, { readonly startedAt: number; running: Promise<void> | null }>();

  async function run(): Promise<void> {
    while (!signal.aborted) {
      const startedAt = performance.now();
      const found = await attempt("lead", () => options.lead(holder, LEADER_LEASE_MS));
      if (found?.leads) {
        if (found.isDue) await promoteAll();
        if (found.isPaced) runBeside("advance_replays", 0, startedAt, stepAll);
        runBeside("wake_proven", WAKE_PROVEN_EVERY_SWEEPS * sweepMs, startedAt, options.wakeProven);
        runBeside("sweep_jobs", SWEEP_JOBS_EVERY_MS, startedAt, sweepJobs);
        runBeside("count_activity", COUNT_ACTIVITY_EVERY_SWEEPS * sweepMs, startedAt, countActivity);
        runBeside("forget", FORGET_EVERY_MS, startedAt, options.forget);
        runBeside("keep_house", keepHouseEveryMs, startedAt, keepHouse);
      }
      await abortableDelay(sweepMs - (performance.now() - startedAt), signal);
    }
  }

  async function promoteAll(): Promise<void> {
    const startedAt = performance.now();
    for (;;) {
      const promotion = await attempt("promote", options.promote);
      const isTimeUp = performance.now() - startedAt > SWEEP_MAX_MS;
      if (promotion === undefined || !promotion.isFull || isTimeUp) return;
    }
  }

  /** The steps of one sweep, for as long as there is something to do; we may not be the leader for longer. */
  async function stepAll(): Promise<void> {
    for (let step = 1; ; step++) {
      const startedAt = performance.now();
      const replayed = (await attempt("advance_replays", options.advanceReplays)) ?? 0;
      const released = (await attempt("advance_holds", options.advanceHolds)) ?? 0;
      if (replayed + released === 0 || step === PACED_STEPS_PER_SWEEP || signal.aborted) return;
      await abortableDelay(sweepMs / PACED_STEPS_PER_SWEEP - (performance.now() - startedAt), signal);
    }
  }

  /** Beside promoting, which nothing may hold up; one of a kind at a time. */
  function runBeside(
    work: Work,
    everyMs: number,
    nowMs: number,
    does: (signal: AbortSignal) => Promise<unknown>,
  ): void {
    const last = besides.get(work);
    if (signal.aborted || (last !== undefined && (last.running !== null || nowMs - last.startedAt < everyMs)))
      return;
    const begun = { startedAt: nowMs, running: null as Promise<void> | null };
    begun.running = attempt(work, () => does(signal)).then(() => {
      begun.running = null;
    });
    besides.set(work, begun);
  }

  async function attempt<T>(work: Work, does: () => Promise<T>): Promise<T | undefined> {
    try {
      return await does();
    } catch (error) {
      options.onError(work, error);
      return undefined;
    }
  }

  const loop = run();
  return async () => {
    stopping.abort();
    await loop;
    await Promise.all([...besides.values()].map(({ running }) => running));
  };
}
