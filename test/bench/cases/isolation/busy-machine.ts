import type { Published } from "../../processes/publisher-process.ts";
import type { Flood } from "./flood.ts";

const CLIENTS = 4;

/**
 * The control: a plain table is filled as fast as it goes, and Sealpost has nothing to do with it. What the healthy
 * accounts notice of that is the machine's doing: processors and disk that everybody waits for.
 */
export const busyMachine: Flood = {
  name: "busy machine",
  isControl: true,
  prepare: async ({ publisher, accountIds: [accountId] }) => ({
    start: () =>
      publisher.ask("publishAhead", {
        accountIds: [accountId],
        batch: 1,
        clients: CLIENTS,
        aheadMax: Number.MAX_SAFE_INTEGER,
        total: null,
        via: { kind: "insert" },
      }),
    stop: async () => {
      const { published } = await publisher.ask<Published>("stop");
      return [{ name: "rows inserted", value: published, unit: "" }];
    },
  }),
};
