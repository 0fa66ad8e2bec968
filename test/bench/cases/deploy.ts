import { setTimeout as wait } from "node:timers/promises";
import type { SealpostProcess } from "../../support/sealpost-process.ts";
import { type Bench, untilAnswered, untilNoneOpen } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import type { BenchCase, Figure } from "../figures.ts";
import type { Published } from "../processes/publisher-process.ts";

const ORIGINS = 10_000;
const BATCH = 50;
const CLIENTS = 4;
const AHEAD_MAX = 2_000;
const IN_FLIGHT = 1_000;
/** Of what one dispatcher delivers when it has all that it can take. */
const STEADY_SHARE = 0.8;
const STEADY_FOR_MS = 4_000;
/** Of what the old one delivered in that time. */
const RECOVERED_SHARE = 0.9;
const WINDOW_MS = 500;
const SAMPLE_EVERY_MS = 50;
const GIVE_UP_AFTER_MS = 60_000;
const GOAL_SECONDS = 5;

export const deploy: BenchCase<Bench> = {
  name: "deploy",
  says:
    "10,000 origins that have answered before, each a lane of its own. Analyses for them are published at 80 % of " +
    "what the dispatcher manages; it is stopped, and another is started. What counts is the time from the start of " +
    "its process to the end of the first half second at 90 % of the rate before. Then the same with nobody " +
    "remembered to have answered.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const origins = ORIGINS * bench.scale;
    const inFlightMax = bench.inFlightMax ?? IN_FLIGHT;
    const start = () => bench.startDispatcher(database, { inFlightMax });
    const publisher = bench.startPublisher(database);
    const stream = {
      accountIds: bench.server.accountIds,
      batch: BATCH,
      webhookUrls: { pattern: bench.webhookUrl("origin-{n}"), count: origins },
    };
    await bench.behave({});
    let dispatcher = await bench.startDispatcher(database, { inFlightMax, meets: true });

    const { answered: base } = await bench.received();
    await publisher.ask("publishAhead", { ...stream, clients: CLIENTS, aheadMax: AHEAD_MAX, total: null });
    const met = await untilAnswered(bench, origins, publisher, base);
    const metAtMs = performance.now();
    const again = await untilAnswered(bench, met + origins, publisher, base);
    const throughput = ((again - met) * 1_000) / (performance.now() - metAtMs);
    await publisher.ask<Published>("stop");
    await untilNoneOpen(database);
    const remembered = await untilRemembered(database, origins);

    const perSecond = throughput * STEADY_SHARE;
    await publisher.ask("publishPaced", { ...stream, perSecond });
    const exchange = async () => {
      const steadyPerSecond = await measureRate(bench, STEADY_FOR_MS);
      const exchanged = await timeExchange(bench, dispatcher, start, steadyPerSecond);
      dispatcher = exchanged.dispatcher;
      return { ...exchanged, steadyPerSecond };
    };
    const known = await exchange();
    await wait(STEADY_FOR_MS);
    await database.pool.query("/* bench */ delete from sealpost.answered_lanes");
    const unknown = await exchange();

    const { behindMaxMs } = await publisher.ask<Published>("stop");
    tell(`publisher behind by at most ${Math.round(behindMaxMs)} ms`);
    await untilNoneOpen(database);
    await publisher.stop();
    await dispatcher.stop();
    for (const line of dispatcher.texts) tell(line);
    await database.drop();
    return [
      { name: "origins", value: remembered, unit: "" },
      { name: "throughput to them", value: throughput, unit: "/s" },
      { name: "published", value: perSecond, unit: "/s" },
      { name: "delivered before", value: known.steadyPerSecond, unit: "/s" },
      { name: "until the new process is ready", value: known.readySeconds, unit: "s" },
      {
        name: "until it delivers 90 %",
        value: known.recoveredSeconds,
        unit: "s",
        goal: { atMost: GOAL_SECONDS },
      },
      { name: "the same, nobody remembered", value: unknown.recoveredSeconds, unit: "s" },
    ] satisfies Figure[];
  },
};

async function measureRate(bench: Bench, forMs: number): Promise<number> {
  const first = await bench.received();
  const startedAtMs = performance.now();
  await wait(forMs);
  const last = await bench.received();
  return ((last.answered - first.answered) * 1_000) / (performance.now() - startedAtMs);
}

/** What has answered is noted a moment later. */
async function untilRemembered({ pool }: BenchDatabase, count: number): Promise<number> {
  for (;;) {
    const { rows } = await pool.query<{ count: number }>(
      "/* bench */ select count(*)::integer as count from sealpost.answered_lanes",
    );
    const remembered = rows[0]?.count ?? 0;
    if (remembered >= count) return remembered;
    await wait(SAMPLE_EVERY_MS);
  }
}

type Exchanged = {
  readonly dispatcher: SealpostProcess;
  readonly readySeconds: number;
  readonly recoveredSeconds: number;
};

/** Both from the start of the new process, which begins when the old one has ended. */
async function timeExchange(
  bench: Bench,
  old: SealpostProcess,
  start: () => Promise<SealpostProcess>,
  perSecond: number,
): Promise<Exchanged> {
  await old.stop();
  const startedAtMs = performance.now();
  const starting = start().then((dispatcher) => ({
    dispatcher,
    readySeconds: (performance.now() - startedAtMs) / 1_000,
  }));
  const recovered = untilDelivering(bench, perSecond * RECOVERED_SHARE).then(
    (atMs) => (atMs - startedAtMs) / 1_000,
  );
  const [{ dispatcher, readySeconds }, recoveredSeconds] = await Promise.all([starting, recovered]);
  return { dispatcher, readySeconds, recoveredSeconds };
}

/** The end of the first half second in which that much was answered. */
async function untilDelivering(bench: Bench, perSecond: number): Promise<number> {
  const samples: { atMs: number; answered: number }[] = [];
  const giveUpAtMs = performance.now() + GIVE_UP_AFTER_MS;
  for (;;) {
    const { answered } = await bench.received();
    const atMs = performance.now();
    samples.push({ atMs, answered });
    const before = samples.findLast((sample) => sample.atMs <= atMs - WINDOW_MS);
    if (before && (answered - before.answered) * 1_000 >= perSecond * (atMs - before.atMs)) return atMs;
    if (atMs > giveUpAtMs) throw new Error(`The new dispatcher does not come to ${Math.round(perSecond)}/s.`);
    await wait(SAMPLE_EVERY_MS);
  }
}
