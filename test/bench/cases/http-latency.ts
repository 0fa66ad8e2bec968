import { measureFlushes, REQUESTS_IN_FLIGHT } from "../baselines.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, percentile } from "../figures.ts";
import { warmUp } from "../flat-out.ts";
import { withApi } from "../installation.ts";
import { type Timed, timeStream } from "../timed.ts";

const WARM_UP = 2_000;
const PER_SECOND = { calm: 100, busy: 450 };
const STREAM_WARM_UP_MS = 1_000;
const DURATION_MS = 10_000;

export const httpLatency: BenchCase<Bench> = {
  name: "http-latency",
  says:
    "From sending POST /v1/analyses to the first byte at the receiver, one account with one endpoint, 100 and then " +
    `450 a second whether or not they are answered; beside the commit of one row on an idle connection.`,
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const flushesBefore = await measureFlushes(database, bench.scale);
    const { calm, busy } = await timeBoth(bench, database, tell);
    const flushes = [...flushesBefore, ...(await measureFlushes(database, bench.scale))];
    await database.drop();
    const flushMs = percentile(flushes, 0.5);
    const calmGoalMs = 2 * flushMs + 2.5;
    return [
      { name: "flush: p50", value: flushMs, unit: "ms" },
      { name: "flush: p99", value: percentile(flushes, 0.99), unit: "ms" },
      ...figuresOf(PER_SECOND.calm, calm, calmGoalMs, 3 * calmGoalMs),
      ...figuresOf(PER_SECOND.busy, busy, 1.3 * calm.p50Ms, 2 * calm.p99Ms),
    ];
  },
};

async function timeBoth(
  bench: Bench,
  database: BenchDatabase,
  tell: (line: string) => void,
): Promise<{ readonly calm: Timed; readonly busy: Timed }> {
  const accountIds = bench.server.accountIds.slice(0, 1);
  return await withApi(bench, database, accountIds, tell, async ({ publisher, http }) => {
    const stream = { accountIds, batch: 1, via: http };
    const warming = { ...stream, clients: REQUESTS_IN_FLIGHT, total: null };
    await warmUp(bench, publisher, database, [warming], WARM_UP * bench.scale);
    const timeAt = (perSecond: number) =>
      timeStream(bench, publisher, {
        ...stream,
        perSecond,
        warmUpMs: STREAM_WARM_UP_MS * bench.scale,
        durationMs: DURATION_MS * bench.scale,
      });
    return { calm: await timeAt(PER_SECOND.calm), busy: await timeAt(PER_SECOND.busy) };
  });
}

function figuresOf(perSecond: number, timed: Timed, p50GoalMs: number, p99GoalMs: number): Figure[] {
  const unit = "ms";
  return [
    { name: `${perSecond}/s: p50`, value: timed.p50Ms, unit, goal: { atMost: p50GoalMs } },
    { name: `${perSecond}/s: p99`, value: timed.p99Ms, unit, goal: { atMost: p99GoalMs } },
    { name: `${perSecond}/s: p99 of the median second`, value: timed.p99OfSecondMs, unit },
    { name: `${perSecond}/s: longest`, value: timed.longestMs, unit },
    { name: `${perSecond}/s: publisher behind its pace`, value: timed.publisherBehindMs, unit: "ms at most" },
  ];
}
