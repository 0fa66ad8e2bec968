import { setTimeout as wait } from "node:timers/promises";
import { Pool } from "undici";
import type { SealpostProcess } from "../../support/sealpost-process.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, formatNumber, median } from "../figures.ts";
import { createKeys } from "../keys.ts";
import { cpuMicroseconds } from "../measuring/processes.ts";
import { cpuBetween, takeSnapshot } from "../measuring/snapshot.ts";
import type { AskedProcess } from "../processes/asking.ts";
import type { Published } from "../processes/publisher-process.ts";

/** With the feed and without it in turn, each pair in the other order than the one before. */
const PAIRS = 6;
const WARM_UP_MS = 1_500;
const DURATION_MS = 3_000;
const CONNECTIONS = 8;
const READERS = 1_000;
/** One address may have 500 connections. */
const READERS_OF_ADDRESS = 250;
/** As the receiver library asks. */
const WAIT_SECONDS = 25;
/** Each reader waits twice. */
const READ_MS = 2 * WAIT_SECONDS * 1_000;
const IDLE_MS = 15_000;

/** Publishing costs what it did before there was a feed: no serial is given, and no index is kept of them. */
const WITHOUT_FEED = `
alter table sealpost.bodies alter column serial drop default;
drop index sealpost.bodies_serial`;

export const feed: BenchCase<Bench> = {
  name: "feed",
  says:
    "What the feed costs: publish_analysis, one a transaction, by 8 connections, in turn with the feed and in a " +
    "database without one; then 1,000 readers at its end, who wait for 25 s each time while nothing is published.",
  run: async (bench, tell) => {
    const shares = await comparePublishing(bench, tell);
    return [...shares, ...(await measureReaders(bench, tell))];
  },
};

/** CPU of the publisher's sessions in PostgreSQL for one analysis, beside a `serve` that sequences what there is. */
async function comparePublishing(bench: Bench, tell: (line: string) => void): Promise<readonly Figure[]> {
  const sides = await Promise.all([openSide(bench, true), openSide(bench, false)]);
  const [on, off] = sides;
  for (const side of sides) await publishFor(side, Math.max(300, WARM_UP_MS * bench.scale));
  const shares: number[] = [];
  const costs = new Map(sides.map((side) => [side, [] as number[]]));
  for (let pair = 0; pair < PAIRS; pair++) {
    for (const side of pair % 2 === 0 ? [off, on] : [on, off])
      costs.get(side)!.push(await costOf(bench, side));
    const [withFeed = Number.NaN, without = Number.NaN] = sides.map((side) => costs.get(side)!.at(-1));
    shares.push(withFeed / without);
    tell(`with the feed ${formatNumber(withFeed)} µs, without ${formatNumber(without)} µs`);
  }
  for (const side of sides) await side.close();
  return [
    { name: "CPU of publishing, with the feed", value: median(costs.get(on)!), unit: "µs per analysis" },
    { name: "CPU of publishing, without", value: median(costs.get(off)!), unit: "µs per analysis" },
    { name: "with ÷ without, median of pairs", value: median(shares), unit: "", goal: { atMost: 1.03 } },
  ];
}

type Side = {
  readonly database: BenchDatabase;
  readonly publisher: AskedProcess;
  readonly accountIds: readonly string[];
  close(): Promise<void>;
};

async function openSide(bench: Bench, hasFeed: boolean): Promise<Side> {
  const database = await bench.server.createDatabase();
  if (!hasFeed) await database.pool.query(WITHOUT_FEED);
  const api = await bench.startApi(database);
  const publisher = bench.startPublisher(database);
  return {
    database,
    publisher,
    accountIds: bench.server.accountIds.slice(0, 1),
    close: async () => {
      await publisher.stop();
      await api.stop();
      await database.drop();
    },
  };
}

async function publishFor({ publisher, accountIds }: Side, durationMs: number): Promise<Published> {
  const aheadMax = Number.MAX_SAFE_INTEGER;
  const wish = { accountIds, batch: 1, clients: CONNECTIONS, aheadMax, total: null };
  await publisher.ask("publishAhead", wish);
  await wait(durationMs);
  return await publisher.ask<Published>("stop");
}

async function costOf(bench: Bench, side: Side): Promise<number> {
  const { database, publisher } = side;
  const watched = {
    database,
    dispatcherPids: [],
    receiverPid: bench.receiverPid,
    publisherPid: publisher.pid,
  };
  const count = async () => (await database.pool.query(PUBLISHED)).rows[0].n as number;
  const [first, before] = [await count(), await takeSnapshot(watched)];
  await publishFor(side, Math.max(300, DURATION_MS * bench.scale));
  const cpu = cpuBetween(before, await takeSnapshot(watched), (await count()) - first);
  return cpu.get("PostgreSQL: publisher") ?? Number.NaN;
}

const PUBLISHED = "/* bench */ select count(*)::integer as n from sealpost.analyses";

async function measureReaders(bench: Bench, tell: (line: string) => void): Promise<readonly Figure[]> {
  const database = await bench.server.createDatabase();
  const accountIds = bench.server.accountIds.slice(0, READERS);
  const apiKeys = await createKeys(database, accountIds);
  const api = await bench.startApi(database);
  const readMs = Math.max(1_000, READ_MS * bench.scale);
  const idle = await shareOfCore(api, () => wait(Math.max(1_000, IDLE_MS * bench.scale)));

  const connections = Array.from({ length: READERS / READERS_OF_ADDRESS }, (_, n) => {
    return new Pool(api.url, { connections: READERS_OF_ADDRESS, localAddress: `127.0.0.${n + 1}` });
  });
  let isEnding = false;
  let answers = 0;
  const read = async (reader: number, apiKey: string, cursor: string) => {
    const path = `/v1/webhooks/events?wait=${WAIT_SECONDS}&cursor=${cursor}`;
    const headers = { authorization: `Bearer ${apiKey}` };
    const from = connections[reader % connections.length]!;
    const { statusCode, body } = await from.request({ path, method: "GET", headers });
    const page = (await body.json()) as { next_cursor: string };
    if (statusCode !== 200) throw new Error(`${path}: ${statusCode} ${JSON.stringify(page)}`);
    return page.next_cursor;
  };
  // Everybody is there before time counts; each then asks again whenever the wait is over.
  const cursors = await Promise.all(
    [...apiKeys.values()].map(async (key, n) => [key, await read(n, key, "newest")] as const),
  );
  const reading = cursors.map(async ([key, first], n) => {
    for (let cursor = first; !isEnding; answers++) cursor = await read(n, key, cursor);
  });
  const statements = await countReads(database);
  const busy = await shareOfCore(api, () => wait(readMs));
  const readsPerWait = ((await countReads(database)) - statements) / (answers + READERS);
  tell(`${answers} answers to ${READERS} readers in ${readMs / 1_000} s`);
  isEnding = true;
  await Promise.all(reading);
  await Promise.all(connections.map((each) => each.close()));
  await api.stop();
  await database.drop();
  return [
    { name: "CPU of serve, nobody reads", value: 100 * idle, unit: "% of a core" },
    {
      name: `CPU of serve, ${READERS.toLocaleString("en")} readers wait`,
      value: 100 * busy,
      unit: "% of a core",
      goal: { atMost: 10 },
    },
    { name: "statements for a wait", value: readsPerWait, unit: "", goal: { atMost: 1 } },
  ];
}

async function shareOfCore({ pid }: SealpostProcess, work: () => Promise<void>): Promise<number> {
  const [before, startedAtMs] = [cpuMicroseconds(pid), performance.now()];
  await work();
  return (cpuMicroseconds(pid) - before) / 1_000 / (performance.now() - startedAtMs);
}

/** How often somebody's place in the feed was looked for; NaN where statements are not counted. */
async function countReads({ pool, countsStatements }: BenchDatabase): Promise<number> {
  if (!countsStatements) return Number.NaN;
  const { rows } = await pool.query<{ calls: number }>(`
/* bench */ select coalesce(sum(calls), 0)::float8 as calls from pg_stat_statements
where dbid = (select oid from pg_database where datname = current_database())
  and query like '%from sealpost.feed%' and query like '%as places%'`);
  const { calls } = rows[0]!;
  if (calls === 0)
    throw new Error("no statement that reads the feed was found among those that were counted");
  return calls;
}
