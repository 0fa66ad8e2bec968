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
const SWEEP_JOBS_EVERY_MS = 60_000;
/** How old activity is at most, besides its lag; in proportion while the window is compressed. */
const COUNT_ACTIVITY_EVERY_SWEEPS = 30;
/**
 * Bulk replays and what was held go on in small steps: what a whole second brings at once, everybody else's deliveries
 * would notice.
 */
export const PACED_STEPS_PER_SWEEP = 5;

export type LeaderOptions = {
  readonly sweepMs: number;
  readonly holder: string;
  readonly lead: (holder: string, leaseMs: number) => Promise<Omit<Lead, "atMs">>;
  /** Wakes what is due; isFull: there was more than one step takes. */
  readonly promote: () => Promise<Pick<Promotion, "woken" | "isFull">>;
  /** One paced step of the bulk replays: beside promoting, which nothing may hold up; single-flight. */
  readonly advanceReplays: () => Promise<number>;
  /** One paced step of what is held; after each of the replays'. */
  readonly advanceHolds: () => Promise<number>;
  readonly sweepJobs: () => Promise<number>;
  /** Adds up what has ended, until it has caught up: beside promoting; single-flight; the signal cuts it short. */
  readonly countActivity: (signal: AbortSignal) => Promise<void>;
  /** Partitions and retention: slow work, beside promoting; single-flight; the signal cuts it short. */
  readonly keepHouse: (signal: AbortSignal) => Promise<void>;
  readonly keepHouseEveryMs: number;
  readonly onError: (work: LeaderWork, error: unknown) => void;
};

export type LeaderWork =
  | "lead"
  | "promote"
  | "advance_replays"
  | "advance_holds"
  | "sweep_jobs"
  | "count_activity"
  | "keep_house";

/** Every dispatcher runs one; at any time one of them holds the lease, and promotes and keeps house for all. */
export class Leader {
  readonly #options: LeaderOptions;
  readonly #stopping = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #sweptJobsAt = Number.NEGATIVE_INFINITY;
  readonly #slow = new Map<LeaderWork, { readonly startedAt: number; running: Promise<void> | null }>();

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
    await Promise.all([...this.#slow.values()].map(({ running }) => running));
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const startedAt = performance.now();
      const found = await this.#try("lead", () => this.#options.lead(this.#options.holder, LEADER_LEASE_MS));
      if (found?.leads) {
        if (found.isDue) await this.#promoteAll();
        if (found.isPaced) this.#runBeside("advance_replays", 0, startedAt, () => this.#stepAll());
        await this.#sweepJobs(startedAt);
        const { sweepMs, countActivity, keepHouse, keepHouseEveryMs } = this.#options;
        this.#runBeside("count_activity", COUNT_ACTIVITY_EVERY_SWEEPS * sweepMs, startedAt, countActivity);
        this.#runBeside("keep_house", keepHouseEveryMs, startedAt, keepHouse);
      }
      await abortableDelay(this.#options.sweepMs - (performance.now() - startedAt), signal);
    }
  }

  async #promoteAll(): Promise<void> {
    const startedAt = performance.now();
    for (;;) {
      const promotion = await this.#try("promote", this.#options.promote);
      const isTimeUp = performance.now() - startedAt > SWEEP_MAX_MS;
      if (promotion === undefined || !promotion.isFull || isTimeUp) return;
    }
  }

  /** The steps of one sweep, for as long as there is something to do; we may not be the leader for longer. */
  async #stepAll(): Promise<void> {
    const everyMs = this.#options.sweepMs / PACED_STEPS_PER_SWEEP;
    for (let step = 1; ; step++) {
      const startedAt = performance.now();
      const replayed = (await this.#try("advance_replays", this.#options.advanceReplays)) ?? 0;
      const released = (await this.#try("advance_holds", this.#options.advanceHolds)) ?? 0;
      if (replayed + released === 0 || step === PACED_STEPS_PER_SWEEP || this.#stopping.signal.aborted)
        return;
      await abortableDelay(everyMs - (performance.now() - startedAt), this.#stopping.signal);
    }
  }

  async #sweepJobs(nowMs: number): Promise<void> {
    if (nowMs - this.#sweptJobsAt < SWEEP_JOBS_EVERY_MS) return;
    this.#sweptJobsAt = nowMs;
    await this.#try("sweep_jobs", this.#options.sweepJobs);
  }

  /** Work beside promoting, one of a kind at a time. */
  #runBeside(
    work: LeaderWork,
    everyMs: number,
    nowMs: number,
    does: (signal: AbortSignal) => Promise<void>,
  ): void {
    const { signal } = this.#stopping;
    const last = this.#slow.get(work);
    if (signal.aborted || (last !== undefined && (last.running !== null || nowMs - last.startedAt < everyMs)))
      return;
    const begun = { startedAt: nowMs, running: null as Promise<void> | null };
    begun.running = this.#try(work, () => does(signal)).then(() => {
      begun.running = null;
    });
    this.#slow.set(work, begun);
  }

  async #try<T>(work: LeaderWork, does: () => Promise<T>): Promise<T | undefined> {
    try {
      return await does();
    } catch (error) {
      this.#options.onError(work, error);
      return undefined;
    }
  }
}
