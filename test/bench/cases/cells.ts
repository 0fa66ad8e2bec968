import { availableParallelism } from "node:os";
import { type RunningHaproxy, startHaproxy } from "../../support/haproxy.ts";
import { findProgram } from "../../support/programs.ts";
import type { Bench } from "../bench.ts";
import { type BenchCell, keysMapOf, startCell } from "../cell.ts";
import type { BenchDatabase } from "../database.ts";
import type { BenchCase, Figure } from "../figures.ts";
import { type FlatOut, type FlatOutWish, publishWatched, warmUp } from "../flat-out.ts";
import { startOn } from "../measuring/cores.ts";
import { cpuMicroseconds } from "../measuring/processes.ts";
import { startAsked } from "../processes/asking.ts";
import type { HashWish } from "../processes/hashing-process.ts";

/** Where the one cell is, round by round. */
const CORES_OF_ROUNDS = [0, 1, 0, 1] as const;
const NAMES = ["c1", "c2"] as const;
/** Of each cell, with an endpoint each. */
const ACCOUNTS = 50;
const REQUESTS_IN_FLIGHT = 64;
const HTTP_MS = 8_000;
const HTTP_WARM_UP = 1_500;
const BATCH = 50;
const BATCH_CLIENTS = 4;
const BATCHED = 15_000;
const BATCHED_WARM_UP = 3_000;
const HASHING_MS = 1_500;
const SERVICE = ["serve", "dispatcher", "PostgreSQL"] as const;

export const cells: BenchCase<Bench> = {
  name: "cells",
  says:
    "A cell behind HAProxy on a core and a data folder of its own, with its proxy, publisher and receiver on that " +
    "core, too: one cell on each of the two cores in turn, and two at once, four times. Over HTTP with 64 requests " +
    "in flight for 8 s, then batches of 50 by SQL, each until the last has arrived.",
  run: async (bench, tell) => {
    const haproxy = requireMeans();
    const machine = await hashOnBoth(bench);
    // In turn, and one cell on either core: the machine is not the same for long, nor are its cores.
    const ones: Found[] = [];
    const twos: Found[] = [];
    for (const core of CORES_OF_ROUNDS) {
      if (bench.cellCounts.includes(1)) ones.push(await measure(bench, haproxy, [core], tell));
      if (bench.cellCounts.includes(2)) twos.push(await measure(bench, haproxy, [0, 1], tell));
    }
    return [
      { name: "hashing alone: both cores ÷ one", value: machine, unit: "" },
      ...(["http", "batches"] as const).flatMap((way) => figuresOf(way, ones, twos)),
    ];
  },
};

/** Where HAProxy is. @throws Error saying what is missing */
function requireMeans(): string {
  const haproxy = findProgram("haproxy");
  if (haproxy === null || findProgram("taskset") === null) {
    throw new Error("The cells need HAProxy and taskset: Debian's packages haproxy and util-linux.");
  }
  if (availableParallelism() < NAMES.length) throw new Error("Two cells need two cores.");
  if (process.env.TEST_DATABASE_URL) {
    throw new Error("Each cell has a PostgreSQL of its own: unset TEST_DATABASE_URL.");
  }
  return haproxy;
}

/** What the machine itself gives to a second core: no cell could gain more. */
async function hashOnBoth({ scale }: Bench): Promise<number> {
  const start = (core: number) => startOn([core], async () => startAsked("hashing-process.ts", {}));
  const processes = [await start(0), await start(1)];
  const wish: HashWish = { durationMs: HASHING_MS * scale };
  const hash = async (some: typeof processes) => {
    const rates = await Promise.all(some.map((one) => one.ask<number>("hash", wish)));
    return rates.reduce((sum, rate) => sum + rate, 0);
  };
  await hash(processes);
  const alone = [await hash(processes.slice(0, 1)), await hash(processes.slice(1))];
  const together = await hash(processes);
  for (const one of processes) await one.stop();
  return together / mean(alone);
}

type Way = "http" | "batches";

/** Of all cells together. */
type WayFound = {
  readonly perSecond: number;
  /** Of our processes and PostgreSQL. Microseconds per delivery. */
  readonly cpu: number;
  readonly proxyCpu: number;
  /** Of the cells' cores, from 0 to 1: what was spent by all of their processes and the proxy. */
  readonly busyShare: number;
  /** Per delivery. */
  readonly walBytes: number;
  readonly databaseBytes: number;
};
type Found = Readonly<Record<Way, WayFound>>;

async function measure(
  bench: Bench,
  program: string,
  cores: readonly number[],
  tell: (line: string) => void,
): Promise<Found> {
  const started: BenchCell[] = [];
  const proxies: RunningHaproxy[] = [];
  try {
    for (const [index, core] of cores.entries()) {
      started.push(await startCell(NAMES[index]!, core, ACCOUNTS, bench));
    }
    const [c1, c2] = started;
    const urls = { c1: c1!.api.url, c2: c2?.api.url ?? null };
    // Each knows both cells, and a cell's customers ask the one on its core: where there are two proxies, each has a
    // machine, and a request that changed cores on the way would cost what no cell spends.
    const keysMap = keysMapOf(started);
    const wish = { program, cells: urls, keysMap, accountsMap: "" };
    for (const core of cores) proxies.push(await startOn([core], () => startHaproxy(wish)));
    const running = { cells: started, proxies };
    const http = await publishEverywhere(running, "http", bench.scale, tell);
    const batches = await publishEverywhere(running, "batches", bench.scale, tell);
    for (const cell of started.splice(0)) await cell.stop();
    return { http, batches };
  } finally {
    for (const proxy of proxies) await proxy.stop();
    for (const cell of started) await cell.kill();
  }
}

/** By their places: a cell and the proxy that its customers ask. */
type Running = { readonly cells: readonly BenchCell[]; readonly proxies: readonly RunningHaproxy[] };

async function publishEverywhere(
  { cells: running, proxies }: Running,
  way: Way,
  scale: number,
  tell: (line: string) => void,
): Promise<WayFound> {
  await Promise.all(
    running.map((cell, index) => {
      const { streams } = wishOf(way, cell, proxies[index]!, scale);
      const count = scale * (way === "http" ? HTTP_WARM_UP : BATCHED_WARM_UP);
      return warmUp(cell.bench, cell.publisher, cell.database, streams, count);
    }),
  );
  const proxyCpu = () => proxies.reduce((sum, { pid }) => sum + cpuMicroseconds(pid), 0);
  const proxyBefore = proxyCpu();
  const found = await Promise.all(
    running.map(async (cell, index) => {
      const { bench, database, publisher, dispatcher, api } = cell;
      const watched = { database, dispatcherPids: [dispatcher.pid], apiPid: api.pid };
      const before = await readBytes(database);
      const wish = wishOf(way, cell, proxies[index]!, scale);
      const flatOut = await publishWatched(bench, publisher, wish, watched, tell);
      return { flatOut, before, after: await readBytes(database) };
    }),
  );
  return summed(found, proxyCpu() - proxyBefore);
}

function wishOf(
  way: Way,
  { accountIds, apiKeys }: BenchCell,
  proxy: RunningHaproxy,
  scale: number,
): FlatOutWish {
  if (way === "batches") {
    const stream = { accountIds, batch: BATCH, clients: BATCH_CLIENTS, total: BATCHED * scale };
    return { streams: [stream], durationMs: null };
  }
  const via = { kind: "http", url: proxy.url, apiKeys, whenLimited: "repeated" } as const;
  const stream = { accountIds, batch: 1, clients: REQUESTS_IN_FLIGHT, total: null, via };
  return { streams: [stream], durationMs: HTTP_MS * scale };
}

type Bytes = { readonly wal: number; readonly database: number };

async function readBytes({ pool }: BenchDatabase): Promise<Bytes> {
  const { rows } = await pool.query<Bytes>(
    `/* bench */ select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as wal,
       pg_database_size(current_database())::float8 as database`,
  );
  return rows[0]!;
}

type CellFound = {
  readonly flatOut: FlatOut & { readonly cpu: ReadonlyMap<string, number> };
  readonly before: Bytes;
  readonly after: Bytes;
};

/** They began together; what counts is when the last of them all has arrived. */
function summed(found: readonly CellFound[], proxyMicroseconds: number): WayFound {
  const sum = (of: (one: CellFound) => number) => found.reduce((total, one) => total + of(one), 0);
  const count = sum(({ flatOut }) => flatOut.count);
  const untilLastMs = Math.max(...found.map(({ flatOut }) => flatOut.untilLastMs));
  const cpuOf = (names: readonly string[]) =>
    sum(({ flatOut }) => names.reduce((all, name) => all + (flatOut.cpu.get(name) ?? 0), 0) * flatOut.count);
  const spent = cpuOf([...SERVICE, "receiver", "publisher"]) + proxyMicroseconds;
  return {
    perSecond: (count * 1_000) / untilLastMs,
    cpu: cpuOf(SERVICE) / count,
    proxyCpu: proxyMicroseconds / count,
    busyShare: spent / 1_000 / untilLastMs / found.length,
    walBytes: sum(({ before, after }) => after.wal - before.wal) / count,
    databaseBytes: sum(({ before, after }) => after.database - before.database) / count,
  };
}

function figuresOf(way: Way, ones: readonly Found[], twos: readonly Found[]): Figure[] {
  const says = way === "http" ? "HTTP" : "batches";
  const of = (some: readonly Found[], name: keyof WayFound) => mean(some.map((found) => found[way][name]));
  const each = [
    { cells: "1 cell", found: ones },
    { cells: "2 cells", found: twos },
  ].filter(({ found }) => found.length > 0);
  const figures = each.flatMap(({ cells: many, found }): Figure[] => [
    { name: `${says}, ${many}: delivered`, value: of(found, "perSecond"), unit: "/s" },
    {
      name: `${says}, ${many}: CPU of ${SERVICE.join(", ")}`,
      value: of(found, "cpu"),
      unit: "µs per delivery",
    },
    { name: `${says}, ${many}: CPU of HAProxy`, value: of(found, "proxyCpu"), unit: "µs per delivery" },
    { name: `${says}, ${many}: cores busy`, value: 100 * of(found, "busyShare"), unit: "%" },
    { name: `${says}, ${many}: WAL`, value: of(found, "walBytes"), unit: "bytes per delivery" },
    { name: `${says}, ${many}: database`, value: of(found, "databaseBytes"), unit: "bytes per delivery" },
  ]);
  if (each.length < 2) return figures;
  const ratio = (name: keyof WayFound) => of(twos, name) / of(ones, name);
  const cpuMore = 100 * Math.abs(ratio("cpu") - 1);
  return [
    ...figures,
    { name: `${says}: 2 cells ÷ 1`, value: ratio("perSecond"), unit: "", goal: { atLeast: 1.8 } },
    { name: `${says}: CPU per delivery, 2 cells beside 1`, value: cpuMore, unit: "%", goal: { atMost: 5 } },
  ];
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
