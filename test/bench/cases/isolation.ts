import { createSocket } from "node:dgram";
import { once } from "node:events";
import { ACCOUNTS, type Bench, HOSTS } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, formatNumber } from "../figures.ts";
import { cpuBetween, type Snapshot, takeSnapshot } from "../measuring/snapshot.ts";
import { type Timed, timeStream } from "../timed.ts";
import { knownThroughput } from "./throughput.ts";

const WARM_UP_MS = 8_000;
const DURATION_MS = 60_000;
const BATCH = 10;
/** Of all endpoints; they are the accounts of the first hosts. */
const BROKEN_SHARE = 0.2;
const FLOOD_TIMES = 100;
const IN_FLIGHT = 1_000;

const BROKEN_HOSTS = HOSTS * BROKEN_SHARE;

type Trouble = "none" | "timeouts" | "dead name servers" | "flood";

/** Numbers of accounts by whether their endpoint is one of the broken. */
const isBroken = (index: number) => index % HOSTS < BROKEN_HOSTS;

export const isolation: BenchCase<Bench> = {
  name: "isolation",
  says:
    "COMMIT to first byte for the accounts whose endpoints are well, at four tenths of the throughput: alone; then " +
    "with a tenth of the throughput on top for the other 20 % of endpoints, which time out, or whose name servers " +
    "are dead; then with one account that publishes 100 times its share on top. 60 s each.",
  run: async (bench, tell) => {
    const perSecond = (await knownThroughput(bench, tell)) / 2;
    const alone = await measure(bench, perSecond, "none", tell);
    const figures: Figure[] = [
      { name: "healthy deliveries", value: perSecond * (1 - BROKEN_SHARE), unit: "/s" },
      { name: "alone: p50", value: alone.p50Ms, unit: "ms" },
      { name: "alone: p99", value: alone.p99Ms, unit: "ms" },
      { name: "alone: p99 of the median second", value: alone.p99OfSecondMs, unit: "ms" },
    ];
    for (const trouble of ["timeouts", "dead name servers", "flood"] as const) {
      const troubled = await measure(bench, perSecond, trouble, tell);
      const ratio = troubled.p99Ms / alone.p99Ms;
      figures.push(
        { name: `${trouble}: p50`, value: troubled.p50Ms, unit: "ms" },
        { name: `${trouble}: p99`, value: troubled.p99Ms, unit: "ms" },
        { name: `${trouble}: p99 ÷ alone`, value: ratio, unit: "", goal: { atMost: 1.2 } },
        {
          name: `${trouble}: p99 of the median second`,
          value: troubled.p99OfSecondMs,
          unit: `ms (${formatNumber(troubled.p99OfSecondMs / alone.p99OfSecondMs)} × alone)`,
        },
      );
    }
    return figures;
  },
};

async function measure(
  bench: Bench,
  perSecond: number,
  trouble: Trouble,
  tell: (line: string) => void,
): Promise<Timed> {
  const database = await bench.server.createDatabase();
  const deaf = await startDeafNameServer();
  if (trouble === "dead name servers") await moveBrokenEndpoints(bench, database);
  const dispatcher = await bench.startDispatcher(database, {
    inFlightMax: bench.inFlightMax ?? IN_FLIGHT,
    env: { TARGET_DNS_SERVERS: deaf.address },
  });
  const publisher = bench.startPublisher(database);
  await bench.behave({ isTiming: true, silentHosts: trouble === "timeouts" ? BROKEN_HOSTS : 0 });
  const { healthy, broken } = groupsOf(bench);
  const healthyPerSecond = perSecond * (1 - BROKEN_SHARE);
  if (trouble === "timeouts" || trouble === "dead name servers") {
    const stream = { accountIds: broken, perSecond: perSecond * BROKEN_SHARE, batch: BATCH, isTimed: false };
    await publisher.ask("publishPaced", stream);
  }
  if (trouble === "flood") {
    const share = healthyPerSecond / healthy.length;
    const stream = {
      accountIds: broken.slice(0, 1),
      perSecond: share * FLOOD_TIMES,
      batch: BATCH,
      isTimed: false,
    };
    await publisher.ask("publishPaced", stream);
  }
  const watched = {
    database,
    dispatcherPids: [dispatcher.pid],
    receiverPid: bench.receiverPid,
    publisherPid: publisher.pid,
  };
  const wish = {
    accountIds: healthy,
    perSecond: healthyPerSecond,
    batch: BATCH,
    warmUpMs: WARM_UP_MS,
    durationMs: DURATION_MS * bench.scale,
  };
  let first: Snapshot | null = null;
  const timed = await timeStream(bench, publisher, wish, async () => {
    first = await takeSnapshot(watched);
  });
  const busy = shareOfProcessors(first!, await takeSnapshot(watched));
  const behindMs = Math.round(timed.publisherBehindMs);
  tell(
    `${trouble}: ${timed.count} deliveries, publisher behind by at most ${behindMs} ms; processors: ${busy}`,
  );
  await publisher.stop();
  await dispatcher.kill();
  deaf.close();
  await database.drop();
  return timed;
}

/** Of a second of one processor, what each took of it. */
function shareOfProcessors(first: Snapshot, last: Snapshot): string {
  const shares = [...cpuBetween(first, last, (last.atMs - first.atMs) * 1_000)].filter(
    ([, share]) => share >= 0.01,
  );
  return shares.map(([name, share]) => `${name} ${share.toFixed(2)}`).join(", ");
}

function groupsOf(bench: Bench): { healthy: string[]; broken: string[] } {
  const numbered = bench.server.accountIds.map((id, index) => ({ id, index }));
  const idsWhere = (wanted: boolean) =>
    numbered.filter(({ index }) => isBroken(index) === wanted).map(({ id }) => id);
  return { healthy: idsWhere(false), broken: idsWhere(true) };
}

/** To names that only DNS knows. Nothing is ever sent there: no name server answers. */
async function moveBrokenEndpoints(bench: Bench, { pool }: BenchDatabase): Promise<void> {
  const { broken } = groupsOf(bench);
  await pool.query(
    `update sealpost.endpoints set url = 'https://d' || (random() * $2)::integer || '.example.com/hook'
     where account_id = any ($1)`,
    [broken, ACCOUNTS * BROKEN_SHARE],
  );
}

/** Takes every question and answers none. */
async function startDeafNameServer(): Promise<{ address: string; close: () => void }> {
  const socket = createSocket("udp4");
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return { address: `127.0.0.1:${socket.address().port}`, close: () => socket.close() };
}
