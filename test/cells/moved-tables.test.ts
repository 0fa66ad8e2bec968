import { afterAll, beforeAll, expect, it } from "vitest";
import {
  ERASED_TABLES,
  LEFT_TABLES,
  LOG_TABLES,
  OPENING_TABLES,
  WAITING_TABLES,
} from "../../src/cells/move-tables-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

/** What is not moved, and why. Tables of areas are in schemas of their own, and hinder the move. */
const TABLES_NOT_MOVED: Readonly<Record<string, string>> = {
  activity: "the target counts the attempts that arrive",
  activity_state: "each cell's own",
  announcing: "a lock",
  console_sessions: "a link that was copied could be entered in both cells; people open the console again",
  feed_steps: "each cell's own; the target's is taken beyond the source's position",
  held_deliveries: "parked before it is copied",
  late_attempts: "to be counted at the source; at the target those that arrive are",
  leader: "each cell's own",
  migration_lock: "a lock",
  migrations: "must be the same",
  moves: "is about the move itself",
  notice_turn: "each cell's own",
  open_deliveries: "parked before it is copied",
  published: "what is published at the target is counted there",
  published_state: "each cell's own",
  quarantine_lock: "a lock",
  receiver_addresses: "whose turn it is now",
  rate_limits: "counts of the minute under way",
  settings: "each cell's own",
  storage_limits: "each cell's own",
  write_probe: "holds nothing",
};

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

it("erases from every table with an account's rows, but what says that it was erased, or moved here", () => {
  const erased = withChildren([...WAITING_TABLES, ...ERASED_TABLES] as typeof moved);
  const ofAccounts = tables.filter(({ columns }) => columns.includes("account_id")).map(({ name }) => name);
  expect(ofAccounts.filter((name) => !erased.includes(name))).toEqual(["moves"]);
});

/** Of each unique index: its table, and its columns. */
async function readUniqueKeys(): Promise<readonly Table[]> {
  const { rows } = await database.pool.query<Table>(
    `select c.relname as name, array_agg(a.attname::text) as columns
     from pg_index as i join pg_class as c on c.oid = i.indrelid
       join pg_attribute as a on a.attrelid = c.oid and a.attnum = any (i.indkey)
     where c.relnamespace = 'sealpost'::regnamespace and i.indisunique and i.indpred is null and i.indexprs is null
     group by i.indexrelid, c.relname`,
  );
  return rows;
}

it("tells the rows of a page apart: the next one begins behind a row that only one has", async () => {
  const uniqueKeys = await readUniqueKeys();
  const isUnique = (name: string, columns: readonly string[]) =>
    uniqueKeys.some((key) => key.name === name && key.columns.every((column) => columns.includes(column)));
  const keys = moved.flatMap(({ name, accountId = "account_id", key, children = [] }) => [
    { name, columns: [accountId, ...key] },
    ...children.map((child) => ({ name: child.name, columns: [child.parentId, ...child.key] })),
  ]);
  expect(keys.filter(({ name, columns }) => !isUnique(name, columns))).toEqual([]);
});

it("copies what is referred to before what refers to it", async () => {
  const { rows } = await database.pool.query<{ name: string; to: string }>(
    `select distinct c.relname as name, r.relname as to
     from pg_constraint as f join pg_class as c on c.oid = f.conrelid join pg_class as r on r.oid = f.confrelid
     where f.contype = 'f' and f.conparentid = 0 and c.relnamespace = 'sealpost'::regnamespace and c.oid <> r.oid`,
  );
  const order = withChildren(moved);
  const isOpening = (name: string) => OPENING_TABLES.some((table) => table.name === name);
  const references = rows.filter(({ name }) => order.includes(name));
  expect(references.map(({ name, to }) => `${name} ${to}`)).toContain("api_keys users");
  for (const { name, to } of references) {
    expect(order.indexOf(to), `${name} refers to ${to}`).toBeLessThan(order.indexOf(name));
    // The account appears last of all: what came before it refers to nothing that comes with it.
    if (isOpening(to)) expect(isOpening(name), `${name} refers to ${to}`).toBe(true);
  }
});
