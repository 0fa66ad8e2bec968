import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { QueryConfig } from "pg";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createGeneralPool, createStandbyPool } from "../../../src/base/database/pools.ts";
import { timedClient } from "../../../src/base/database/timed-client.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { startDatabaseProxy } from "../../support/database-proxy.ts";
import { patience } from "../../support/time-limits.ts";

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
  expect(told.every(({ durationMs }) => durationMs > 0 && durationMs < patience(5_000))).toBe(true);
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

/** A connection of its own, with an answer's time to choose. */
async function connect(answerMs: number, pipeline = false) {
  const TimedClient = timedClient(answerMs, (_durationMs, hasFailed) => outcomes.push(hasFailed));
  const outcomes: boolean[] = [];
  const client = new TimedClient({ connectionString: database.url, pipeline });
  const ended = new Promise((resolve) => client.once("end", resolve));
  // What the driver says of a connection that we have ended ourselves.
  client.on("error", () => undefined);
  await client.connect();
  return { client, outcomes, ended };
}

test("hangs up when an answer does not come in time, and takes no second answer for it", async () => {
  const { client, outcomes, ended } = await connect(200);
  await expect(client.query("select pg_sleep(30)")).rejects.toThrow("Query read timeout");
  await ended;
  expect(outcomes).toEqual([true]);
  await expect(client.query("select 1")).rejects.toThrow();
});

test("hangs up all the same where others were sent behind it, and all of them fail", async () => {
  const { client, outcomes, ended } = await connect(200, true);
  const both = [client.query("select pg_sleep(600)"), client.query("select 1")];
  const results = await Promise.allSettled(both);
  expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  await ended;
  expect(outcomes).toEqual([true, true]);
});

test("when a network has forgotten its connections, only the first that is tried is waited for", async () => {
  const proxy = await startDatabaseProxy(database.url);
  const options = {
    databaseUrl: proxy.url,
    connectionsMax: 4,
    applicationName: "test",
    onError: () => undefined,
  };
  const forgotten = createStandbyPool(options);
  await Promise.all(Array.from({ length: 4 }, () => forgotten.query("select pg_sleep(0.1)")));
  expect(forgotten.idleCount).toBe(4);
  proxy.forget();
  await expect(forgotten.query("select 1")).rejects.toThrow("Query read timeout");
  await expect.poll(() => forgotten.totalCount).toBe(0);
  expect((await forgotten.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  await forgotten.end();
  await proxy.close();
});

test("a statement may bring a time of its own", async () => {
  const { client, outcomes } = await connect(100);
  const slow = { text: "select pg_sleep($1), 1 as one", values: [0.3], query_timeout: 20_000 } as QueryConfig;
  expect((await client.query(slow)).rows).toMatchObject([{ one: 1 }]);
  expect(outcomes).toEqual([false]);
  await client.end();
});

test("a refusal tells where its statement was asked", async () => {
  const { client } = await connect(5_000);
  const askNothing = async () => await client.query("select nothing");
  expect(await askNothing().catch((error: Error) => error.stack)).toContain("at askNothing");
  await client.end();
});

test("what statements answered is gone with the next young collection", async () => {
  const script = fileURLToPath(new URL("many-answers.ts", import.meta.url));
  // 150 MB in all: with the driver's own timeouts and promises there are 6 full collections, without them none.
  const { stdout } = await promisify(execFile)(process.execPath, [
    "--max-semi-space-size=8",
    script,
    database.url,
  ]);
  expect(JSON.parse(stdout)).toMatchObject({ answers: 5_000 });
  expect(JSON.parse(stdout).fullCollections).toBeLessThanOrEqual(2);
});
