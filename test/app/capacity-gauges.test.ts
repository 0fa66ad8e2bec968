import { expect, test } from "vitest";
import { readCapacity } from "../../src/app/database-gauges-sql.ts";
import { createTestAccount, flushStatistics, publish } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const database = await openDatabase();

const SIZES = `
  select parent.relname as "table", sum((
    select pg_relation_size(heap.oid) + coalesce(sum(pg_relation_size(indexrelid)), 0)
    from pg_class as heap left join pg_index on indrelid = heap.oid
    where heap.oid = day.oid
    group by heap.oid
  ) + coalesce((
    select pg_relation_size(indrelid) + sum(pg_relation_size(indexrelid))
    from pg_index where indrelid = day.reltoastrelid group by indrelid
  ), 0))::float8 as bytes
  from pg_inherits
  join pg_class as parent on parent.oid = inhparent
  join pg_class as day on day.oid = inhrelid
  where parent.relname in ('deliveries', 'bodies', 'attempts', 'feed')
  group by 1`;

test("the log is as large as its tables, once PostgreSQL has looked at them", async () => {
  const { accountId } = await createTestAccount(database);
  const text = "x".repeat(2_000);
  for (let n = 0; n < 200; n += 1) {
    await publish(database.pool, accountId, JSON.stringify({ id: `a-${n}`, status: "succeeded", text }));
  }
  await database.pool.query("vacuum (analyze)");
  const { rows } = await database.pool.query<{ table: string; bytes: number }>(SIZES);
  const { logBytes } = await readCapacity(database.pool);
  expect(Object.keys(logBytes).sort()).toEqual(rows.map(({ table }) => table).sort());
  // Without the maps of free space and visibility, which are small where the table is not.
  const estimates = rows.map(({ table }) => logBytes[table as keyof typeof logBytes]);
  expect(estimates).toEqual(rows.map(({ bytes }) => bytes));
  expect(logBytes.bodies).toBeGreaterThan(100_000);
});

test("what is written and done grows with every delivery", async () => {
  await flushStatistics(database.pool);
  const before = await readCapacity(database.pool);
  const { accountId } = await createTestAccount(database);
  await publish(database.pool, accountId, '{"id":"one-more","status":"succeeded"}');
  await database.pool.query("select count(*) from generate_series(1, 3000000)");
  await flushStatistics(database.pool);
  const after = await readCapacity(database.pool);
  expect(after.busyMsEver).toBeGreaterThan(before.busyMsEver);
  expect(after.databaseBytes).toBeGreaterThan(1_000_000);
});
