import { setTimeout as wait } from "node:timers/promises";
import { type Bench, untilAnswered } from "../bench.ts";
import type { BenchCase } from "../figures.ts";
import { memoryMib } from "../measuring/processes.ts";
import { between, takeSnapshot } from "../measuring/snapshot.ts";

const ANSWER_MS = 200;
/** Few enough that four processes together leave the machine idle: the receivers are the bound. */
const IN_FLIGHT = 100;
const IN_FLIGHT_FOR_MEMORY = 1_000;
/** Until each dispatcher has met the 1,000 receivers: at first they are silent ones, with a quarter of the places. */
const WARM_UP_MS = 15_000;
const DURATION_MS = 12_000;
const BATCH = 100;
const CLIENTS = 3;
const AHEAD_MAX = 10_000;

export const scaleOut: BenchCase<Bench> = {
  name: "scale-out",
  says:
    "Receivers that take 200 ms to answer, and 1, 2 and 4 dispatchers with at most 100 in flight each on one " +
    "database; then the memory of one with 1,000 in flight.",
  run: async (bench, tell) => {
    const one = await deliverWith(bench, 1, IN_FLIGHT, tell);
    const two = await deliverWith(bench, 2, IN_FLIGHT, tell);
    const four = await deliverWith(bench, 4, IN_FLIGHT, tell);
    const large = await deliverWith(bench, 1, IN_FLIGHT_FOR_MEMORY, tell);
    return [
      { name: "1 dispatcher", value: one.perSecond, unit: "/s" },
      { name: "2 dispatchers", value: two.perSecond, unit: "/s" },
      { name: "4 dispatchers", value: four.perSecond, unit: "/s" },
      { name: "2 ÷ 1", value: two.perSecond / one.perSecond, unit: "", goal: { atLeast: 1.9 } },
      { name: "4 ÷ 1", value: four.perSecond / one.perSecond, unit: "", goal: { atLeast: 3.6 } },
      { name: "1,000 in flight", value: large.perSecond, unit: "/s" },
      { name: "1,000 in flight: RSS", value: large.rssMib, unit: "MiB", goal: { atMost: 280 } },
    ];
  },
};

async function deliverWith(
  bench: Bench,
  processes: number,
  inFlightMax: number,
  tell: (line: string) => void,
): Promise<{ perSecond: number; rssMib: number }> {
  const database = await bench.server.createDatabase();
  const publisher = bench.startPublisher(database);
  await bench.behave({ delayMs: ANSWER_MS });
  const { answered: base } = await bench.received();
  const accountIds = bench.server.accountIds;
  const stream = { accountIds, batch: BATCH, clients: CLIENTS, aheadMax: AHEAD_MAX, total: null };
  await publisher.ask("publishAhead", stream);
  const dispatchers = await Promise.all(
    Array.from({ length: processes }, () => bench.startDispatcher(database, { inFlightMax })),
  );
  const watched = {
    database,
    dispatcherPids: dispatchers.map(({ pid }) => pid),
    receiverPid: bench.receiverPid,
    publisherPid: publisher.pid,
  };
  const keepTelling = async (durationMs: number) => {
    const endsAtMs = performance.now() + durationMs;
    while (performance.now() < endsAtMs) {
      await untilAnswered(bench, 0, publisher, base);
      await wait(50);
    }
  };
  await keepTelling(WARM_UP_MS);
  const first = await takeSnapshot(watched);
  await keepTelling(DURATION_MS * bench.scale);
  const last = await takeSnapshot(watched);
  const rssMib = Math.max(...dispatchers.map(({ pid }) => memoryMib(pid).peak));
  await publisher.ask("stop");
  await publisher.stop();
  await Promise.all(dispatchers.map((dispatcher) => dispatcher.kill()));
  for (const { texts } of dispatchers) for (const line of texts) tell(line);
  await database.drop();
  return { perSecond: between(first, last).perSecond, rssMib };
}
