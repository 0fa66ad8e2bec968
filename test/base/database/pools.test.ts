import { describe, expect, it } from "vitest";
import {
  createApiPool,
  createDispatchPool,
  createGeneralPool,
  createMovePool,
  isRefusedData,
  isUnreadableData,
  readingLog,
  shareOf,
} from "../../../src/base/database/pools.ts";
import { inTransaction, isDatabaseAway } from "../../../src/base/database/transaction.ts";
import { openDatabase } from "../../support/open.ts";

const database = await openDatabase();

it("keeps no connection for days, and the statements of all those days with it", async () => {
  const pool = createDispatchPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test pools",
    onError: () => undefined,
  });
  expect(pool.options.maxLifetimeSeconds).toBe(3_600);
  await pool.end();
});

it("waits in one database of a move for as long as a statement of the other may take", async () => {
  const pool = createMovePool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test pools",
    onError: () => undefined,
  });
  const { rows } = await pool.query<{ statement_ms: number; idle_ms: number }>(
    `select (select setting::integer from pg_settings where name = 'statement_timeout') as statement_ms,
       (select setting::integer from pg_settings where name = 'idle_in_transaction_session_timeout') as idle_ms`,
  );
  await pool.end();
  expect(rows[0]!.idle_ms).toBeGreaterThan(rows[0]!.statement_ms);
});

describe("a connection's settings", () => {
  const settingsOf = async (databaseUrl: string) => {
    const pool = createDispatchPool({
      databaseUrl,
      connectionsMax: 1,
      applicationName: "test pools",
      onError: () => undefined,
    });
    const { rows } = await pool.query<{ name: string; setting: string }>(
      `select name, setting from pg_settings where name in ('plan_cache_mode', 'enable_seqscan', 'enable_hashjoin',
         'default_transaction_isolation', 'standard_conforming_strings', 'DateStyle', 'jit', 'work_mem',
         'search_path')`,
    );
    await pool.end();
    return Object.fromEntries(rows.map(({ name, setting }) => [name, setting]));
  };
  const OURS = {
    search_path: "pg_catalog, pg_temp",
    plan_cache_mode: "force_generic_plan",
    enable_seqscan: "off",
    enable_hashjoin: "off",
    default_transaction_isolation: "read committed",
    standard_conforming_strings: "on",
    DateStyle: expect.stringMatching(/^ISO/),
    jit: "off",
  };

  it("are ours, whatever the database has for everybody else", async () => {
    const { rows } = await database.pool.query<{ name: string }>("select current_database() as name");
    const theirs = {
      search_path: "public",
      default_transaction_isolation: "'repeatable read'",
      standard_conforming_strings: "off",
      datestyle: "German",
      jit: "on",
      plan_cache_mode: "force_custom_plan",
    };
    for (const [name, value] of Object.entries(theirs)) {
      await database.pool.query(`alter database ${rows[0]!.name} set ${name} = ${value}`);
    }
    expect(await settingsOf(database.url)).toMatchObject(OURS);
    await database.pool.query(`alter database ${rows[0]!.name} reset all`);
  });

  it("stay ours beside those that the address brings along", async () => {
    const url = new URL(database.url);
    url.searchParams.set("options", "-c work_mem=12345 -c jit=on -c search_path=public");
    expect(await settingsOf(url.href)).toMatchObject({ ...OURS, work_mem: "12345" });
  });
});

const options = (connectionsMax: number) => ({
  databaseUrl: database.url,
  connectionsMax,
  applicationName: "test pools",
  onError: () => undefined,
});

describe.each([
  ["sends ahead", createApiPool],
  ["waits for each answer", createGeneralPool],
])("reads of the log on a pool that %s", (_, create) => {
  const SETTINGS =
    "select current_setting('plan_cache_mode') as mode, current_setting('enable_sort') as sort";

  it("are planned in their way, and nothing else is", async () => {
    const pool = create(options(1));
    const log = readingLog(pool);
    const usual = await pool.query(SETTINGS);
    expect((await log.query(SETTINGS)).rows).toEqual([{ mode: "force_generic_plan", sort: "off" }]);
    expect((await pool.query(SETTINGS)).rows).toEqual(usual.rows);
    expect((await log.query("select $1::integer as n", [7])).rows).toEqual([{ n: 7 }]);
    await pool.end();
  });

  it("leave the connection as it was when one fails", async () => {
    const pool = create(options(1));
    const log = readingLog(pool);
    await expect(log.query("select 1 / 0")).rejects.toThrow("division by zero");
    const { rows } = await pool.query("select pg_current_xact_id_if_assigned() is null as idle");
    expect(rows).toEqual([{ idle: true }]);
    expect((await pool.query(SETTINGS)).rows[0].sort).toBe("on");
    await pool.end();
  });

  it("are timed as one, failed or not", async () => {
    const pool = create(options(1));
    const told: boolean[] = [];
    const log = readingLog(pool, (_, hasFailed) => told.push(hasFailed));
    await log.query("select 1");
    await log.query("select 1 / 0").catch(() => undefined);
    expect(told).toEqual([false, true]);
    await pool.end();
  });
});

describe("a share of a pool", () => {
  it("lends no more than it has, in the order asked, and leaves the rest to others", async () => {
    const pool = createGeneralPool(options(3));
    const share = shareOf(pool, 2);
    const [first, second] = [await share.connect(), await share.connect()];
    const order: string[] = [];
    const later = ["third", "fourth"].map(async (name) => {
      await share.query("select 1");
      order.push(name);
    });
    expect((await pool.query("select 1 as n")).rows).toEqual([{ n: 1 }]);
    expect(order).toEqual([]);
    first.release();
    await Promise.all(later);
    expect(order).toEqual(["third", "fourth"]);
    second.release();
    await pool.end();
  });

  it("bounds reads of the log, which then keep nobody else from a connection", async () => {
    const pool = createApiPool(options(3));
    const log = readingLog(shareOf(pool, 2));
    const ended: string[] = [];
    const reads = Array.from({ length: 4 }, async () => {
      await log.query("select pg_sleep(0.2)");
      ended.push("read");
    });
    await pool.query("select 1");
    ended.push("other");
    await Promise.all(reads);
    expect(ended).toEqual(["other", "read", "read", "read", "read"]);
    await pool.end();
  });

  it("takes back what was lent to failures, of statements, of transactions and of connections", async () => {
    const pool = createGeneralPool(options(2));
    const share = shareOf(pool, 1);
    await expect(share.query("select 1 / 0")).rejects.toThrow("division by zero");
    const failing = inTransaction(share, (tx) => tx.query("select 1 / 0"));
    await expect(failing).rejects.toThrow("division by zero");
    expect((await inTransaction(share, (tx) => tx.query("select 2 as n"))).rows).toEqual([{ n: 2 }]);
    await pool.end();
    await expect(share.query("select 1")).rejects.toThrow("Cannot use a pool after calling end");
    await expect(share.query("select 1")).rejects.toThrow("Cannot use a pool after calling end");
  });

  it("tells who waits too long what the pool tells", async () => {
    const pool = createGeneralPool(options(2));
    pool.options.connectionTimeoutMillis = 20;
    const share = shareOf(pool, 1);
    const held = await share.connect();
    const error = await share.query("select 1").catch((cause: unknown) => cause);
    expect(isDatabaseAway(error), String(error)).toBe(true);
    held.release();
    pool.options.connectionTimeoutMillis = 5_000;
    expect((await share.query("select 1 as n")).rows).toEqual([{ n: 1 }]);
    await pool.end();
  });
});

it.each([
  ["22P05", "refused"],
  ["23514", "refused"],
  ["54000", "refused"],
  ["58030", "unreadable"],
  ["XX001", "unreadable"],
  ["40P01", "neither"],
  ["42P01", "neither"],
  ["53100", "neither"],
  ["57014", "neither"],
  ["57P01", "neither"],
])("takes data of SQLSTATE %s for %s", async (code, expected) => {
  const raising = database.pool.query(`do $$ begin raise exception using errcode = '${code}'; end $$`);
  const error = await raising.catch((error: unknown) => error);
  expect(isRefusedData(error)).toBe(expected === "refused");
  expect(isUnreadableData(error)).toBe(expected !== "neither");
});
