import type { Pool } from "pg";
import { afterEach, beforeEach, expect, it } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { listFailingAccounts } from "../../src/log/accounts-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { flushStatistics, insertAccount, insertLog, readIndexReads } from "../support/installation.ts";
import { openLogPool } from "../support/log-pool.ts";

const RETENTION_MS = 7 * DAY_MS;
const ARRIVED = 5_000;

let database: TestDatabase;
let pool: Pool;
beforeEach(async () => {
  database = await createTestDatabase();
  // One connection, so that what was planned is what is used.
  pool = openLogPool(database.url, { connectionsMax: 1 });
});
afterEach(async () => {
  await pool.end();
  await database.drop();
});

async function addAccount(arrived: number, abandoned: number): Promise<string> {
  const accountId = await insertAccount(database.pool, "https://hooks.example.com/");
  if (arrived > 0) await insertLog(database.pool, accountId, arrived);
  if (abandoned > 0) {
    const more = { younger: 60_000, name: "x", isReplayable: true };
    await insertLog(database.pool, accountId, abandoned, more);
  }
  return accountId;
}

const failing = () => listFailingAccounts(pool, RETENTION_MS, 0, 20);
const readsOfPartialIndex = async () => {
  await flushStatistics(pool, database.pool);
  const all = await readIndexReads(database.pool);
  return [...all]
    .filter(([name]) => /^deliveries_\d+_account_id_status_id_idx$/.test(name))
    .reduce((sum, [, reads]) => sum + reads, 0);
};

it("reads nothing of accounts whose deliveries all arrive, planned while there was nothing", async () => {
  await database.pool.query("vacuum analyze");
  expect(await failing()).toMatchObject({ items: [], total: 0 });
  for (let n = 0; n < 5; n++) await addAccount(ARRIVED, 0);
  const [few, many] = [await addAccount(0, 7), await addAccount(0, 20)];
  const before = await readsOfPartialIndex();
  const { items: accounts, total } = await failing();
  expect([total, accounts.map(({ id, abandoned }) => [id, abandoned])]).toEqual([
    2,
    [
      [many, 20],
      [few, 7],
    ],
  ]);
  const reads = (await readsOfPartialIndex()) - before;
  expect(reads).toBeGreaterThan(27);
  expect(reads).toBeLessThan(200);
});

it("counts as far as it says, and no further", async () => {
  const accountId = await addAccount(0, 1_500);
  const { items: accounts } = await failing();
  expect(accounts).toMatchObject([{ id: accountId, abandoned: 1_000 }]);
});
