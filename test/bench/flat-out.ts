// Publishing as fast as it goes, and what becomes of it until the last delivery has arrived.
import { setTimeout as wait } from "node:timers/promises";
import { type Bench, untilAnswered, untilNoneOpen } from "./bench.ts";
import type { BenchDatabase } from "./database.ts";
import { type Figure, formatNumber, longestPauseMs } from "./figures.ts";
import { busyShare, machineTime } from "./measuring/processes.ts";
import { cpuBetween, cpuByProcess, takeSnapshot, type Watched } from "./measuring/snapshot.ts";
import type { AskedProcess } from "./processes/asking.ts";
import type { AheadWish, Published } from "./processes/publisher-process.ts";

/** Streams that run at once. They end after `durationMs`; null: each when it has reached its total. */
export type FlatOutWish = {
  readonly streams: readonly Omit<AheadWish, "aheadMax" | "isTimed">[];
  readonly durationMs: number | null;
};

export type FlatOut = {
  readonly count: number;
  readonly publishedPerSecond: number;
  /** From when the first was sent until the last has arrived. */
  readonly deliveredPerSecond: number;
  readonly untilLastMs: number;
  /** In which nothing arrived, within that time. */
  readonly longestPauseMs: number;
  /** From sent (COMMIT, or the request) to the first byte at the receiver, in the order of publishing. */
  readonly latenciesMs: Float64Array;
  /** In the same order, which of its stream's accounts each was for. */
  readonly accountIndexes: Uint32Array;
  /** Of the machine's processors, from 0 to 1, until the last has arrived. */
  readonly busyShare: number;
};

/** The receivers must be timing. */
export async function publishFlatOut(
  bench: Bench,
  publisher: AskedProcess,
  { streams, durationMs }: FlatOutWish,
): Promise<FlatOut> {
  const first = (await publisher.ask<number>("timed")) + 1;
  const { answered: base } = await bench.received();
  const timeBefore = machineTime();
  for (const stream of streams) {
    const wish = { ...stream, aheadMax: Number.MAX_SAFE_INTEGER, isTimed: true };
    await publisher.ask("publishAhead", wish);
  }
  await (durationMs === null ? publisher.ask("finish") : wait(durationMs));
  const published = await publisher.ask<Published>("stop");
  const end = published.sentAtMs.length;
  await untilAnswered(bench, end - first, null, base);
  const busy = busyShare(timeBefore, machineTime());
  const arrivedAtMs = (await bench.firstBytesAtMs(end)).slice(first);
  if (arrivedAtMs.includes(0)) throw new Error("Something was delivered twice, and something else not yet.");
  const sentAtMs = published.sentAtMs.slice(first);
  const startedAtMs = sentAtMs[0] ?? 0;
  const lastAtMs = arrivedAtMs.reduce((last, atMs) => Math.max(last, atMs), 0);
  return {
    count: end - first,
    publishedPerSecond: published.perSecond,
    deliveredPerSecond: ((end - first) * 1_000) / (lastAtMs - startedAtMs),
    untilLastMs: lastAtMs - startedAtMs,
    longestPauseMs: longestPauseMs(arrivedAtMs, startedAtMs, lastAtMs),
    latenciesMs: arrivedAtMs.map((atMs, index) => atMs - (sentAtMs[index] ?? 0)),
    accountIndexes: published.accountIndexes.slice(first),
    busyShare: busy,
  };
}

/** What a delivery has cost, once everything is recorded: microseconds of each process, and bytes written and kept. */
export type Cost = {
  readonly cpu: ReadonlyMap<string, number>;
  readonly walBytes: number;
  readonly databaseBytes: number;
};

export async function publishWatched(
  bench: Bench,
  publisher: AskedProcess,
  wish: FlatOutWish,
  watched: Omit<Watched, "receiverPid" | "publisherPid">,
  tell: (line: string) => void,
): Promise<FlatOut & Cost> {
  const all = { ...watched, receiverPid: bench.receiverPid, publisherPid: publisher.pid };
  const before = await takeSnapshot(all);
  const flatOut = await publishFlatOut(bench, publisher, wish);
  await untilNoneOpen(watched.database);
  const after = await takeSnapshot(all);
  const cpu = cpuBetween(before, after, flatOut.count);
  const shares = [...cpu].filter(([name, spent]) => name.startsWith("PostgreSQL") && spent >= 1);
  tell(shares.map(([name, spent]) => `${name} ${formatNumber(spent)} µs`).join(", "));
  const walBytes = (after.walBytes - before.walBytes) / flatOut.count;
  const databaseBytes = (after.databaseBytes - before.databaseBytes) / flatOut.count;
  return { ...flatOut, cpu: cpuByProcess(cpu), walBytes, databaseBytes };
}

/** What the service takes to publish and deliver once, and each process's part; the last two are not the service. */
export function costFigures({ cpu, ...bytes }: Cost, goalMicroseconds: number | null): Figure[] {
  const unit = "µs per delivery";
  const figureOf = (name: string) => ({ name: `CPU of ${name}`, value: cpu.get(name) ?? 0, unit });
  const names = ["serve", "dispatcher", "PostgreSQL"].filter((name) => cpu.has(name));
  const value = names.reduce((sum, name) => sum + (cpu.get(name) ?? 0), 0);
  const sum = { name: `CPU of ${names.join(", ")} together`, value, unit };
  return [
    goalMicroseconds === null ? sum : { ...sum, goal: { atMost: goalMicroseconds } },
    ...[...names, "receiver", "publisher"].map(figureOf),
    { name: "WAL", value: bytes.walBytes, unit: "bytes per delivery" },
    { name: "database", value: bytes.databaseBytes, unit: "bytes per delivery" },
  ];
}

/** Publishes `count` by each of the streams and waits for the last: what follows finds everything compiled and open. */
export async function warmUp(
  bench: Bench,
  publisher: AskedProcess,
  database: BenchDatabase,
  streams: FlatOutWish["streams"],
  count: number,
): Promise<void> {
  await publishFlatOut(bench, publisher, {
    streams: streams.map((stream) => ({ ...stream, total: count })),
    durationMs: null,
  });
  await untilNoneOpen(database);
}
