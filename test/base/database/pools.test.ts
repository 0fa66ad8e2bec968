import { describe, expect, it } from "vitest";
import {
  createDispatchPool,
  createMovePool,
  isRefusedData,
  isUnreadableData,
} from "../../../src/base/database/pools.ts";
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
