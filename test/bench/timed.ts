// A paced stream of numbered analyses, timed from COMMIT, or the request, to the first byte at the receiver.
import { setTimeout as wait } from "node:timers/promises";
import type { Bench } from "./bench.ts";
import { longestPauseMs, median, percentile } from "./figures.ts";
import type { AskedProcess } from "./processes/asking.ts";
import type { PacedWish, Published } from "./processes/publisher-process.ts";

const POLL_MS = 100;
/** After the last one was published, so long at most until the last one has come. */
const ARRIVE_WITHIN_MS = 60_000;

export type TimedWish = Omit<PacedWish, "isTimed"> & {
  readonly warmUpMs: number;
  readonly durationMs: number;
};

export type Timed = {
  readonly count: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** The median of the p99 of each second: what a machine that is away for a moment does not change. */
  readonly p99OfSecondMs: number;
  /** The p99 of the worst second. */
  readonly p99OfWorstSecondMs: number;
  readonly longestMs: number;
  /** In which nothing arrived, from when the first was sent to the last arrival. */
  readonly longestPauseMs: number;
  /** When each came to its receiver, on the clock that all processes share. */
  readonly firstBytesAtMs: Float64Array;
  /** The furthest that the publisher itself was behind its pace. */
  readonly publisherBehindMs: number;
};

/** The receivers must be timing. `meanwhile` is called when the warm-up is over. */
export async function timeStream(
  bench: Bench,
  publisher: AskedProcess,
  wish: TimedWish,
  meanwhile: () => Promise<void> = async () => undefined,
): Promise<Timed> {
  const { warmUpMs, durationMs, ...stream } = wish;
  await publisher.ask("publishPaced", { ...stream, isTimed: true });
  await wait(warmUpMs);
  const [first] = await Promise.all([publisher.ask<number>("timed"), meanwhile(), wait(durationMs)]);
  const { sentAtMs, behindMaxMs } = await publisher.ask<Published>("stop");
  const firstBytesAtMs = await untilArrived(bench, sentAtMs.length, first + 1);
  const timedSentAtMs = sentAtMs.slice(first + 1);
  const latencies = firstBytesAtMs.map((atMs, index) => atMs - (timedSentAtMs[index] ?? 0));
  const p99s = p99sBySecond(latencies, timedSentAtMs);
  return {
    count: latencies.length,
    p50Ms: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    p99OfSecondMs: median(p99s),
    p99OfWorstSecondMs: Math.max(...p99s),
    longestMs: percentile(latencies, 1 - Number.EPSILON),
    longestPauseMs: longestPauseMs(firstBytesAtMs, timedSentAtMs[0] ?? 0, latestOf(firstBytesAtMs)),
    firstBytesAtMs,
    publisherBehindMs: behindMaxMs,
  };
}

/** `Math.max` takes no more than some hundred thousand arguments. */
function latestOf(timesMs: Float64Array): number {
  return timesMs.reduce((latest, atMs) => Math.max(latest, atMs), Number.NEGATIVE_INFINITY);
}

function p99sBySecond(latencies: Float64Array, sentAtMs: Float64Array): number[] {
  const secondOf = (index: number) => Math.floor((sentAtMs[index] ?? 0) / 1_000);
  const bySecond = Map.groupBy(latencies.keys(), secondOf);
  return [...bySecond.values()].map((indexes) =>
    percentile(
      indexes.map((index) => latencies[index] ?? 0),
      0.99,
    ),
  );
}

/** Of the sequence numbers from `first` on. @throws Error when one has not come in time */
async function untilArrived(bench: Bench, count: number, first: number): Promise<Float64Array> {
  const giveUpAtMs = performance.now() + ARRIVE_WITHIN_MS;
  for (;;) {
    const firstBytesAtMs = (await bench.firstBytesAtMs(count)).slice(first);
    const missing = firstBytesAtMs.filter((atMs) => atMs === 0).length;
    if (missing === 0) return firstBytesAtMs;
    if (performance.now() > giveUpAtMs) throw new Error(`${missing} deliveries have not arrived.`);
    await wait(POLL_MS);
  }
}
