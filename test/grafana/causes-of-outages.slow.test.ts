// What is not there, or does not answer: the database, its tables, processes.
import { afterAll, beforeAll, expect } from "vitest";
import { playCauses, startAlerting } from "../support/alert-causes.ts";
import { type BusyInstallation, startBusyInstallation } from "../support/busy-installation.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import {
  begin,
  dropPartitionAhead,
  makePartitionsFrom,
  untilSomebodyWaits,
} from "../support/installation.ts";
import type { Prometheus } from "../support/prometheus.ts";
import { patience } from "../support/time-limits.ts";

let database: TestDatabase;
let proxy: DatabaseProxy;
let installation: BusyInstallation;
let prometheus: Prometheus;
let report: Awaited<ReturnType<typeof begin>> | null = null;
let isWorking = true;
let working: Promise<void>;

beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  installation = await startBusyInstallation({ ...database, url: proxy.url });
  prometheus = await startAlerting(installation.jobs);
  working = (async () => {
    // What fails is what is looked at.
    while (isWorking) await installation.work().catch(() => undefined);
  })();
}, patience(60_000));
afterAll(async () => {
  isWorking = false;
  await working;
  await prometheus.close();
  await installation.stop();
  await report?.rollback();
  await proxy.close();
  await database.drop();
});

playCauses(
  () => prometheus,
  [
    {
      what: "the rate limits' table cannot be used",
      alerts: ["SealpostLimiterFailing"],
      begin: () => database.pool.query("alter table sealpost.rate_limits rename to rate_limits_of_others"),
      end: () => database.pool.query("alter table sealpost.rate_limits_of_others rename to rate_limits"),
    },
    {
      what: "the feed has had no partition for two minutes",
      alerts: ["SealpostFeedBehind"],
      begin: async () => {
        await dropPartitionAhead(database.pool, "feed", 0);
        // From then on no step succeeds.
        await installation.work();
        await database.pool.query(
          `update sealpost.feed_steps set caught_up_at = caught_up_at - interval '2 minutes'
           where step = (select max(step) from sealpost.feed_steps)`,
        );
      },
      end: async () => makePartitionsFrom(database.pool, await dayBefore(0), 1),
    },
    {
      what: "the database answers late",
      alerts: ["SealpostDatabaseSlow"],
      begin: () => proxy.strike({ lateMs: 1_000 }),
      end: () => proxy.letGo(),
    },
    {
      what: "the database is away",
      alerts: ["SealpostDatabaseAway", "SealpostNobodyLeads", "SealpostApiFailing"],
      begin: () => proxy.cut(),
      end: () => proxy.restore(),
    },
  ],
);

playCauses(
  () => prometheus,
  [
    {
      what: "nobody has made the partitions of the next days",
      alerts: ["SealpostPartitionsRunningOut", "SealpostPartitionsMissing"],
      begin: dropPartitionsAhead,
    },
    {
      what: "the leader has died, and the next one cannot drop a day that a long report reads",
      alerts: ["SealpostProcessDown", "SealpostOldPartitionKept"],
      begin: async () => {
        await readOldDay();
        await killLeader();
        await untilSomebodyWaits(database.pool);
      },
    },
    {
      what: "no process is left",
      alerts: ["SealpostDispatcherGone", "SealpostApiGone"],
      begin: () => Promise.all([...installation.dispatchers, installation.api].map((one) => one.kill())),
    },
  ],
);

async function dropPartitionsAhead(): Promise<void> {
  const { rows } = await database.pool.query<{ relname: string }>(
    `select relname from pg_inherits join pg_class on pg_class.oid = inhrelid
     where inhparent = 'sealpost.attempts'::regclass
       and right(relname, 8) > to_char(now() at time zone 'UTC', 'YYYYMMDD')`,
  );
  expect(rows.length).toBeGreaterThan(7);
  for (const { relname } of rows) await database.pool.query(`drop table sealpost.${relname}`);
}

/** `2026-11-22`, so many days before the database's today. */
async function dayBefore(days: number): Promise<string> {
  const { rows } = await database.pool.query<{ day: string }>(
    "select ((now() at time zone 'UTC')::date - $1::integer)::text as day",
    [days],
  );
  return rows[0]!.day;
}

/** In a transaction that stays open. */
async function readOldDay(): Promise<void> {
  await makePartitionsFrom(database.pool, await dayBefore(40), 1);
  report = await begin(database.pool, "select count(*) from sealpost.attempts");
}

async function killLeader(): Promise<void> {
  const leaders = () => prometheus.query("sealpost_leader == 1");
  const [leader] = await prometheus.until(leaders, (found) => found.length === 1, 30_000);
  const index = installation.jobs["sealpost-dispatch"]!.indexOf(leader!.metric.instance!);
  await installation.dispatchers[index]!.kill();
}
