import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, inject, onTestFinished, test } from "vitest";
import { MigrationError, migrate } from "../../../src/base/database/migrate.ts";
import { createTestDatabase } from "../../support/database.ts";
import { countRows } from "../../support/installation.ts";

const run = promisify(execFile);

describe("migrate", () => {
  let databaseUrl: string;
  let database: pg.Client;
  let sqlDir: string;

  beforeEach(async () => {
    const { adminUrl } = inject("testDatabases");
    const name = `${inject("testDatabases").templateName}_empty_${process.hrtime.bigint()}`;
    const admin = new pg.Client(adminUrl);
    await admin.connect();
    await admin.query(`create database ${name}`);
    await admin.end();
    const url = new URL(adminUrl);
    url.pathname = `/${name}`;
    databaseUrl = url.href;
    database = new pg.Client(databaseUrl);
    await database.connect();
    sqlDir = await mkdtemp(join(tmpdir(), "sealpost-sql-"));
  });

  afterEach(async () => {
    await database.end();
    await rm(sqlDir, { recursive: true });
  });

  const write = (name: string, text: string) => writeFile(join(sqlDir, name), text);
  const column = async (sql: string) => (await database.query({ text: sql, rowMode: "array" })).rows.flat();
  const failure = async () => {
    const error = await migrate({ databaseUrl, sqlDir }).then(
      () => null,
      (error: unknown) => error,
    );
    expect(error).toBeInstanceOf(MigrationError);
    return (error as MigrationError).message;
  };

  test("applies an area's own files after the others, where it is asked for", async () => {
    await mkdir(join(sqlDir, "rooms"));
    await write("0002_second.sql", "create table public.things (n integer);");
    await write("rooms/0001_first.sql", "insert into public.things values (1);");
    const applied = async (areas: readonly string[]) => await migrate({ databaseUrl, sqlDir, areas });
    expect(await applied(["none"])).toEqual(["0002_second.sql"]);
    expect(await applied(["none", "rooms"])).toEqual(["rooms/0001_first.sql"]);
    expect(await applied(["none"])).toEqual([]);

    // Each is numbered by itself, and neither is changed afterwards.
    await write("0003_third.sql", "insert into public.things values (3);");
    expect(await applied(["rooms"])).toEqual(["0003_third.sql"]);
    await write("rooms/0001_first.sql", "insert into public.things values (2);");
    await expect(applied(["rooms"])).rejects.toThrow("rooms/0001_first.sql was changed");
    await rm(join(sqlDir, "rooms/0001_first.sql"));
    await write("rooms/0002_second.sql", "");
    await expect(applied(["rooms"])).rejects.toThrow(
      "rooms/0001_first.sql was applied to this database, but is not",
    );
  });

  test("applies graphile-worker's schema and each file once, in order", async () => {
    await write("0002_second.sql", "insert into public.things values (2);");
    await write("0001_first.sql", "create table public.things (n integer);");
    await write("schema.sql", "create table public.things (n integer);");
    const lines: string[] = [];
    const first = await migrate({ databaseUrl, sqlDir, log: (line) => lines.push(line) });
    expect(first).toEqual(["0001_first.sql", "0002_second.sql"]);
    expect(lines).toEqual(["applying 0001_first.sql", "applying 0002_second.sql"]);
    expect(await migrate({ databaseUrl, sqlDir })).toEqual([]);

    await write("0003_third.sql", "insert into public.things values (3);");
    expect(await migrate({ databaseUrl, sqlDir })).toEqual(["0003_third.sql"]);
    expect(await column("select n from public.things order by n")).toEqual([2, 3]);
    expect(await column("select count(*)::int from graphile_worker.jobs")).toEqual([0]);
    expect(await column("select name from sealpost.migrations order by name")).toHaveLength(3);
  });

  test("does what comes before a file until it has ended, and not after", async () => {
    await write("0001_first.sql", "create table public.things (n integer);");
    await write("0002_second.sql", "insert into public.things values (2);");
    let isKilled = true;
    const prove = async (client: pg.ClientBase) => {
      await client.query("insert into public.things values (1)");
      if (isKilled) await client.query("select 1 / 0");
    };
    const asked = { databaseUrl, sqlDir, before: { "0002_second.sql": prove } };
    await expect(migrate(asked)).rejects.toThrow("before 0002_second.sql: division by zero");
    expect(await column("select n from public.things")).toEqual([1]);
    isKilled = false;
    expect(await migrate(asked)).toEqual(["0002_second.sql"]);
    expect(await migrate(asked)).toEqual([]);
    expect(await column("select n from public.things")).toEqual([1, 1, 2]);
  });

  test("leaves nothing of a failing file, keeps those before it, and says where it failed", async () => {
    await write("0001_good.sql", "create table public.good ();");
    await write(
      "0002_bad.sql",
      "create table public.half ();\n-- é 🙂\nselect 1,\n  no_such_column from public.half;\n",
    );
    expect(await failure()).toMatch(
      /^0002_bad\.sql, line 4, column 3: column "no_such_column" does not exist/,
    );
    expect(await column("select to_regclass('public.good')::text, to_regclass('public.half')::text")).toEqual(
      ["good", null],
    );
    expect(await column("select name from sealpost.migrations")).toEqual(["0001_good.sql"]);

    await write("0002_bad.sql", "create table public.half ();");
    expect(await migrate({ databaseUrl, sqlDir })).toEqual(["0002_bad.sql"]);
  });

  test("takes a file back that cannot be recorded", async () => {
    await write("0001_sawing.sql", "create table public.branch (); drop table sealpost.migrations;");
    expect(await failure()).toMatch(
      /^0001_sawing\.sql, when recorded: relation "sealpost\.migrations" does not exist/,
    );
    expect(await column("select to_regclass('public.branch')::text")).toEqual([null]);
  });

  test("takes a file back that cannot be committed", async () => {
    await write(
      "0001_deferred.sql",
      `create table public.parents (id integer primary key);
       create table public.children (parent integer references public.parents deferrable initially deferred);
       insert into public.children values (1);`,
    );
    expect(await failure()).toMatch(
      /^0001_deferred\.sql, when committed: insert or update on table "children"/,
    );
    expect(await column("select to_regclass('public.parents')::text")).toEqual([null]);
  });

  test("names the file of an error without a position, and keeps its detail", async () => {
    await write(
      "0001_twice.sql",
      "create table public.keys (k text primary key); insert into public.keys values ('a'), ('a');",
    );
    expect(await failure()).toMatch(
      /^0001_twice\.sql: duplicate key value .*\nKey \(k\)=\(a\) already exists/,
    );
  });

  test("refuses a file that was changed after it had been applied, but not for its line ends", async () => {
    await write("0001_first.sql", "create table public.one ();\nselect 1;\n");
    await migrate({ databaseUrl, sqlDir });
    await write("0001_first.sql", "create table public.one ();\r\nselect 1;\r\n");
    expect(await migrate({ databaseUrl, sqlDir })).toEqual([]);
    await write("0001_first.sql", "create table public.one ();\nselect 2;\n");
    expect(await failure()).toMatch(/^0001_first\.sql was changed after it had been applied/);
  });

  test("refuses a file that arrives before the newest applied one, and one that went missing", async () => {
    await write("0002_second.sql", "select 2;");
    await migrate({ databaseUrl, sqlDir });
    await write("0001_late.sql", "select 1;");
    expect(await failure()).toMatch(/^0001_late\.sql comes before 0002_second\.sql/);
    await rm(join(sqlDir, "0001_late.sql"));
    await rm(join(sqlDir, "0002_second.sql"));
    await write("0003_third.sql", "select 3;");
    expect(await failure()).toMatch(/^0002_second\.sql was applied to this database, but is not among/);
  });

  test("leaves a newer version's migrations alone", async () => {
    await write("0001_first.sql", "select 1;");
    await write("0002_newer.sql", "select 2;");
    await migrate({ databaseUrl, sqlDir });
    await rm(join(sqlDir, "0002_newer.sql"));
    expect(await migrate({ databaseUrl, sqlDir })).toEqual([]);
  });

  test.each([
    ["1_short.sql", "select 1;", /^1_short\.sql is not named like/],
    [
      "0001_commit.sql",
      "create table t ();\ncommit;\n",
      /^0001_commit\.sql, line 2, column 1: "commit;" would end/,
    ],
  ])("refuses %s before it touches the database", async (name, text, message) => {
    await write(name, text);
    expect(await failure()).toMatch(message);
    expect(await column("select to_regnamespace('sealpost')::text")).toEqual([null]);
  });

  test("refuses two files with one number, and an empty folder", async () => {
    expect(await failure()).toMatch(/^There are no migrations/);
    await write("0001_a.sql", "select 1;");
    await write("0001_b.sql", "select 1;");
    expect(await failure()).toBe("Two migrations have the number 0001.");
  });

  test("applies everything exactly once when ten processes start at once", async () => {
    await write("0001_first.sql", "create table public.runs (n integer); select pg_sleep(0.2);");
    await write("0002_second.sql", "insert into public.runs values (2);");
    const module = new URL("../../../src/base/database/migrate.ts", import.meta.url).href;
    const script = `
      const { migrate } = await import(${JSON.stringify(module)});
      const applied = await migrate(${JSON.stringify({ databaseUrl, sqlDir })});
      console.log(applied.length);`;
    const processes = Array.from({ length: 10 }, () =>
      run(process.execPath, ["--input-type=module", "--eval", script]),
    );
    const counts = (await Promise.all(processes)).map(({ stdout }) => Number(stdout));
    expect(counts.sort()).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    expect(await column("select n from public.runs")).toEqual([2]);
  });

  test("gives way to who works while a file waits for a lock, and to who waits for the file", async () => {
    await database.query("create table public.one (n integer); create table public.two (n integer)");
    await write(
      "0001_both.sql",
      "alter table public.two add m integer; alter table public.one add m integer;",
    );
    await database.query("begin; insert into public.one values (1)");
    const migrated = migrate({ databaseUrl, sqlDir });
    const watcher = new pg.Client(databaseUrl);
    await watcher.connect();
    onTestFinished(() => watcher.end());
    const isWaiting = "select exists (select from pg_locks where not granted) as waits";
    await expect.poll(async () => (await watcher.query(isWaiting)).rows[0].waits).toBe(true);
    // It has the other table, and waits for ours: with this there is a circle.
    expect((await database.query("select * from public.two")).rows).toEqual([]);
    await database.query("commit");
    expect(await migrated).toEqual(["0001_both.sql"]);
    expect(await column("select m from public.one")).toEqual([null]);
  });

  test("gives the lock back when it fails", async () => {
    await write("0001_bad.sql", "select no_such_column;");
    await failure();
    await write("0001_bad.sql", "select 1;");
    expect(await migrate({ databaseUrl, sqlDir })).toEqual(["0001_bad.sql"]);
  });
});

test("the project's own migrations make a database that can be cloned", async () => {
  const { url, pool, drop } = await createTestDatabase();
  onTestFinished(drop);
  expect(await migrate({ databaseUrl: url })).toEqual([]);
  expect(await countRows(pool, "migrations")).toBeGreaterThan(0);
});
