import { amidBaseline, measurePlainInsert } from "../baselines.ts";
import { type Bench, HOSTS } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, percentile } from "../figures.ts";
import { type FlatOut, publishFlatOut, warmUp } from "../flat-out.ts";
import { withDispatcher } from "../installation.ts";
import { type Timed, timeStream } from "../timed.ts";

const WARM_UP = 4_000;
const BURST = 40_000;
const BATCH = 50;
const CLIENTS = 4;
/** Of what the burst to one endpoint has reached. */
const STEADY_SHARE = 0.7;
const STEADY_WARM_UP_MS = 1_000;
const STEADY_MS = 6_000;
const GAP_MORE_MS = 300;

export const sqlBatches: BenchCase<Bench> = {
  name: "sql-batches",
  says:
    "publish_analyses with batches of 50: a burst of 40,000 to 200 receivers, the same to one endpoint of one " +
    "account, and then 70 % of what that endpoint got a second. Until the last has arrived, from COMMIT to first byte.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const { result, baseline } = await amidBaseline(
      () => measurePlainInsert(bench, database),
      () => deliver(bench, database, tell),
    );
    await database.drop();
    const { many, one, steady } = result;
    const gapMs = baseline.longestGapMs + GAP_MORE_MS;
    return [
      ...burstFigures("200 receivers", many),
      ...burstFigures("one endpoint", one),
      {
        name: "one endpoint ÷ 200 receivers",
        value: one.deliveredPerSecond / many.deliveredPerSecond,
        unit: "",
        goal: { atLeast: 0.8 },
      },
      { name: "plain insert: longest gap", value: baseline.longestGapMs, unit: "ms" },
      { name: "one endpoint: longest gap", value: one.longestPauseMs, unit: "ms", goal: { atMost: gapMs } },
      {
        name: "one endpoint: processors busy until the last",
        value: 100 * one.busyShare,
        unit: "%",
        goal: { atLeast: 90 },
      },
      { name: "steady: published", value: steady.perSecond, unit: "/s" },
      { name: "steady: p50", value: steady.timed.p50Ms, unit: "ms" },
      { name: "steady: p99", value: steady.timed.p99Ms, unit: "ms" },
      { name: "steady: longest gap", value: steady.timed.longestPauseMs, unit: "ms" },
    ];
  },
};

function burstFigures(name: string, burst: FlatOut): Figure[] {
  return [
    { name: `${name}: published`, value: burst.publishedPerSecond, unit: "/s" },
    { name: `${name}: delivered`, value: burst.deliveredPerSecond, unit: "/s" },
    { name: `${name}: until the last`, value: burst.untilLastMs / 1_000, unit: "s" },
    { name: `${name}: p50`, value: percentile(burst.latenciesMs, 0.5) / 1_000, unit: "s" },
    { name: `${name}: p99`, value: percentile(burst.latenciesMs, 0.99) / 1_000, unit: "s" },
  ];
}

type Found = {
  readonly many: FlatOut;
  readonly one: FlatOut;
  readonly steady: { readonly perSecond: number; readonly timed: Timed };
};

async function deliver(bench: Bench, database: BenchDatabase, tell: (line: string) => void): Promise<Found> {
  return await withDispatcher(bench, database, tell, async ({ publisher }) => {
    const burstTo = (accounts: number) => {
      const accountIds = bench.server.accountIds.slice(0, accounts);
      return { accountIds, batch: BATCH, clients: CLIENTS, total: BURST * bench.scale };
    };
    await warmUp(bench, publisher, database, [burstTo(HOSTS)], WARM_UP * bench.scale);
    const many = await publishFlatOut(bench, publisher, { streams: [burstTo(HOSTS)], durationMs: null });
    const one = await publishFlatOut(bench, publisher, { streams: [burstTo(1)], durationMs: null });
    const perSecond = STEADY_SHARE * one.deliveredPerSecond;
    const timed = await timeStream(bench, publisher, {
      accountIds: bench.server.accountIds.slice(0, 1),
      batch: BATCH,
      perSecond,
      warmUpMs: STEADY_WARM_UP_MS,
      durationMs: STEADY_MS * bench.scale,
    });
    return { many, one, steady: { perSecond, timed } };
  });
}
