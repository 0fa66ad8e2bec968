// An account with an endpoint that a test pauses, anew for each test.

import type { Pool } from "pg";
import { afterAll, beforeAll, beforeEach } from "vitest";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { advanceHolds, pauseEndpoint, resumeEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { findDelivery } from "../../src/log/deliveries-sql.ts";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { openDispatchPool, publishAt } from "./delivery-rows.ts";
import { deleteRows, insertAccount, makePartitionsFrom, publish, rowsOf } from "./installation.ts";
import { takeWakeups } from "./wakeup-jobs.ts";

export const URL = "https://receiver.example.com/";
export const WEEK_MS = 7 * 86_400_000;
export let database: TestDatabase;
export let pool: Pool;
export let accountId: string;
let serial = 0;

/** For every test of the file that calls it. */
export function usePausableAccount(): void {
  beforeAll(async () => {
    database = await createTestDatabase();
    const weekAgo = new Date(Date.now() - WEEK_MS - 86_400_000).toISOString().slice(0, 10);
    await makePartitionsFrom(database.pool, weekAgo, 9);
    pool = openDispatchPool(database);
  });
  afterAll(async () => {
    await pool.end();
    await database.drop();
  });
  beforeEach(async () => {
    for (const table of ["open_deliveries", "held_deliveries", "endpoints"]) {
      await deleteRows(database.pool, table);
    }
    await takeWakeups(database.pool);
    accountId = await insertAccount(database.pool, URL);
  });
}

export const later = (ms: number) => new Date(Date.now() + ms);
export const ago = (ms: number) => later(-ms);
const names = (count: number) => Array.from({ length: count }, () => `h-${++serial}`);
/** Oldest first. */
export const publishSome = async (count: number, at = ago(60_000), of = accountId) =>
  (await publishAt(pool, of, at, names(count))).sort();
export const publishNow = (
  webhookUrl: string | null = null,
  by: Parameters<typeof publish>[0] = database.pool,
) => publish(by, accountId, `{"id":"h-${++serial}","status":"succeeded"}`, webhookUrl);
export const held = async (of = accountId) =>
  (await rowsOf(database.pool, "held_deliveries", { account_id: of })).map((row) => row.delivery_id).sort();
export const pauseNow = (of = accountId) => pauseEndpoint(database.pool, of);
export const resume = (of = accountId) => resumeEndpoint(database.pool, of);
export const step = (at: Date | null = null, accountMax = 20, itemsMax = 200) =>
  advanceHolds(database.pool, WEEK_MS, at, accountMax, itemsMax);
export const logged = async (id: string) =>
  (await findDelivery(database.pool, wholeAccount(accountId), id))!.delivery;
