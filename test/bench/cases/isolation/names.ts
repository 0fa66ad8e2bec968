import { memoryMib } from "../../measuring/processes.ts";
import type { Published } from "../../processes/publisher-process.ts";
import type { Flood } from "./flood.ts";

const NAMES = 100_000;
/** Faster, and the publishing alone would take both processors, and with them what is measured here. */
const PER_SECOND = 4_000;
const BATCH = 100;

/** One account publishes to that many hosts, each named once; all of them take the POST and never answer. */
export const names: Flood = {
  name: "flood of names",
  prepare: async ({ bench, dispatcherPid, publisher, accountIds: [accountId] }) => {
    const count = NAMES * bench.scale;
    const { silentNames: namesBefore } = await bench.received();
    let beforeMib = 0;
    return {
      start: async () => {
        beforeMib = memoryMib(dispatcherPid).now;
        await publisher.ask("publishPaced", {
          accountIds: [accountId],
          perSecond: PER_SECOND,
          batch: BATCH,
          total: count,
          webhookUrls: { pattern: bench.webhookUrl("silent-{n}"), count },
        });
      },
      stop: async () => {
        const { published } = await publisher.ask<Published>("stop");
        const { now, peak } = memoryMib(dispatcherPid);
        const { silentNames } = await bench.received();
        return [
          { name: "names published to", value: published, unit: "" },
          { name: "names that got a POST", value: silentNames - namesBefore, unit: "" },
          { name: "RSS of the dispatcher before", value: beforeMib, unit: "MiB" },
          { name: "RSS of the dispatcher after", value: now, unit: "MiB" },
          { name: "RSS of the dispatcher at most", value: peak, unit: "MiB" },
        ];
      },
    };
  },
};
