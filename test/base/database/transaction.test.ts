import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { inTransaction } from "../../../src/base/database/transaction.ts";
import { begin, rowOf } from "../../support/installation.ts";
import { openDatabase } from "../../support/open.ts";
import { patience } from "../../support/time-limits.ts";

const database = await openDatabase();
let pool: pg.Pool;
beforeEach(() => {
  pool = new pg.Pool({ connectionString: database.url, max: 1, query_timeout: patience(500) });
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
});
afterEach(() => pool.end());

const rename = "update sealpost.settings set analysis_bytes_max = 7";
const bytesMax = async () => (await rowOf(pool, "settings")).analysis_bytes_max;
const session = async (): Promise<number> => (await pool.query("select pg_backend_pid() as pid")).rows[0].pid;

test("commits what resolves, and rolls back what throws", async () => {
  const before = await bytesMax();
  const refused = inTransaction(pool, async (client) => {
    await client.query(rename);
    throw new Error("refused");
  });
  await expect(refused).rejects.toThrow("refused");
  expect(await bytesMax()).toBe(before);
  expect(await inTransaction(pool, async (client) => (await client.query(rename)).rowCount)).toBe(1);
  expect(await bytesMax()).toBe(7);
});

test.each([
  ["the work", () => Promise.reject(new Error("refused"))],
  ["a statement", (client: pg.ClientBase) => client.query("select from nowhere")],
])("keeps the connection when it was %s that failed", async (_, work) => {
  const before = await session();
  await expect(inTransaction<unknown>(pool, work)).rejects.toThrow();
  expect(await session()).toBe(before);
});

test.each([
  ["hangs", "select pg_sleep(30)"],
  ["is cut", "select pg_terminate_backend(pg_backend_pid())"],
])("throws a connection away that %s, without waiting for it", async (_, sql) => {
  const before = await session();
  const startMs = performance.now();
  await expect(inTransaction(pool, (client) => client.query(sql))).rejects.toThrow();
  expect(performance.now() - startMs).toBeLessThan(patience(1_500));
  expect(await session()).not.toBe(before);
});

test("is part of the transaction that a client is in", async () => {
  const { client, rollback } = await begin(pool);
  await inTransaction(client, (inner) => inner.query(`${rename} + 1`));
  await rollback();
  expect(await bytesMax()).toBe(7);
});
