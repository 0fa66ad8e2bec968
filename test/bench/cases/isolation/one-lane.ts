import type { Published } from "../../processes/publisher-process.ts";
import { countDelivered, type Flood } from "./flood.ts";

const BURST = 40_000;
const BATCH = 100;
const CLIENTS = 4;

/** One account publishes a burst for its endpoint, which answers at once. */
export const oneLane: Flood = {
  name: "flood of one lane",
  prepare: async ({ bench, database, publisher, accountIds: [accountId] }) => ({
    start: () =>
      publisher.ask("publishAhead", {
        accountIds: [accountId],
        batch: BATCH,
        clients: CLIENTS,
        aheadMax: Number.MAX_SAFE_INTEGER,
        total: BURST * bench.scale,
      }),
    stop: async () => {
      const { published } = await publisher.ask<Published>("stop");
      return [
        { name: "published by it", value: published, unit: "" },
        { name: "of that, delivered", value: await countDelivered(database, accountId), unit: "" },
      ];
    },
  }),
};
