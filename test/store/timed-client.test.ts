import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createGeneralPool } from "../../src/store/pools.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

let database: TestDatabase;
let told: { readonly durationMs: number; readonly hasFailed: boolean }[] = [];

function openPool() {
  return createGeneralPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test timed",
    onError: () => undefined,
    onQuery: (durationMs, hasFailed) => told.push({ durationMs, hasFailed }),
  });
}

let pool: ReturnType<typeof openPool>;

beforeAll(async () => {
  database = await createTestDatabase();
  pool = openPool();
});
afterAll(async () => {
  await pool.end();
  await database.drop();
});
beforeEach(() => {
  told = [];
});

test("statements are timed: the pool's, a client's, named ones, and those that fail", async () => {
  expect((await pool.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  const client = await pool.connect();
  try {
    expect((await client.query({ name: "two", text: "select $1::int as two", values: [2] })).rows).toEqual([
      { two: 2 },
    ]);
    await expect(client.query("select nothing")).rejects.toMatchObject({ code: "42703" });
  } finally {
    client.release();
  }
  await expect(pool.query("select nothing")).rejects.toMatchObject({ code: "42703" });
  expect(told.map(({ hasFailed }) => hasFailed)).toEqual([false, false, true, true]);
  expect(told.every(({ durationMs }) => durationMs > 0 && durationMs < 5_000)).toBe(true);
});

test("a statement that takes long is said to have taken long", async () => {
  await pool.query("select pg_sleep(0.2)");
  expect(told[0]?.durationMs).toBeGreaterThan(195);
});

test("callbacks are called as ever", async () => {
  const rows = await new Promise((resolve, reject) => {
    pool.query("select 3 as three", (error: Error | undefined, result) =>
      error ? reject(error) : resolve(result.rows),
    );
  });
  expect(rows).toEqual([{ three: 3 }]);
  expect(told).toHaveLength(1);
});
