import { afterAll, beforeAll, expect, it } from "vitest";
import { migrate } from "../../src/base/database/migrate.ts";
import { Cluster } from "../faults/harness/cluster.ts";
import { OwnPostgres } from "../faults/harness/own-postgres.ts";

// What the server itself counted, whoever sent it: the dispatcher, graphile-worker, the leader. A server of its own,
// because the counting has to be loaded when it starts.

const DELIVERIES = 1_000;
const STATEMENTS_PER_DELIVERY_MAX = 0.5;

let postgres: OwnPostgres;
let cluster: Cluster;

beforeAll(async () => {
  postgres = await OwnPostgres.start({ settings: { shared_preload_libraries: "pg_stat_statements" } });
  await migrate({ databaseUrl: postgres.url });
  cluster = await Cluster.start({ databaseUrl: postgres.url, dispatchers: 0 });
  await cluster.pool.query("create extension pg_stat_statements");
});
afterAll(async () => {
  await cluster?.close();
  await postgres?.close();
});

/** All but what this test asks itself, which says so by the name of a column. */
async function countStatements(): Promise<{ total: number; most: string }> {
  const { rows } = await cluster.pool.query<{ asked_by_test: string; query: string }>(
    `select calls as asked_by_test, regexp_replace(left(query, 70), '\\s+', ' ', 'g') as query
     from pg_stat_statements
     where toplevel and query not like '%asked_by_test%'
       and dbid = (select oid from pg_database where datname = current_database())
     order by calls desc`,
  );
  const total = rows.reduce((sum, row) => sum + Number(row.asked_by_test), 0);
  return { total, most: rows.map((row) => `${row.asked_by_test} ${row.query}`).join("\n") };
}

async function countOpen(): Promise<number> {
  const { rows } = await cluster.pool.query<{ asked_by_test: number }>(
    "select count(*)::integer as asked_by_test from sealpost.open_deliveries",
  );
  return rows[0]!.asked_by_test;
}

it.each([
  ["one endpoint", 1],
  ["twenty endpoints", 20],
])("takes half a statement per delivery at most, for a backlog of %s", async (_, endpoints) => {
  const accounts: string[] = [];
  for (let n = 0; n < endpoints; n++) accounts.push((await cluster.createAccount(`/${n}`)).accountId);
  const texts = Array.from(
    { length: DELIVERIES },
    (_, n) => `{"id":"${endpoints}-${n}","status":"succeeded"}`,
  );
  await cluster.pool.query("select sealpost.publish_analyses($1, $2, $3) as asked_by_test", [
    texts.map((_, n) => accounts[n % endpoints]),
    texts,
    texts.map(() => null),
  ]);
  await cluster.pool.query("select pg_stat_statements_reset() as asked_by_test");
  const dispatcher = await cluster.startDispatcher();
  await expect.poll(countOpen).toBe(0);
  const { total, most } = await countStatements();
  await dispatcher.kill();
  expect(total / DELIVERIES, most).toBeLessThanOrEqual(STATEMENTS_PER_DELIVERY_MAX);
});
