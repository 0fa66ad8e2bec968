import { setTimeout as wait } from "node:timers/promises";
import { pino } from "pino";
import { keepHouse } from "../../../src/app/housekeeping.ts";
import { createGeneralPool } from "../../../src/base/database/pools.ts";
import { DAY_MS } from "../../../src/base/model/time.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, longestPauseMs } from "../figures.ts";
import { sharedClockMs } from "../processes/answering.ts";
import { seedLog } from "../seeding.ts";
import { timeStream } from "../timed.ts";

const DELIVERIES = 1_000_000;
const DAYS_AGO = 40;
const PER_SECOND = 500;
const WARM_UP_MS = 3_000;
/** Delivering before the day goes, for comparison. */
const BEFORE_MS = 10_000;

export const retention: BenchCase<Bench> = {
  name: "retention",
  says:
    "A day of 1,000,000 deliveries, their attempts, bodies and analyses is dropped while 500 a second are delivered: " +
    "the longest time in which nothing arrived, before and while it was dropped.",
  run: async (bench) => {
    const database = await bench.server.createDatabase();
    // Started first: its own housekeeping, at its start, finds nothing to drop.
    const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 256 });
    await seedLog(database.pool, bench.server.accountIds, {
      firstDaysAgo: DAYS_AGO,
      days: 1,
      deliveries: DELIVERIES * bench.scale,
      largeAccountId: bench.server.accountIds[0] ?? "",
      body: '{"id":"seeded","status":"succeeded"}',
    });
    const publisher = bench.startPublisher(database);
    await bench.behave({ isTiming: true });
    let moments = { begun: 0, ended: 0 };
    const { firstBytesAtMs } = await timeStream(
      bench,
      publisher,
      {
        accountIds: bench.server.accountIds,
        perSecond: PER_SECOND,
        batch: 1,
        warmUpMs: WARM_UP_MS,
        durationMs: BEFORE_MS,
      },
      async () => {
        await wait(BEFORE_MS);
        moments = await dropOldDays(database);
      },
    );
    await publisher.stop();
    await dispatcher.kill();
    await database.drop();
    const firstAtMs = Math.min(...firstBytesAtMs);
    return [
      {
        name: "longest pause before",
        value: longestPauseMs(firstBytesAtMs, firstAtMs, moments.begun),
        unit: "ms",
      },
      {
        name: "longest pause while it is dropped",
        value: longestPauseMs(firstBytesAtMs, moments.begun, moments.ended),
        unit: "ms",
      },
      { name: "dropping took", value: (moments.ended - moments.begun) / 1000, unit: "s" },
    ];
  },
};

async function dropOldDays(database: BenchDatabase): Promise<{ begun: number; ended: number }> {
  const pool = createGeneralPool({
    databaseUrl: database.url,
    connectionsMax: 2,
    applicationName: "bench",
    onError: () => undefined,
  });
  const lines: { msg: string; partition: string }[] = [];
  const begun = sharedClockMs();
  await keepHouse(pool, {
    retention: {
      analysisRetentionMs: 7 * DAY_MS,
      logRetentionMs: 30 * DAY_MS,
      auditRetentionMs: 365 * DAY_MS,
      idempotencyRetentionMs: DAY_MS,
    },
    at: null,
    signal: new AbortController().signal,
    log: pino({}, { write: (line) => lines.push(JSON.parse(line)) }),
  });
  const ended = sharedClockMs();
  await pool.end();
  const told = Map.groupBy(lines, ({ msg }) => msg);
  const dropped = (told.get("dropped a partition") ?? []).map(({ partition }) => partition);
  const days = new Set(dropped.map((name) => name.slice(-8)));
  if (
    days.size !== 1 ||
    !["deliveries", "attempts", "bodies"].every((name) => dropped.some((one) => one.startsWith(name)))
  )
    throw new Error(`Dropped ${dropped.join(", ")}, and not the partitions of one day.`);
  return { begun, ended };
}
