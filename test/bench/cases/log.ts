import type pg from "pg";
import { readingFrom } from "../../../src/base/database/log-reader.ts";
import { createApiPool, readingLog } from "../../../src/base/database/pools.ts";
import { wholeAccount } from "../../../src/base/model/reader.ts";
import { findDelivery } from "../../../src/log/deliveries-sql.ts";
import type { DeliveryFilter } from "../../../src/log/delivery-filter-api.ts";
import { createListDeliveries, type ListDeliveries } from "../../../src/log/delivery-pages-sql.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, percentile } from "../figures.ts";
import { seedLog } from "../seeding.ts";
import { timeStream } from "../timed.ts";

const DELIVERIES = 2_000_000;
const DAYS = 20;
const DELIVERED_PER_SECOND = 900;
const BATCH = 10;
const WARM_UP_MS = 2_000;
const DURATION_MS = 30_000;
const PAGE_ROWS = 50;
const GOAL_PAGE_MS = 20;
/** Without an index for it: it walks the account's log until the page is full. */
const GOAL_TARGET_HOST_MS = 25;
/** A first page looks at no more rows than its total does, so that it shows what the dearest total costs. */
const GOAL_TOTAL_MS = 50;

const FILTERS: Readonly<Record<string, Partial<DeliveryFilter>>> = {
  "no filter": {},
  "status failed": { status: ["failed"] },
  "status abandoned": { status: ["abandoned"] },
  "status succeeded": { status: ["succeeded"] },
  "needs attention": { status: ["failed", "abandoned"] },
  reason: { reason: ["attempts_exhausted"] },
  event: { event: "analysis.failed" },
  "target host": { target_host: "h7.example.com" },
  "error code": { error_code: "connect_timeout" },
  "status code": { status_code: 503 },
};

export const log: BenchCase<Bench> = {
  name: "log",
  says:
    "2,000,000 deliveries of 20 days in the log, a fifth of them one account's, while 900 a second are delivered: " +
    "a page of 50 by each filter, the page behind it, one delivery with its attempts, one found by its analysis's id.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const [largeAccountId = ""] = bench.server.accountIds;
    await seedLog(database.pool, bench.server.accountIds, {
      firstDaysAgo: 1,
      days: DAYS,
      deliveries: DELIVERIES * bench.scale,
      largeAccountId,
      body: null,
    });
    tell("the log is filled");
    const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 256 });
    const publisher = bench.startPublisher(database);
    await bench.behave({ isTiming: true });
    let figures: Figure[] = [];
    const timed = await timeStream(
      bench,
      publisher,
      {
        accountIds: bench.server.accountIds,
        perSecond: DELIVERED_PER_SECOND,
        batch: BATCH,
        warmUpMs: WARM_UP_MS,
        durationMs: DURATION_MS * bench.scale,
      },
      async () => {
        figures = await readLog(bench, database, Math.max(5_000, DURATION_MS * bench.scale));
      },
    );
    await publisher.stop();
    await dispatcher.kill();
    await database.drop();
    return [...figures, { name: "deliveries meanwhile: p99", value: timed.p99Ms, unit: "ms" }];
  },
};

/** Two readers, each asking all questions in turn, half of them about the large account. */
async function readLog(bench: Bench, database: BenchDatabase, durationMs: number): Promise<Figure[]> {
  const connections = createApiPool({
    databaseUrl: database.url,
    connectionsMax: 2,
    applicationName: "bench",
    onError: () => undefined,
  });
  const pool = readingLog(connections);
  const reads: Reads = {
    pool,
    listDeliveries: createListDeliveries(readingFrom(pool), () => performance.now()),
  };
  const tookMs = new Map<string, number[]>();
  const time = async <Result>(name: string, ask: () => Promise<Result>): Promise<Result> => {
    const startedAtMs = performance.now();
    const result = await ask();
    const times = tookMs.get(name) ?? [];
    tookMs.set(name, times);
    times.push(performance.now() - startedAtMs);
    return result;
  };
  // Each question is asked on each connection before it counts: its statement is prepared then.
  const ask = async <Result>(_name: string, question: () => Promise<Result>) => await question();
  await Promise.all([1, 2].map(() => readOnce(reads, bench.server.accountIds[0] ?? "", ask)));
  const endsAtMs = performance.now() + durationMs;
  const read = async (reader: number) => {
    for (let turn = reader; performance.now() < endsAtMs; turn += 2) {
      const index = turn % 4 < 2 ? 0 : turn % bench.server.accountIds.length;
      await readOnce(reads, bench.server.accountIds[index] ?? "", time);
    }
  };
  await Promise.all([read(0), read(1)]);
  await connections.end();

  const pages = [...tookMs].filter(([name]) => name.startsWith("page"));
  const all = pages.flatMap(([, times]) => times);
  const firstPages = pages.filter(([name]) => name.startsWith("page,"));
  const dearest = Math.max(...firstPages.map(([, times]) => percentile(times, 0.99)));
  const unit = "ms";
  return [
    { name: "all pages: p50", value: percentile(all, 0.5), unit },
    { name: "all pages: p99", value: percentile(all, 0.99), unit, goal: { atMost: GOAL_PAGE_MS } },
    ...[...tookMs].map(([name, times]) => {
      const figure = { name: `${name}: p99`, value: percentile(times, 0.99), unit };
      return name.endsWith("target host") ? { ...figure, goal: { atMost: GOAL_TARGET_HOST_MS } } : figure;
    }),
    { name: "the dearest total, with its page: p99", value: dearest, unit, goal: { atMost: GOAL_TOTAL_MS } },
  ];
}

type Reads = { readonly pool: pg.Pool; readonly listDeliveries: ListDeliveries };

async function readOnce(
  { pool, listDeliveries }: Reads,
  accountId: string,
  time: <Result>(name: string, ask: () => Promise<Result>) => Promise<Result>,
): Promise<void> {
  let seen: { id: string; analysis_id: string } | undefined;
  for (const [name, filter] of Object.entries(FILTERS)) {
    const wanted = filter;
    const page = await time(`page, ${name}`, () =>
      listDeliveries(wholeAccount(accountId), wanted, null, PAGE_ROWS),
    );
    const below = page.next;
    if (below === null) continue;
    await time(`page behind it, ${name}`, () =>
      listDeliveries(wholeAccount(accountId), wanted, below, PAGE_ROWS),
    );
    seen = page.items.at(-1) ?? seen;
  }
  if (seen === undefined) return;
  const { id, analysis_id } = seen;
  await time("one delivery", () => findDelivery(pool, wholeAccount(accountId), id));
  await time("page, analysis id", () =>
    listDeliveries(wholeAccount(accountId), { analysis_id }, null, PAGE_ROWS),
  );
}
