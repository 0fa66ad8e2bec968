import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { setPriority, tmpdir } from "node:os";
import { join } from "node:path";
import { type Bench, HOSTS } from "../../bench.ts";
import type { BenchCase, Figure } from "../../figures.ts";
import { cpuBetween, takeSnapshot, type Watched } from "../../measuring/snapshot.ts";
import { type Timed, timeStream } from "../../timed.ts";
import { deadNameServers, timeouts } from "./broken-endpoints.ts";
import { busyMachine } from "./busy-machine.ts";
import type { Flood } from "./flood.ts";
import { hookPosts, httpPublishes } from "./http-floods.ts";
import { names } from "./names.ts";
import { costlyAnswers, oneLane } from "./one-lane.ts";
import { replays } from "./replays.ts";

const FLOODS: readonly Flood[] = [
  busyMachine,
  timeouts,
  deadNameServers,
  oneLane,
  costlyAnswers(1),
  costlyAnswers(20),
  names,
  replays,
  httpPublishes,
  hookPosts,
];
/** Whoever floods has a machine of his own: his process gets what ours leave of this one. */
const LOWEST_PRIORITY = 19;

/** For the healthy accounts, one a transaction: less than a tenth of what two processors manage. */
const PER_SECOND = 300;
const WARM_UP_MS = 5_000;
const ALONE_MS = 20_000;
/** The stream of the second phase is under way when the flood begins. */
const RESUMED_MS = 500;
const FLOODED_MS = 30_000;
const IN_FLIGHT = 1_000;
/** Of all endpoints; they are the accounts of the first hosts. */
const HOSTILE_HOSTS = HOSTS * 0.2;

const RATIO_MAX = 1.5;
const WORST_SECOND_MAX_MS = 2_000;

export const isolation: BenchCase<Bench> = {
  name: "isolation",
  says:
    "COMMIT to first byte for 800 healthy accounts, 300 a second, one a transaction: 20 s alone, then 30 s from the " +
    "moment when somebody floods the same dispatcher. Nine floods and a control, each with a database and a " +
    "dispatcher of its own.",
  run: async (bench, tell) => {
    const figures: Figure[] = [];
    for (const flood of FLOODS) figures.push(...(await measure(bench, flood, tell)));
    return figures;
  },
};

async function measure(bench: Bench, flood: Flood, tell: (line: string) => void): Promise<Figure[]> {
  const database = await bench.server.createDatabase();
  const nameServer = await startDeafNameServer();
  const stateDir = await mkdtemp(join(tmpdir(), "sealpost-bench-flood-"));
  const dispatcher = await bench.startDispatcher(database, {
    inFlightMax: bench.inFlightMax ?? IN_FLIGHT,
    // The healthy hosts are known without one.
    env: { TARGET_DNS_SERVERS: nameServer.address, STATE_DIR: stateDir },
  });
  const publisher = bench.startPublisher(database);
  const hostile = bench.startPublisher(database);
  setPriority(hostile.pid, LOWEST_PRIORITY);
  const accounts = accountsOf(bench);
  await bench.behave({ isTiming: true });
  const prepared = await flood.prepare({
    bench,
    database,
    dispatcherPid: dispatcher.pid,
    stateDir,
    publisher: hostile,
    accountIds: accounts.hostile,
    silentHosts: HOSTILE_HOSTS,
  });

  const watched = {
    database,
    dispatcherPids: [dispatcher.pid],
    receiverPid: bench.receiverPid,
    publisherPid: publisher.pid,
  };
  const stream = { accountIds: accounts.healthy, perSecond: PER_SECOND, batch: 1 };
  const phase = async (name: string, wish: PhaseWish, begin: () => Promise<void>) => {
    const shares = startWatching(watched);
    const timed = await timeStream(bench, publisher, { ...stream, ...wish }, async () => {
      await shares.begin();
      await begin();
    });
    const behindMs = Math.round(timed.publisherBehindMs);
    tell(
      `${flood.name}, ${name}: ${timed.count} deliveries, publisher behind by at most ${behindMs} ms; ` +
        `processors: ${await shares.end()}`,
    );
    return timed;
  };
  const alone = await phase(
    "alone",
    { warmUpMs: WARM_UP_MS, durationMs: ALONE_MS * bench.scale },
    async () => undefined,
  );
  const flooded = await phase(
    "flooded",
    { warmUpMs: RESUMED_MS, durationMs: FLOODED_MS * bench.scale },
    prepared.start,
  );
  const told = await prepared.stop();

  await publisher.stop();
  await hostile.stop();
  await dispatcher.kill();
  nameServer.close();
  await database.drop();
  await rm(stateDir, { recursive: true });
  return [...compare(alone, flooded, flood.isControl ?? false), ...told].map((figure) => ({
    ...figure,
    name: `${flood.name}: ${figure.name}`,
  }));
}

type PhaseWish = { readonly warmUpMs: number; readonly durationMs: number };

function compare(alone: Timed, flooded: Timed, isControl: boolean): Figure[] {
  const goal = (atMost: number) => (isControl ? {} : { goal: { atMost } });
  const unit = "ms";
  return [
    { name: "p50 alone", value: alone.p50Ms, unit },
    { name: "p50", value: flooded.p50Ms, unit },
    { name: "p99 alone", value: alone.p99Ms, unit },
    { name: "p99", value: flooded.p99Ms, unit },
    { name: "p99 ÷ alone", value: flooded.p99Ms / alone.p99Ms, unit: "", ...goal(RATIO_MAX) },
    { name: "p99 of the worst second alone", value: alone.p99OfWorstSecondMs, unit },
    {
      name: "p99 of the worst second",
      value: flooded.p99OfWorstSecondMs,
      unit,
      ...goal(WORST_SECOND_MAX_MS),
    },
    { name: "longest", value: flooded.longestMs, unit },
  ];
}

/** Of a second of one processor, what each process takes of it. */
function startWatching(watched: Watched): { begin(): Promise<void>; end(): Promise<string> } {
  const begun = Promise.withResolvers<Awaited<ReturnType<typeof takeSnapshot>>>();
  return {
    begin: async () => begun.resolve(await takeSnapshot(watched)),
    end: async () => {
      const first = await begun.promise;
      const last = await takeSnapshot(watched);
      const shares = [...cpuBetween(first, last, (last.atMs - first.atMs) * 1_000)];
      return shares
        .filter(([, share]) => share >= 0.01)
        .map(([name, share]) => `${name} ${share.toFixed(2)}`)
        .join(", ");
    },
  };
}

function accountsOf(bench: Bench): { healthy: string[]; hostile: string[] } {
  const { accountIds } = bench.server;
  const isHostile = (index: number) => index % HOSTS < HOSTILE_HOSTS;
  return {
    healthy: accountIds.filter((_, index) => !isHostile(index)),
    hostile: accountIds.filter((_, index) => isHostile(index)),
  };
}

/** Takes every question and answers none. */
async function startDeafNameServer(): Promise<{ address: string; close: () => void }> {
  const socket = createSocket("udp4");
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  // A flood that fails leaves it behind.
  socket.unref();
  return { address: `127.0.0.1:${socket.address().port}`, close: () => socket.close() };
}
