import { createKeys } from "../../keys.ts";
import type { Via } from "../../processes/publish-calls.ts";
import type { Published } from "../../processes/publisher-process.ts";
import type { Flood } from "./flood.ts";

/** Connections, each with one request at a time: well below what `serve` takes from one address. */
const REQUESTS_IN_FLIGHT = 128;

/** One account publishes over HTTP as fast as `serve` answers, to the rate limit and beyond it. */
export const httpPublishes: Flood = {
  name: "flood of HTTP publishes",
  prepare: async ({ bench, database, publisher, accountIds }) => {
    const ids = accountIds.slice(0, 1);
    const api = await bench.startDefaultApi(database);
    const apiKeys = await createKeys(database, ids);
    const via: Via = { kind: "http", url: api.url, apiKeys, whenLimited: "counted" };
    return {
      start: () =>
        publisher.ask("publishAhead", {
          accountIds: ids,
          batch: 1,
          clients: REQUESTS_IN_FLIGHT,
          aheadMax: Number.MAX_SAFE_INTEGER,
          total: null,
          via,
        }),
      stop: async () => {
        const { published, refused } = await publisher.ask<Published>("stop");
        await api.stop();
        return [
          { name: "published by it", value: published, unit: "" },
          { name: "answered 429", value: refused, unit: "" },
        ];
      },
    };
  },
};
