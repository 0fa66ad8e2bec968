import { amidBaseline, measurePlainInsert } from "../baselines.ts";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import type { BenchCase } from "../figures.ts";
import { costFigures, publishWatched, warmUp } from "../flat-out.ts";
import { withDispatcher } from "../installation.ts";

const WARM_UP = 1_000;
const DURATION_MS = 6_000;
const CONNECTIONS = 24;

export const sqlSingle: BenchCase<Bench> = {
  name: "sql-single",
  says:
    "publish_analysis, one a transaction, by 24 connections, for one account with one endpoint, for 6 s and until " +
    "the last has arrived; beside inserts of the same text into a plain table.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const { result, baseline } = await amidBaseline(
      () => measurePlainInsert(bench, database),
      () => deliver(bench, database, tell),
    );
    await database.drop();
    const { publishedPerSecond: published, deliveredPerSecond: delivered } = result;
    return [
      { name: "published", value: published, unit: "/s" },
      { name: "delivered", value: delivered, unit: "/s" },
      { name: "plain insert", value: baseline.perSecond, unit: "/s" },
      {
        name: "published ÷ plain insert",
        value: published / baseline.perSecond,
        unit: "",
        goal: { atLeast: 0.45 },
      },
      { name: "delivered ÷ published", value: delivered / published, unit: "", goal: { atLeast: 0.95 } },
      ...costFigures(result, null),
      { name: "processors busy until the last", value: 100 * result.busyShare, unit: "%" },
    ];
  },
};

async function deliver(bench: Bench, database: BenchDatabase, tell: (line: string) => void) {
  const accountIds = bench.server.accountIds.slice(0, 1);
  return await withDispatcher(bench, database, tell, async ({ dispatcher, publisher }) => {
    const stream = { accountIds, batch: 1, clients: CONNECTIONS, total: null };
    await warmUp(bench, publisher, database, [stream], WARM_UP * bench.scale);
    const wish = { streams: [stream], durationMs: DURATION_MS * bench.scale };
    return await publishWatched(bench, publisher, wish, { database, dispatcherPids: [dispatcher.pid] }, tell);
  });
}
