import { setTimeout as wait } from "node:timers/promises";
import { isRefusedData } from "../base/database/pools.ts";
import { backoffMs } from "../base/model/backoff.ts";
import type { Recording } from "./record-sql.ts";

/** One statement's worth of recordings. */
const BATCH_MAX = 200;
/** Nobody waits for a record, and one row costs as much as ten: fewer than this are given GATHER_MS to grow. */
const BATCH_ENOUGH = 50;
const GATHER_MS = 10;
const RETRY_BACKOFF = { baseMs: 100, maxMs: 2_000 };

export type Recorded = "ours" | "taken_over" | "given_up";

export type RecorderOptions = {
  /** Writes a batch and returns the ids whose lease was still ours. Rejects when nothing of it was written. */
  readonly write: (recordings: readonly Recording[]) => Promise<ReadonlySet<string>>;
  /** What is written in one transaction: outcomes of different parts are written, tried again and settled apart. */
  readonly partOf: (recording: Recording) => string;
  readonly onError: (error: unknown) => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

type Waiting = {
  recording: Recording;
  readonly giveUpAtMs: number;
  readonly settle: (recorded: Recorded) => void;
};

export type Recorder = ReturnType<typeof createRecorder>;

/**
 * Records outcomes in batches, one statement at a time. While the database is away it keeps them and retries, each
 * until its lease ends: after that another claim has recorded the attempt as interrupted.
 */
export function createRecorder({ write, partOf, onError, random }: RecorderOptions) {
  const waiting: Waiting[] = [];
  let isWriting = false;
  let backlog = 0;

  async function writeAll(): Promise<void> {
    isWriting = true;
    while (waiting.length > 0) {
      if (waiting.length < BATCH_ENOUGH) await wait(GATHER_MS);
      const parts = Map.groupBy(waiting.splice(0, BATCH_MAX), ({ recording }) => partOf(recording));
      for (const part of parts.values()) await writePart(part);
    }
    isWriting = false;
  }

  async function writePart(batch: readonly Waiting[]): Promise<void> {
    for (let attempts = 1; ; attempts++) {
      const live = batch.filter(({ giveUpAtMs }) => giveUpAtMs > performance.now());
      for (const one of batch) if (!live.includes(one)) settle(one, "given_up");
      if (live.length === 0) return;
      batch = live;
      try {
        const ours = await write(batch.map(({ recording }) => recording));
        for (const one of batch) settle(one, ours.has(one.recording.deliveryId) ? "ours" : "taken_over");
        return;
      } catch (error) {
        onError(error);
        // Trying the same again would be useless.
        if (isRefusedData(error)) return await writeHalves(batch);
        await wait(backoffMs(attempts - 1, RETRY_BACKOFF, random()));
      }
    }
  }

  /** One receiver's text must not keep its neighbours from the log: halve the batch to find it, then leave it out. */
  async function writeHalves(batch: readonly Waiting[]): Promise<void> {
    if (batch.length > 1) {
      const middle = batch.length >> 1;
      await writePart(batch.slice(0, middle));
      await writePart(batch.slice(middle));
      return;
    }
    const one = batch[0]!;
    const { attempt } = one.recording;
    if (attempt === null || attempt.responseExcerpt === UNRECORDABLE) return settle(one, "given_up");
    const errorCode = attempt.errorCode === null ? null : "unrecordable_answer";
    one.recording = {
      ...one.recording,
      attempt: { ...attempt, errorCode, responseHeaders: null, responseExcerpt: UNRECORDABLE },
    };
    await writePart(batch);
  }

  function settle(one: Waiting, recorded: Recorded): void {
    backlog--;
    one.settle(recorded);
  }

  return {
    /** Outcomes that are not written yet. */
    get backlog(): number {
      return backlog;
    },
    /** `giveUpAtMs`: when the lease ends, on the monotonic clock. Never rejects. */
    record(recording: Recording, giveUpAtMs: number): Promise<Recorded> {
      backlog++;
      return new Promise((settle) => {
        waiting.push({ recording, giveUpAtMs, settle });
        if (!isWriting) void writeAll();
      });
    },
  };
}

const UNRECORDABLE = "(the answer's text could not be stored)";
