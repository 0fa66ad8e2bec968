import { setTimeout as wait } from "node:timers/promises";
import { abortableDelay } from "../schedule/backoff.ts";

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
/**
 * Bulk replays and what was held go on in small steps: what a whole second brings at once, everybody else's deliveries
 * would notice.
 */
export const PACED_STEPS_PER_SWEEP = 5;

export type LeaderOptions = {
  readonly sweepMs: number;
  readonly holder: string;
  readonly lead: (holder: string, leaseMs: number) => Promise<boolean>;
  /** Wakes what is due; isFull: there was more than one step takes. */
  readonly promote: () => Promise<{ readonly woken: number; readonly isFull: boolean }>;
  /** One paced step of the bulk replays: beside promoting, which nothing may hold up; single-flight. */
  readonly advanceReplays: () => Promise<number>;
  /** One paced step of what is held; after each of the replays'. */
  readonly advanceHolds: () => Promise<number>;
  readonly sweepJobs: () => Promise<number>;
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
  | "keep_house";

/** Every dispatcher runs one; at any time one of them holds the lease, and promotes and keeps house for all. */
export class Leader {
  readonly #options: LeaderOptions;
  readonly #stopping = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #goingOn: Promise<void> | null = null;
  #house: Promise<void> | null = null;
  #sweptJobsAt = Number.NEGATIVE_INFINITY;
  #keptHouseAt = Number.NEGATIVE_INFINITY;

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
    await this.#goingOn;
    await this.#house;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const startedAt = performance.now();
      if (await this.#try("lead", () => this.#options.lead(this.#options.holder, LEADER_LEASE_MS))) {
        await this.#promoteAll();
        this.#goOn();
        await this.#sweepJobs(startedAt);
        this.#keepHouse(startedAt);
      }
      const leftMs = this.#options.sweepMs - (performance.now() - startedAt);
      await wait(Math.max(leftMs, 0), null, { signal }).catch(() => undefined);
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

  #goOn(): void {
    if (this.#stopping.signal.aborted) return;
    this.#goingOn ??= this.#stepAll().then(() => {
      this.#goingOn = null;
    });
  }

  /** The steps of one sweep, for as long as there is something to do; we may not be the leader for longer. */
  async #stepAll(): Promise<void> {
    const everyMs = this.#options.sweepMs / PACED_STEPS_PER_SWEEP;
    for (let step = 1; ; step++) {
      const startedAt = performance.now();
      const replayed = (await this.#try("advance_replays", this.#options.advanceReplays)) ?? 0;
      const letGo = (await this.#try("advance_holds", this.#options.advanceHolds)) ?? 0;
      if (replayed + letGo === 0 || step === PACED_STEPS_PER_SWEEP || this.#stopping.signal.aborted) return;
      await abortableDelay(everyMs - (performance.now() - startedAt), this.#stopping.signal);
    }
  }

  async #sweepJobs(nowMs: number): Promise<void> {
    if (nowMs - this.#sweptJobsAt < SWEEP_JOBS_EVERY_MS) return;
    this.#sweptJobsAt = nowMs;
    await this.#try("sweep_jobs", this.#options.sweepJobs);
  }

  #keepHouse(nowMs: number): void {
    if (this.#stopping.signal.aborted || this.#house !== null) return;
    if (nowMs - this.#keptHouseAt < this.#options.keepHouseEveryMs) return;
    this.#keptHouseAt = nowMs;
    this.#house = this.#try("keep_house", () => this.#options.keepHouse(this.#stopping.signal)).then(() => {
      this.#house = null;
    });
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
