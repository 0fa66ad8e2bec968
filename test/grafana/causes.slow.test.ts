// Alerts, each by its cause, on a real Prometheus beside real processes: the rules as they are, but for their patience.
// test/grafana/alerts.test.ts has all of them silent and firing, on series that are made up.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BusyInstallation, startBusyInstallation } from "../support/busy-installation.ts";
import { GRAFANA } from "../support/dashboards.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { type Prometheus, startPrometheus } from "../support/prometheus.ts";
import { patience } from "../support/time-limits.ts";

const FIRE_WITHIN_MS = 60_000;

const folder = mkdtempSync(join(tmpdir(), "sealpost-causes-"));
let database: TestDatabase;
let proxy: DatabaseProxy;
let installation: BusyInstallation;
let prometheus: Prometheus;
let isWorking = true;
let working: Promise<void>;

beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  installation = await startBusyInstallation({ ...database, url: proxy.url });
  const rules = readFileSync(`${GRAFANA}prometheus/alerts.yml`, "utf8");
  const impatient = rules.replaceAll(/^ +for: .*\n/gm, "").replaceAll(/\[\d+[mh]\]/g, "[15s]");
  writeFileSync(join(folder, "alerts.yml"), impatient);
  prometheus = await startPrometheus(installation.jobs, join(folder, "alerts.yml"));
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
  await proxy.close();
  await database.drop();
  rmSync(folder, { recursive: true });
});

async function firing(): Promise<string[]> {
  const samples = await prometheus.query('ALERTS{alertstate="firing"}');
  return [...new Set(samples.map(({ metric }) => metric.alertname ?? ""))];
}

const untilAll = (names: readonly string[]) =>
  prometheus.until(firing, (fire) => names.every((name) => fire.includes(name)), FIRE_WITHIN_MS);
const untilNone = (names: readonly string[]) =>
  prometheus.until(firing, (fire) => names.every((name) => !fire.includes(name)), FIRE_WITHIN_MS);

type Cause = {
  readonly what: string;
  readonly alerts: readonly string[];
  readonly begin: () => unknown;
  /** Absent: it stays so. */
  readonly end?: () => unknown;
};

const causes: readonly Cause[] = [
  {
    what: "the rate limits' table cannot be used",
    alerts: ["SealpostLimiterFailing"],
    begin: () => database.pool.query("alter table sealpost.rate_limits rename to rate_limits_of_others"),
    end: () => database.pool.query("alter table sealpost.rate_limits_of_others rename to rate_limits"),
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
  {
    what: "nobody has made the partitions of the next days",
    alerts: ["SealpostPartitionsRunningOut", "SealpostPartitionsMissing"],
    begin: dropPartitionsAhead,
  },
  {
    what: "a dispatcher has died",
    alerts: ["SealpostProcessDown"],
    begin: () => installation.dispatchers[0]!.kill(),
  },
  {
    what: "no process is left",
    alerts: ["SealpostDispatcherGone", "SealpostApiGone"],
    begin: () => Promise.all([installation.dispatchers[1]!.kill(), installation.api.kill()]),
  },
];

async function dropPartitionsAhead(): Promise<void> {
  const { rows } = await database.pool.query<{ relname: string }>(
    `select relname from pg_inherits join pg_class on pg_class.oid = inhrelid
     where inhparent = 'sealpost.attempts'::regclass
       and right(relname, 8) > to_char(now() at time zone 'UTC', 'YYYYMMDD')`,
  );
  expect(rows.length).toBeGreaterThan(7);
  for (const { relname } of rows) await database.pool.query(`drop table sealpost.${relname}`);
}

describe("an alert fires by its cause", { timeout: patience(2 * FIRE_WITHIN_MS) }, () => {
  test.each(causes)("$what: $alerts", async ({ alerts, begin, end }) => {
    await untilNone(alerts);
    await begin();
    await untilAll(alerts);
    if (end === undefined) return;
    await end();
    await untilNone(alerts);
  });
});
