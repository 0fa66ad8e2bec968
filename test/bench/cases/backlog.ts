import { type Bench, checkEachOnce, untilAnswered, untilNoneOpen } from "../bench.ts";
import type { BenchCase } from "../figures.ts";
import { between, type Measured, takeSnapshot } from "../measuring/snapshot.ts";
import { readStatements } from "../measuring/statements.ts";
import { amidLimits } from "./limit.ts";
import { cpuFigures } from "./throughput.ts";

const DELIVERIES = 500_000;
const BATCH = 500;
const CLIENTS = 3;
/** Of all deliveries, what is answered before the measuring begins. */
const WARM_UP_SHARE = 0.05;

export const backlog: BenchCase<Bench> = {
  name: "backlog",
  says:
    "500,000 deliveries are published while no dispatcher runs; then one is started and drains them, " +
    "with nobody publishing.",
  run: async (bench, tell) => {
    const { result, ...limits } = await amidLimits(bench, tell, (inFlight) => drain(bench, inFlight, tell));
    const { perSecond, statements, walBytes } = result;
    return [
      { name: "deliveries", value: perSecond, unit: "/s" },
      { name: "÷ limit", value: perSecond / limits.perSecond, unit: "", goal: { atLeast: 0.35 } },
      { name: "÷ limit by a bare handler", value: perSecond / limits.bareHandlerPerSecond, unit: "" },
      { name: "SQL statements", value: statements, unit: "per delivery", goal: { atMost: 0.25 } },
      { name: "WAL", value: walBytes, unit: "bytes per delivery" },
      ...cpuFigures(result),
    ];
  },
};

async function drain(bench: Bench, inFlight: number, tell: (line: string) => void): Promise<Measured> {
  const database = await bench.server.createDatabase();
  const total = BATCH * Math.ceil((DELIVERIES * bench.scale) / BATCH);
  const publisher = bench.startPublisher(database);
  await publisher.ask("publishAhead", {
    accountIds: bench.server.accountIds,
    batch: BATCH,
    clients: CLIENTS,
    aheadMax: Number.MAX_SAFE_INTEGER,
    total,
  });
  const published = await publisher.ask<number>("finish");
  await publisher.stop();
  tell(`${published} deliveries are due`);

  await bench.behave({});
  const { answered: base } = await bench.received();
  const dispatcher = await bench.startDispatcher(database, { inFlightMax: inFlight });
  const watched = {
    database,
    dispatcherPids: [dispatcher.pid],
    receiverPid: bench.receiverPid,
    publisherPid: null,
  };
  await untilAnswered(bench, published * WARM_UP_SHARE, null, base);
  const first = await takeSnapshot(watched);
  await untilAnswered(bench, published, null, base);
  await untilNoneOpen(database);
  const last = await takeSnapshot(watched);
  await checkEachOnce(database, published, (await bench.received()).answered - base);
  for (const { text, calls, totalMs, rows } of (await readStatements(database)).slice(0, 5))
    tell(`${text}: ${calls} times, ${Math.round(totalMs)} ms, ${rows} rows`);
  await dispatcher.stop();
  for (const line of dispatcher.texts) tell(line);
  await database.drop();
  return between(first, last);
}
