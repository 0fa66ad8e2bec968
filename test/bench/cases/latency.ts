import type { Bench } from "../bench.ts";
import type { BenchCase } from "../figures.ts";
import { timeStream } from "../timed.ts";

const PER_SECOND = 900;
const WARM_UP_MS = 5_000;
const DURATION_MS = 30_000;

export const latency: BenchCase<Bench> = {
  name: "latency",
  says:
    "From the COMMIT of a publish, each in a transaction of its own, to the first byte at the receiver, " +
    "at 900 a second: about a tenth of the throughput.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const dispatcher = await bench.startDispatcher(database, { inFlightMax: bench.inFlightMax ?? 1_000 });
    const publisher = bench.startPublisher(database);
    await bench.behave({ isTiming: true });
    const timed = await timeStream(bench, publisher, {
      accountIds: bench.server.accountIds,
      perSecond: PER_SECOND,
      batch: 1,
      warmUpMs: WARM_UP_MS,
      durationMs: DURATION_MS * bench.scale,
    });
    await publisher.stop();
    await dispatcher.stop();
    for (const line of dispatcher.texts) tell(line);
    await database.drop();
    return [
      { name: "p50", value: timed.p50Ms, unit: "ms", goal: { atMost: 4 } },
      { name: "p99", value: timed.p99Ms, unit: "ms" },
      { name: "p99 of the median second", value: timed.p99OfSecondMs, unit: "ms", goal: { atMost: 20 } },
      { name: "longest", value: timed.longestMs, unit: "ms" },
      { name: "deliveries", value: timed.count, unit: "" },
      { name: "publisher behind its pace", value: timed.publisherBehindMs, unit: "ms at most" },
    ];
  },
};
