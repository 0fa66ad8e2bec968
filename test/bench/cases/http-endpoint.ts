import { amidBaseline, measureBareFastify, measurePlainInsert, REQUESTS_IN_FLIGHT } from "../baselines.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import type { BenchCase } from "../figures.ts";
import { costFigures, publishWatched, warmUp } from "../flat-out.ts";
import { withApi } from "../installation.ts";
import { memoryMib } from "../measuring/processes.ts";
import { knownLimit } from "./limit.ts";

const WARM_UP = 1_000;
const DURATION_MS = 8_000;

export const httpEndpoint: BenchCase<Bench> = {
  name: "http-endpoint",
  says:
    "The customer's case: POST /v1/analyses for one account with one endpoint, 64 requests in flight, 1 KB each, for " +
    `8 s and until the last has arrived; beside a fastify that only inserts each analysis.`,
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const limitPerSecond = await knownLimit(bench);
    const insert = await measurePlainInsert(bench, database);
    const { result, baseline } = await amidBaseline(
      () => measureBareFastify(bench, database),
      () => deliver(bench, database, tell),
    );
    await database.drop();
    const { publishedPerSecond: published, deliveredPerSecond: delivered } = result;
    return [
      { name: "published", value: published, unit: "/s" },
      { name: "delivered", value: delivered, unit: "/s" },
      { name: "bare fastify", value: baseline.perSecond, unit: "/s" },
      { name: "plain insert, 24 connections", value: insert.perSecond, unit: "/s" },
      { name: "limit", value: limitPerSecond, unit: "/s" },
      {
        name: "published ÷ bare fastify",
        value: published / baseline.perSecond,
        unit: "",
        goal: { atLeast: 0.6 },
      },
      {
        name: "delivered ÷ bare fastify",
        value: delivered / baseline.perSecond,
        unit: "",
        goal: { atLeast: 0.45 },
      },
      { name: "published ÷ plain insert", value: published / insert.perSecond, unit: "" },
      { name: "delivered ÷ limit", value: delivered / limitPerSecond, unit: "" },
      ...costFigures(result, 900),
      { name: "processors busy until the last", value: 100 * result.busyShare, unit: "%" },
      { name: "RSS of serve", value: result.serveRssMib, unit: "MiB", goal: { atMost: 200 } },
      { name: "RSS of the dispatcher", value: result.dispatcherRssMib, unit: "MiB" },
    ];
  },
};

async function deliver(bench: Bench, database: BenchDatabase, tell: (line: string) => void) {
  const accountIds = bench.server.accountIds.slice(0, 1);
  return await withApi(bench, database, accountIds, tell, async ({ api, dispatcher, publisher, http }) => {
    const stream = { accountIds, batch: 1, clients: REQUESTS_IN_FLIGHT, total: null, via: http };
    await warmUp(bench, publisher, database, [stream], WARM_UP * bench.scale);
    const watched = { database, dispatcherPids: [dispatcher.pid], apiPid: api.pid };
    const wish = { streams: [stream], durationMs: DURATION_MS * bench.scale };
    const found = await publishWatched(bench, publisher, wish, watched, tell);
    tell(`${found.count} published, the last arrived after ${(found.untilLastMs / 1_000).toFixed(1)} s`);
    return {
      ...found,
      serveRssMib: memoryMib(api.pid).now,
      dispatcherRssMib: memoryMib(dispatcher.pid).now,
    };
  });
}
