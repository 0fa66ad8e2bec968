import type { Published } from "../../processes/publisher-process.ts";
import { countDelivered, type Flood, type Ground, type PreparedFlood } from "./flood.ts";

const BURST = 40_000;
const BATCH = 100;
const CLIENTS = 4;

/** One account publishes a burst for its endpoint, which answers at once. */
export const oneLane: Flood = {
  name: "flood of one lane",
  prepare: async (ground) => publishBurst(ground, 1),
};

/** The same of as many accounts, whose endpoints succeed by answers that take long to read. */
export const costlyAnswers = (accountsCount: number): Flood => ({
  name: `costly answers of ${accountsCount}`,
  prepare: async (ground) => {
    await ground.bench.behave({ isTiming: true, costlyHosts: accountsCount });
    return publishBurst(ground, accountsCount);
  },
});

function publishBurst(ground: Ground, accountsCount: number): PreparedFlood {
  const { bench, database, publisher } = ground;
  const accountIds = ground.accountIds.slice(0, accountsCount);
  return {
    start: () =>
      publisher.ask("publishAhead", {
        accountIds,
        batch: BATCH,
        clients: CLIENTS,
        aheadMax: Number.MAX_SAFE_INTEGER,
        total: BURST * bench.scale,
      }),
    stop: async () => {
      const { published } = await publisher.ask<Published>("stop");
      return [
        { name: "published by it", value: published, unit: "" },
        { name: "of that, delivered", value: await countDelivered(database, accountIds), unit: "" },
      ];
    },
  };
}
