import { afterAll, beforeAll, expect, it } from "vitest";
import { LEFT_TABLES, LOG_TABLES, OPENING_TABLES, TABLES_NOT_MOVED } from "../../src/store/move-tables.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

type Table = { name: string; columns: string[] };

let database: TestDatabase;
let tables: readonly Table[];

beforeAll(async () => {
  database = await createTestDatabase();
  const { rows } = await database.pool.query<Table>(
    `select relname as name, array_agg(attname::text) filter (where attname is not null) as columns
     from pg_class as c left join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where relnamespace = 'sealpost'::regnamespace and relkind in ('r', 'p') and not relispartition
     group by relname order by relname`,
  );
  tables = rows.map(({ name, columns }) => ({ name, columns: columns ?? [] }));
});
afterAll(() => database.drop());

const moved = [...LOG_TABLES, ...OPENING_TABLES];
const withChildren = (list: typeof moved) =>
  list.flatMap(({ name, children = [] }) => [name, ...children.map((child) => child.name)]);

it("moves every table with an account's rows, or says why not: a new one has to be thought about", () => {
  const known = [...withChildren(moved), ...Object.keys(TABLES_NOT_MOVED)];
  expect(known.sort()).toEqual(tables.map(({ name }) => name));
});

it("names columns that there are", () => {
  for (const { name, key, accountId = "account_id", instead = {} } of moved) {
    const columns = tables.find((table) => table.name === name)!.columns;
    expect(columns, name).toEqual(expect.arrayContaining([accountId, ...key, ...Object.keys(instead)]));
  }
});

it("deletes from every table with an account's rows in the end, but what tells callers where it is", () => {
  const deleted = withChildren([...LEFT_TABLES]);
  const ofAccounts = tables.filter(({ columns }) => columns.includes("account_id")).map(({ name }) => name);
  const left = ofAccounts.filter((name) => !deleted.includes(name));
  // What is open or held was parked.
  expect(left).toEqual(["api_keys", "held_deliveries", "moves", "open_deliveries"]);
});
