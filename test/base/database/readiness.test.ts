import { rm } from "node:fs/promises";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createReadinessCheck } from "../../../src/app/monitoring.ts";
import { migrate, readMigrationNames } from "../../../src/base/database/migrate.ts";
import { findReadinessProblems, probeWriting } from "../../../src/base/database/readiness.ts";
import { WRONG_SECRETS_KEY } from "../../../src/base/database/sealing.ts";
import { startEmbeddedPostgres } from "../../../src/base/embedded/embedded.ts";
import { AREAS } from "../../../src/base/model/areas.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { createTestAccount, dropPartitionAhead, SECRETS_KEY } from "../../support/installation.ts";
import { fill, mountDisk } from "../../support/small-disk.ts";
import { patience } from "../../support/time-limits.ts";

/** Of its own log little, so that it fits. */
const SMALL = { max_wal_size: "64MB", min_wal_size: "32MB" };

let database: TestDatabase;
let names: readonly string[];

const textsOf = async (migrations = names, secretsKey: Uint8Array = SECRETS_KEY) =>
  (await findReadinessProblems(database.pool, migrations, secretsKey)).map(({ text }) => text);

beforeAll(async () => {
  database = await createTestDatabase();
  names = await readMigrationNames(AREAS);
});
afterAll(() => database.drop());

test("a database that is up to date lacks nothing, and neither does one that is ahead of us", async () => {
  expect(await textsOf(names)).toEqual([]);
  expect(await textsOf(names.slice(1))).toEqual([]);
});

test("secrets that another key has sealed are a problem, told in the same statement", async () => {
  await createTestAccount(database);
  expect(await textsOf(names, Buffer.alloc(32, 9))).toEqual([WRONG_SECRETS_KEY]);
  expect(await textsOf()).toEqual([]);
});

test("a migration that is not applied is named", async () => {
  expect(await textsOf([...names, "9999_later.sql"])).toEqual([
    "The migration 9999_later.sql is not applied: run migrate.",
  ]);
});

test("tomorrow's partition is missed today", async () => {
  const name = await dropPartitionAhead(database.pool, "bodies", 1);
  expect(await textsOf(names)).toEqual([
    `The partition ${name} is missing: the dispatchers' leader makes it.`,
  ]);
});

test("a database that nobody has migrated says so", async () => {
  await database.pool.query("drop schema sealpost cascade");
  expect(await textsOf(names)).toEqual(["The database has no Sealpost tables yet: run migrate."]);
});

test(
  "a disk that is full takes no writes, which is told until it does again",
  async ({ skip }) => {
    const disk = await mountDisk(160);
    if (disk === null) return skip("this machine lets us mount no disk of our own");
    const server = await startEmbeddedPostgres({ dataDir: join(disk.folder, "db"), settings: SMALL });
    const { databaseUrl } = server;
    const filler = join(disk.folder, "filler");
    // Its one connection stays: on a full disk a new one may fail by itself, and busy processes need none.
    const pool = new pg.Pool({ connectionString: databaseUrl, max: 1, idleTimeoutMillis: 0 });
    // The server may end it while it is being closed.
    pool.on("error", () => undefined);
    try {
      await migrate({ databaseUrl });
      const find = await createReadinessCheck(pool, { areas: AREAS }, SECRETS_KEY);
      expect(await find()).toEqual([]);
      await fill(filler);
      const within = { timeout: patience(20_000) };
      await expect
        .poll(find, within)
        .toEqual(["The database accepts no writes (53100): check whether its disk is full."]);
      // Nothing else sees it: reads go on, and so do writes into what there is.
      expect(await findReadinessProblems(pool, await readMigrationNames(AREAS), SECRETS_KEY)).toEqual([]);
      await rm(filler);
      await expect.poll(find, within).toEqual([]);
    } finally {
      await rm(filler, { force: true });
      await pool.end();
      await server.stop();
      await disk.unmount();
    }
  },
  patience(60_000),
);

test("a write that waits for its commit is told of for as long as it does, by whoever finds its lock", async () => {
  const other = await createTestDatabase();
  const find = await createReadinessCheck(other.pool, { areas: AREAS }, SECRETS_KEY);
  const client = await other.pool.connect();
  const stuck = /^The database accepts no writes: one has waited for over 3 s/;
  const within = { timeout: patience(10_000) };
  try {
    await client.query("begin; truncate sealpost.write_probe");
    // For all that this process knows another is about to find out.
    expect(await find()).toEqual([]);
    await expect.poll(find, within).toEqual([expect.stringMatching(stuck)]);
    // The next write waits as well, and is not yet known to.
    await client.query("rollback; begin; truncate sealpost.write_probe");
    await expect.poll(() => probeWriting(other.pool).catch(() => null), within).toBe(false);
    expect(await find()).toEqual([expect.stringMatching(stuck)]);
    await client.query("rollback");
    await expect.poll(find, within).toEqual([]);
  } finally {
    client.release();
    await other.drop();
  }
});

test("a probe that a backup's lock is in the way of says nothing", async () => {
  const other = await createTestDatabase();
  const client = await other.pool.connect();
  try {
    await client.query("begin; lock table sealpost.write_probe in access share mode");
    await probeWriting(other.pool);
    const rows = async () => (await client.query("select from sealpost.write_probe")).rowCount;
    expect(await rows()).toBe(0);
    await client.query("rollback");
    await probeWriting(other.pool);
    expect(await rows()).toBeGreaterThan(0);
  } finally {
    client.release();
    await other.drop();
  }
});

test("a probe that failed, or found a lock in its way, is not tried again at once, however often asked", async () => {
  const other = await createTestDatabase();
  const find = await createReadinessCheck(other.pool, { areas: AREAS }, SECRETS_KEY);
  const client = await other.pool.connect();
  const askedOften = async () => {
    const found = new Set<string>();
    for (let n = 0; n < 20; n++) for (const text of await find()) found.add(text);
    return [...found];
  };
  try {
    await client.query(`
      create sequence public.probes;
      create function public.fail() returns trigger language plpgsql as $$
      begin
        perform nextval('public.probes');
        raise exception using errcode = '53100';
      end $$;
      create trigger fail before insert on sealpost.write_probe for each row execute function public.fail()`);
    expect(await askedOften()).toHaveLength(1);
    const { rows } = await client.query("select last_value::int as probes from public.probes");
    expect(rows[0].probes).toBeLessThan(5);
    await client.query("drop trigger fail on sealpost.write_probe");
    await client.query("begin; lock table sealpost.write_probe in access share mode");
    await expect.poll(find).toEqual([]);
    await client.query("rollback");
    expect(await askedOften()).toEqual([]);
    expect((await client.query("select from sealpost.write_probe")).rowCount).toBe(0);
  } finally {
    client.release();
    await other.drop();
  }
});
