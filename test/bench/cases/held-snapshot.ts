import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import type { Bench } from "../bench.ts";
import { type BenchCase, type Figure, formatNumber } from "../figures.ts";
import { warmUp } from "../flat-out.ts";
import { withApi } from "../installation.ts";
import { readStatements } from "../measuring/statements.ts";
import { type Timed, timeStream } from "../timed.ts";

const PER_SECOND = 400;
const WARM_UP = 2_000;
const STREAM_WARM_UP_MS = 1_000;
const SLICE_MS = 20_000;
/** While the snapshot is held. */
const HELD_MS = 30 * 60_000;
const UNCOMMITTED = '{"id":"uncommitted","status":"succeeded"}';
/** Statements that take this much longer in the end are told. */
const GROWN = 2;

/**
 * Who holds it: a report in a transaction of its own, one that has published and forgets to commit, and one in another
 * database of the server, whose snapshot counts for what is shared.
 */
export const heldSnapshot: BenchCase<Bench> = {
  name: "held-snapshot",
  says:
    `POST /v1/analyses ${PER_SECOND} times a second for one endpoint while a snapshot, an idle transaction that has ` +
    "published, and a snapshot in another database are held for half an hour; beside the same without them.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const other = await bench.server.createDatabase();
    const accountIds = bench.server.accountIds.slice(0, 1);
    const figures = await withApi(bench, database, accountIds, tell, async ({ publisher, http }) => {
      const stream = { accountIds, batch: 1, via: http };
      await warmUp(bench, publisher, database, [{ ...stream, clients: 16, total: null }], WARM_UP);
      const slice = () =>
        timeStream(bench, publisher, {
          ...stream,
          perSecond: PER_SECOND,
          warmUpMs: STREAM_WARM_UP_MS,
          durationMs: SLICE_MS,
        });
      const meanMs = async () => {
        const lines = await readStatements(database);
        await database.pool.query("/* bench */ select pg_stat_statements_reset()");
        return new Map(lines.map(({ text, calls, totalMs }) => [text, { calls, meanMs: totalMs / calls }]));
      };
      await meanMs();
      const before = await slice();
      const meansBefore = await meanMs();
      const held = await Promise.all([hold(database.url), hold(database.publisherUrl), hold(other.url)]);
      await held[1]!.query("select sealpost.publish_analysis($1, $2)", [accountIds[0], UNCOMMITTED]);
      const slices: Timed[] = [];
      const endsAtMs = performance.now() + HELD_MS * bench.scale;
      while (performance.now() < endsAtMs) {
        slices.push(await slice());
        const { p50Ms, p99Ms } = slices.at(-1)!;
        tell(`p50 ${formatNumber(p50Ms)} ms, p99 ${formatNumber(p99Ms)} ms`);
        await meanMs().then((means) => tellGrown(means, meansBefore, tell));
      }
      for (const holder of held) await holder.end();
      await wait(1_000);
      const after = await slice();
      return figuresOf({ before, slices, after });
    });
    await database.drop();
    await other.drop();
    return figures;
  },
};

/** Begins a transaction that sees what is there now, and goes on seeing it until it ends. */
async function hold(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    options: "-c idle_in_transaction_session_timeout=0",
  });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("begin isolation level repeatable read; select 1");
  return client;
}

type Means = ReadonlyMap<string, { readonly calls: number; readonly meanMs: number }>;

function tellGrown(means: Means, before: Means, tell: (line: string) => void): void {
  for (const [text, { calls, meanMs }] of means) {
    const first = before.get(text)?.meanMs;
    if (first !== undefined && calls > 5 && meanMs > GROWN * first && meanMs > 0.1) {
      tell(`  ${formatNumber(first)} → ${formatNumber(meanMs)} ms × ${calls}: ${text}`);
    }
  }
}

function figuresOf(found: { before: Timed; slices: readonly Timed[]; after: Timed }): Figure[] {
  const { before, slices, after } = found;
  const first = slices[Math.min(2, slices.length - 1)]!;
  const last = slices.at(-1)!;
  return [
    { name: "without: p50", value: before.p50Ms, unit: "ms" },
    { name: "without: p99", value: before.p99Ms, unit: "ms" },
    { name: "after a minute: p50", value: first.p50Ms, unit: "ms" },
    { name: "in the end: p50", value: last.p50Ms, unit: "ms" },
    { name: "in the end: p99", value: last.p99Ms, unit: "ms" },
    { name: "p50 ÷ without", value: last.p50Ms / before.p50Ms, unit: "", goal: { atMost: 1.5 } },
    { name: "p99 ÷ without", value: last.p99Ms / before.p99Ms, unit: "", goal: { atMost: 3 } },
    {
      name: "p50 in the end ÷ after a minute",
      value: last.p50Ms / first.p50Ms,
      unit: "",
      goal: { atMost: 1.2 },
    },
    { name: "let go: p50", value: after.p50Ms, unit: "ms" },
  ];
}
