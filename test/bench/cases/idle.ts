import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { type Bench, untilNoneOpen } from "../bench.ts";
import type { BenchDatabase } from "../database.ts";
import { type BenchCase, type Figure, formatNumber } from "../figures.ts";
import { publishFlatOut } from "../flat-out.ts";
import { withApi } from "../installation.ts";
import { memoryMib } from "../measuring/processes.ts";
import { cpuBetween, cpuByProcess, takeSnapshot } from "../measuring/snapshot.ts";
import { readStatements } from "../measuring/statements.ts";

/** After what warms up has been delivered: connections that are not needed are closed after 10 s. */
const SETTLES_MS = 20_000;
const DURATION_MS = 60_000;
const PUBLISHED = 20;
/** Statements that ran more often than this are told. */
const OFTEN_PER_SECOND = 0.05;

export const idle: BenchCase<Bench> = {
  name: "idle",
  says: "One serve and one dispatch with nothing to do, for a minute: what they and the database cost at rest.",
  run: async (bench, tell) => {
    const database = await bench.server.createDatabase();
    const accountIds = bench.server.accountIds.slice(0, 1);
    const figures = await withApi(
      bench,
      database,
      accountIds,
      tell,
      async ({ api, dispatcher, publisher, http }) => {
        const stream = { accountIds, batch: 1, clients: 1, total: PUBLISHED, via: http };
        await publishFlatOut(bench, publisher, { streams: [stream], durationMs: null });
        await untilNoneOpen(database);
        await wait(SETTLES_MS * bench.scale);
        const watched = {
          database,
          dispatcherPids: [dispatcher.pid],
          apiPid: api.pid,
          receiverPid: bench.receiverPid,
          publisherPid: publisher.pid,
        };
        const look = async () => ({
          snapshot: await takeSnapshot(watched),
          transactions: await countTransactions(database),
          statements: new Map((await statementsOf(database)).map(({ text, calls }) => [text, calls])),
          wakeUps: [api.pid, dispatcher.pid].map(countWakeUps),
          atMs: performance.now(),
        });
        const before = await look();
        await wait(DURATION_MS * bench.scale);
        const after = await look();
        const seconds = (after.atMs - before.atMs) / 1_000;
        for (const [text, calls] of after.statements) {
          const perSecond = (calls - (before.statements.get(text) ?? 0)) / seconds;
          if (perSecond > OFTEN_PER_SECOND) tell(`${formatNumber(perSecond)}/s: ${text}`);
        }
        const cpu = cpuByProcess(cpuBetween(before.snapshot, after.snapshot, seconds * 10_000));
        const share = (name: string) => cpu.get(name) ?? 0;
        const all = share("serve") + share("dispatcher") + share("PostgreSQL");
        const [served, dispatched] = after.wakeUps.map((count, n) => (count - before.wakeUps[n]!) / seconds);
        const connections = await countConnections(database);
        return [
          {
            name: "CPU of serve, dispatcher, PostgreSQL together",
            value: all,
            unit: "% of a core",
            goal: { atMost: 1.5 },
          },
          ...["serve", "dispatcher", "PostgreSQL"].map((name) => ({
            name: `CPU of ${name}`,
            value: share(name),
            unit: "% of a core",
          })),
          {
            name: "transactions",
            value: (after.transactions - before.transactions) / seconds,
            unit: "/s",
            goal: { atMost: 3 },
          },
          { name: "wake-ups of serve", value: served!, unit: "/s", goal: { atMost: 10 } },
          { name: "wake-ups of the dispatcher", value: dispatched!, unit: "/s", goal: { atMost: 10 } },
          { name: "connections of serve", value: connections.serve, unit: "", goal: { atMost: 6 } },
          {
            name: "connections of the dispatcher",
            value: connections.dispatch,
            unit: "",
            goal: { atMost: 6 },
          },
          { name: "RSS of serve", value: memoryMib(api.pid).now, unit: "MiB", goal: { atMost: 110 } },
          {
            name: "RSS of the dispatcher",
            value: memoryMib(dispatcher.pid).now,
            unit: "MiB",
            goal: { atMost: 110 },
          },
        ] satisfies Figure[];
      },
    );
    await database.drop();
    return figures;
  },
};

/** Of this database, this benchmark's own included, which are three. */
async function countTransactions({ pool }: BenchDatabase): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    `/* bench */ select (xact_commit + xact_rollback)::float8 as count from pg_stat_database
     where datname = current_database()`,
  );
  return rows[0]!.count;
}

async function statementsOf(database: BenchDatabase) {
  return database.countsStatements ? await readStatements(database) : [];
}

/** How often the main thread has gone to sleep: each turn of an event loop that waits for something ends in it. */
function countWakeUps(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  return Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1]);
}

/** By what their names say whose they are; the steps' process counts as the dispatcher's. */
async function countConnections({ pool }: BenchDatabase): Promise<{ serve: number; dispatch: number }> {
  const { rows } = await pool.query<{ name: string; count: number }>(
    `/* bench */ select application_name as name, count(*)::integer as count from pg_stat_activity
     where datname = current_database() and application_name like 'sealpost%' group by 1 order by 1`,
  );
  const ofServe = ["sealpost serve", "sealpost api", "sealpost log", "sealpost events"];
  const sum = (isServe: boolean) =>
    rows
      .filter(({ name }) => ofServe.some((known) => name.startsWith(known)) === isServe)
      .reduce((s, { count }) => s + count, 0);
  process.stderr.write(`  connections: ${rows.map(({ name, count }) => `${name} ${count}`).join(", ")}\n`);
  return { serve: sum(true), dispatch: sum(false) };
}
