import { setTimeout as wait } from "node:timers/promises";
import { backoffMs } from "../base/model/backoff.ts";
import type { Recording } from "./record-sql.ts";

/** One statement's worth of recordings. */
const BATCH_MAX = 200;
/**
 * Nobody waits for a record, and a statement for one row costs as much as one for ten: with fewer than this waiting,
 * a batch is given GATHER_MS to grow.
 */
const BATCH_ENOUGH = 50;
const GATHER_MS = 10;
const RETRY_BACKOFF = { baseMs: 100, maxMs: 2_000 };

export type Recorded = "ours" | "taken_over" | "given_up";

export type RecorderOptions = {
  /** Writes a batch and returns the ids whose lease was still ours. Rejects when nothing of it was written. */
  readonly write: (recordings: readonly Recording[]) => Promise<ReadonlySet<string>>;
  /** What is written in one transaction: outcomes of different parts are written, tried again and settled apart. */
  readonly partOf: (recording: Recording) => string;
  /** True when the database refused the data itself, so that trying the same again is useless. */
  readonly isRefusedData: (error: unknown) => boolean;
  readonly onError: (error: unknown, attempts: number) => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

type Waiting = {
  recording: Recording;
  readonly giveUpAtMs: number;
  readonly settle: (recorded: Recorded) => void;
};

/**
 * Records outcomes in batches, one statement at a time. While the database is away it keeps them and retries, each
 * until its lease ends: after that another claim has recorded the attempt as interrupted.
 */
export class Recorder {
  readonly #options: RecorderOptions;
  #waiting: Waiting[] = [];
  #isWriting = false;
  #backlog = 0;

  constructor(options: RecorderOptions) {
    this.#options = options;
  }

  /** Outcomes that are not written yet. */
  get backlog(): number {
    return this.#backlog;
  }

  /** `giveUpAtMs`: when the lease ends, on the monotonic clock. Never rejects. */
  record(recording: Recording, giveUpAtMs: number): Promise<Recorded> {
    this.#backlog++;
    return new Promise((settle) => {
      this.#waiting.push({ recording, giveUpAtMs, settle });
      if (!this.#isWriting) void this.#writeAll();
    });
  }

  async #writeAll(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      if (this.#waiting.length < BATCH_ENOUGH) await wait(GATHER_MS);
      const batch = this.#waiting.splice(0, BATCH_MAX);
      const parts = Map.groupBy(batch, ({ recording }) => this.#options.partOf(recording));
      for (const part of parts.values()) await this.#write(part);
    }
    this.#isWriting = false;
  }

  async #write(batch: readonly Waiting[]): Promise<void> {
    for (let attempts = 1; ; attempts++) {
      const live = batch.filter((waiting) => waiting.giveUpAtMs > performance.now());
      for (const waiting of batch) if (!live.includes(waiting)) this.#settle(waiting, "given_up");
      if (live.length === 0) return;
      batch = live;
      try {
        const ours = await this.#options.write(batch.map((waiting) => waiting.recording));
        for (const waiting of batch) {
          this.#settle(waiting, ours.has(waiting.recording.deliveryId) ? "ours" : "taken_over");
        }
        return;
      } catch (error) {
        this.#options.onError(error, attempts);
        if (this.#options.isRefusedData(error)) return await this.#writeHalves(batch);
        await wait(backoffMs(attempts - 1, RETRY_BACKOFF, this.#options.random()));
      }
    }
  }

  /** One receiver's text must not keep its neighbours from the log: halve the batch to find it, then leave it out. */
  async #writeHalves(batch: readonly Waiting[]): Promise<void> {
    if (batch.length > 1) {
      const middle = batch.length >> 1;
      await this.#write(batch.slice(0, middle));
      await this.#write(batch.slice(middle));
      return;
    }
    const [waiting] = batch;
    if (waiting === undefined) return;
    const { attempt } = waiting.recording;
    if (attempt === null || attempt.responseExcerpt === UNRECORDABLE)
      return this.#settle(waiting, "given_up");
    const errorCode = attempt.errorCode === null ? null : "unrecordable_answer";
    waiting.recording = {
      ...waiting.recording,
      attempt: { ...attempt, errorCode, responseHeaders: null, responseExcerpt: UNRECORDABLE },
    };
    await this.#write(batch);
  }

  #settle(waiting: Waiting, recorded: Recorded): void {
    this.#backlog--;
    waiting.settle(recorded);
  }
}

const UNRECORDABLE = "(the answer's text could not be stored)";
