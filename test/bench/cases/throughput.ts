import { type Bench, checkEachOnce, type DispatcherWish, untilAnswered, untilNoneOpen } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import type { BenchCase, Figure } from "../figures.ts";
import { between, type Measured, takeSnapshot } from "../measuring/snapshot.ts";
import type { Published } from "../processes/publisher-process.ts";
import { amidLimits } from "./limit.ts";

const WARM_UP = 10_000;
const DELIVERIES = 50_000;
const BATCH = 100;
const CLIENTS = 4;
const AHEAD_MAX = 5_000;

export const throughput: BenchCase<Bench> = {
  name: "throughput",
  says:
    "The whole path, published in batches of 100, delivered and recorded: publisher, PostgreSQL, one dispatcher and " +
    "the receivers on one machine, 50,000 deliveries of 1,000 accounts to 200 hosts, from first to last recorded.",
  run: async (bench, tell) => {
    const { result, ...limits } = await amidLimits(bench, tell, (inFlight) =>
      deliver(bench, { inFlight, tell }),
    );
    const { perSecond, statements, walBytes } = result.measured;
    return [
      { name: "deliveries", value: perSecond, unit: "/s" },
      { name: "÷ limit", value: perSecond / limits.perSecond, unit: "", goal: { atLeast: 0.3 } },
      { name: "÷ limit by a bare handler", value: perSecond / limits.bareHandlerPerSecond, unit: "" },
      { name: "in flight at most", value: result.inFlight, unit: "" },
      { name: "SQL statements", value: statements, unit: "per delivery", goal: { atMost: 0.25 } },
      { name: "WAL, the publisher's included", value: walBytes, unit: "bytes per delivery" },
      ...cpuFigures(result.measured),
      { name: "RSS of the dispatcher", value: result.rssMib, unit: "MiB" },
      { name: "published ahead at the end", value: result.ahead, unit: "" },
      { name: "fresh connections", value: result.connections, unit: "per delivery" },
    ];
  },
};

export function cpuFigures({ cpu }: Measured): Figure[] {
  return [...cpu]
    .filter(([, spent]) => spent >= 0.5)
    .map(([name, spent]) => ({ name: `CPU of ${name}`, value: spent, unit: "µs per delivery" }));
}

type Delivered = {
  readonly measured: Measured;
  readonly inFlight: number;
  readonly rssMib: number;
  readonly connections: number;
  /** Published and not answered when the measuring ended: few, and it was the publisher that was measured. */
  readonly ahead: number;
  /** Of the whole run, its warm-up and its end included. */
  readonly published: number;
};

type DeliverWish = {
  readonly inFlight: number;
  readonly tell: (line: string) => void;
  readonly dispatcher?: Partial<DispatcherWish>;
  /** Called when everything is delivered, before the database goes. */
  readonly inspect?: (database: BenchDatabase) => Promise<void>;
};

export async function deliver(bench: Bench, wish: DeliverWish): Promise<Delivered> {
  const { inFlight, tell } = wish;
  const database = await bench.server.createDatabase();
  const publisher = bench.startPublisher(database);
  const dispatcher = await bench.startDispatcher(database, {
    ...wish.dispatcher,
    inFlightMax: inFlight,
  });
  const watched = {
    database,
    dispatcherPids: [dispatcher.pid],
    receiverPid: bench.receiverPid,
    publisherPid: publisher.pid,
  };
  await bench.behave({});
  const base = await bench.received();
  await publisher.ask("publishAhead", {
    accountIds: bench.server.accountIds,
    batch: BATCH,
    clients: CLIENTS,
    aheadMax: AHEAD_MAX,
    total: null,
  });

  const warmed = await untilAnswered(bench, WARM_UP * bench.scale, publisher, base.answered);
  const first = await takeSnapshot(watched);
  const connected = await bench.received();
  await untilAnswered(bench, warmed + DELIVERIES * bench.scale, publisher, base.answered);
  const last = await takeSnapshot(watched);
  const ended = await bench.received();
  const answered = ended.answered - base.answered;
  const ahead = (await publisher.ask<number>("answered", answered)) - answered;

  const { published } = await publisher.ask<Published>("stop");
  await untilNoneOpen(database);
  await checkEachOnce(database, published, (await bench.received()).answered - base.answered);
  await wish.inspect?.(database);
  await dispatcher.stop();
  for (const line of dispatcher.texts) tell(line);
  await publisher.stop();
  await database.drop();
  const measured = between(first, last);
  return {
    measured,
    inFlight,
    published,
    ahead,
    rssMib: last.dispatcherRssMib,
    connections: (ended.connections - connected.connections) / measured.deliveries,
  };
}
