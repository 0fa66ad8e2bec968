// What the machine and its PostgreSQL can do at all, measured right beside what is compared with it.
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import type { Bench } from "./bench.ts";
import type { BenchDatabase } from "./database.ts";
import { createKeys } from "./keys.ts";
import type { AskedProcess } from "./processes/asking.ts";
import type { BareFastify } from "./processes/bare-fastify-process.ts";
import { plainInsert, type Via } from "./processes/publish-calls.ts";
import type { Published } from "./processes/publisher-process.ts";

const WARM_UP_MS = 1_000;
const DURATION_MS = 3_000;
const CONNECTIONS = 24;
export const REQUESTS_IN_FLIGHT = 64;
const FLUSHES = 400;
/** A disk that is written to without a pause is another than one that is written to now and then. */
const FLUSH_EVERY_MS = 5;

export type Baseline = {
  readonly perSecond: number;
  /** In which nothing was answered. */
  readonly longestGapMs: number;
};

/** The text of an analysis goes into a plain table with a primary key, one row a transaction, by 24 connections. */
export async function measurePlainInsert(bench: Bench, database: BenchDatabase): Promise<Baseline> {
  const publisher = bench.startPublisher(database);
  const baseline = await measure(bench, publisher, { kind: "insert" }, CONNECTIONS);
  await publisher.stop();
  return baseline;
}

/** A fastify that does nothing but insert the analysis of each request into that table, 64 requests in flight. */
export async function measureBareFastify(bench: Bench, database: BenchDatabase): Promise<Baseline> {
  const service = bench.startBareFastify(database);
  const publisher = bench.startPublisher(database);
  const { url } = await service.ask<BareFastify>("address");
  const apiKeys = await createKeys(database, bench.server.accountIds.slice(0, 1));
  const baseline = await measure(
    bench,
    publisher,
    { kind: "http", url, apiKeys, whenLimited: "repeated" },
    REQUESTS_IN_FLIGHT,
  );
  await publisher.stop();
  await service.stop();
  return baseline;
}

async function measure(bench: Bench, publisher: AskedProcess, via: Via, clients: number): Promise<Baseline> {
  const accountIds = bench.server.accountIds.slice(0, 1);
  const aheadMax = Number.MAX_SAFE_INTEGER;
  for (const durationMs of [WARM_UP_MS, DURATION_MS]) {
    await publisher.ask("publishAhead", { accountIds, batch: 1, clients, aheadMax, total: null, via });
    await wait(Math.max(300, durationMs * bench.scale));
    const { perSecond, longestGapMs } = await publisher.ask<Published>("stop");
    if (durationMs === DURATION_MS) return { perSecond, longestGapMs };
  }
  throw new Error("Nothing was measured.");
}

/** Right before `work` and right after: the mean rate, and the longest gap of both. */
export async function amidBaseline<Result>(
  measureOnce: () => Promise<Baseline>,
  work: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly baseline: Baseline }> {
  const before = await measureOnce();
  const result = await work();
  const after = await measureOnce();
  return {
    result,
    baseline: {
      perSecond: (before.perSecond + after.perSecond) / 2,
      longestGapMs: Math.max(before.longestGapMs, after.longestGapMs),
    },
  };
}

/** How long the commit of a one-row insert takes on one connection of an idle server, one every 5 ms. Milliseconds. */
export async function measureFlushes({ pool }: BenchDatabase, scale: number): Promise<number[]> {
  const client = await pool.connect();
  const tookMs: number[] = [];
  for (let n = 0; n < Math.max(100, FLUSHES * scale); n++) {
    const startedAtMs = performance.now();
    await client.query(plainInsert(randomUUID(), "flush"));
    tookMs.push(performance.now() - startedAtMs);
    await wait(FLUSH_EVERY_MS);
  }
  client.release();
  // The first one plans the statement.
  return tookMs.slice(1);
}
