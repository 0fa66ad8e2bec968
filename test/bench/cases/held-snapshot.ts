import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import type { Bench } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, formatNumber } from "../figures.ts";
import { warmUp } from "../flat-out.ts";
import { withApi } from "../installation.ts";
import { readStatements } from "../measuring/statements.ts";
import { seedLog } from "../seeding.ts";
import { type Timed, timeStream } from "../timed.ts";

const PER_SECOND = 400;
const WARM_UP = 2_000;
const STREAM_WARM_UP_MS = 1_000;
const SLICE_MS = 20_000;
/** While the snapshot is held. */
const HELD_MS = 30 * 60_000;
/** While one dump follows another. */
const DUMPED_MS = 2 * 60_000;
/** Deliveries in the log that is dumped. */
const LOGGED = 1_000_000;
const SEEDED_BODY = '{"id":"seeded","status":"succeeded"}';
const UNCOMMITTED = '{"id":"uncommitted","status":"succeeded"}';
/** Statements that take this much longer in the end are told. */
const GROWN = 2;

/** What stays beside the load until it is ended. */
type Beside = { end(): Promise<void> };

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
    const other = await bench.server.createDatabase();
    const begin = async (database: BenchDatabase): Promise<Beside> => {
      const held = await Promise.all([hold(database.url), hold(database.publisherUrl), hold(other.url)]);
      await held[1]!.query("select sealpost.publish_analysis($1, $2)", [
        bench.server.accountIds[0],
        UNCOMMITTED,
      ]);
      return { end: async () => void (await Promise.all(held.map((holder) => holder.end()))) };
    };
    const figures = await measureBeside(bench, tell, { besideMs: HELD_MS * bench.scale, begin });
    await other.drop();
    return figures;
  },
};

/** What pg_dump has the server do: it reads all of our tables in one snapshot. Over and over, as ours are small. */
export const backup: BenchCase<Bench> = {
  name: "backup",
  says:
    `POST /v1/analyses ${PER_SECOND} times a second for one endpoint while our schemas, with a log of ` +
    `${formatNumber(LOGGED)} deliveries, are dumped in one snapshot for two minutes; beside the same without it.`,
  run: (bench, tell) =>
    measureBeside(bench, tell, {
      besideMs: DUMPED_MS * bench.scale,
      prepare: ({ pool }) =>
        seedLog(pool, bench.server.accountIds, {
          firstDaysAgo: 1,
          days: 7,
          deliveries: LOGGED * bench.scale,
          largeAccountId: bench.server.accountIds[1]!,
          body: SEEDED_BODY,
        }),
      begin: async (database) => {
        const dumper = await hold(database.url);
        let isOver = false;
        let dumps = 0;
        const dumping = (async () => {
          for (; !isOver; dumps++) await dumpAll(dumper);
        })();
        return {
          end: async () => {
            isOver = true;
            await dumping;
            await dumper.end();
            tell(`dumped ${dumps} times`);
          },
        };
      },
    }),
};

async function dumpAll(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables
     where schemaname in ('sealpost', 'graphile_worker', 'workspace')`,
  );
  for (const { name } of rows) await client.query(`copy (select * from only ${name}) to '/dev/null'`);
}

type BesideOptions = {
  readonly besideMs: number;
  readonly prepare?: (database: BenchDatabase) => Promise<void>;
  readonly begin: (database: BenchDatabase) => Promise<Beside>;
};

async function measureBeside(
  bench: Bench,
  tell: (line: string) => void,
  { besideMs, prepare, begin }: BesideOptions,
): Promise<Figure[]> {
  const database = await bench.server.createDatabase();
  await prepare?.(database);
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
    const beside = await begin(database);
    const slices: Timed[] = [];
    const endsAtMs = performance.now() + besideMs;
    while (performance.now() < endsAtMs) {
      slices.push(await slice());
      const { p50Ms, p99Ms } = slices.at(-1)!;
      tell(`p50 ${formatNumber(p50Ms)} ms, p99 ${formatNumber(p99Ms)} ms`);
      await meanMs().then((means) => tellGrown(means, meansBefore, tell));
    }
    await beside.end();
    await wait(1_000);
    const after = await slice();
    return figuresOf({ before, slices, after });
  });
  await database.drop();
  return figures;
}

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
