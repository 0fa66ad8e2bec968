import type { Pool } from "pg";
import { afterEach, beforeEach, expect, it } from "vitest";
import { createDispatchPool, createGeneralPool } from "../../src/store/pools.ts";
import { promoteDue } from "../../src/store/promote.ts";
import { recordOutcomes } from "../../src/store/record.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptOf, claim, LEASE_MS, publishAt, takeWakeups } from "../support/delivery-rows.ts";
import { insertAccount } from "../support/publishing.ts";

// Plans are kept for as long as a connection lives. These are made while the tables are all but empty and PostgreSQL
// knows it, as in the night after a VACUUM, and used when there is a backlog.

const T0 = new Date(Date.now() - (Date.now() % 1000));
const later = (ms: number) => new Date(T0.getTime() + ms);
const BACKLOG = 3_000;
let database: TestDatabase;
let accountId: string;
const pools: Pool[] = [];
let published = 0;

beforeEach(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
  await database.pool.query("vacuum analyze");
});
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.end();
  await database.drop();
});

/** One connection, so that what was planned is what is used. */
function open(create: typeof createDispatchPool): Pool {
  const pool = create({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test plans",
    onError: () => undefined,
  });
  pools.push(pool);
  return pool;
}

const publishSome = async (count: number) => {
  const ids = await publishAt(
    database.pool,
    accountId,
    T0,
    Array.from({ length: count }, () => `plan-${published++}`),
  );
  await takeWakeups(database.pool);
  return ids;
};

/** Entries that were read of every index; a session tells its counts when it ends. */
async function readsWhile(pool: Pool, work: () => Promise<void>): Promise<Record<string, number>> {
  const count = async () => {
    const { rows } = await database.pool.query<{ name: string; reads: string }>(
      "select indexrelname as name, idx_tup_read as reads from pg_stat_user_indexes where schemaname = 'sealpost'",
    );
    return new Map(rows.map(({ name, reads }) => [name, Number(reads)]));
  };
  const before = await count();
  await work();
  pools.splice(pools.indexOf(pool), 1);
  await pool.end();
  await expect
    .poll(async () => (await count()).get("open_deliveries_pkey"), { timeout: 10_000 })
    .not.toBe(before.get("open_deliveries_pkey"));
  const after = await count();
  return Object.fromEntries(
    [...after]
      .map(([name, reads]) => [name, reads - (before.get(name) ?? 0)] as const)
      .filter(([, n]) => n > 0),
  );
}

it("claims, recovers and records by looking ids up, whatever the tables were like when it was planned", async () => {
  const pool = open(createDispatchPool);
  const round = async (ids: readonly string[], atMs: number) => {
    await claim(pool, ids, { at: later(atMs) });
    // Their dispatcher has died: the next claim writes that down first.
    const { deliveries } = await claim(pool, ids, { at: later(atMs + LEASE_MS) });
    await recordOutcomes(
      pool,
      deliveries.flatMap((one) => (one.kind === "leased" ? [attemptOf(one, { status: "succeeded" })] : [])),
    );
    return deliveries.length;
  };
  expect(await round(await publishSome(1), 1)).toBe(1);
  const ids = await publishSome(BACKLOG);
  const reads = await readsWhile(pool, async () => {
    expect(await round(ids.slice(0, 10), 1)).toBe(10);
  });
  expect(Math.max(...Object.values(reads)), JSON.stringify(reads)).toBeLessThan(200);
});

it("promotes a backlog within a statement's time, which is little for the square of it", async () => {
  const pool = open(createGeneralPool);
  await promoteDue(pool, later(60_000));
  await publishSome(8_000);
  expect(await promoteDue(pool, later(60_000))).toMatchObject({ looked: 8_000 });
});
