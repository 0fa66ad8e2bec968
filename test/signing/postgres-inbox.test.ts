import type pg from "pg";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { ACCEPTED_DELIVERIES_TABLE, createPostgresInbox } from "./examples/postgres-inbox.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
  await database.pool.query(ACCEPTED_DELIVERIES_TABLE);
  await database.pool.query("create table work (event_id text)");
});
beforeEach(() => database.pool.query("truncate accepted_deliveries, work"));
afterAll(() => database.drop());

function storeWork(client: pg.PoolClient): Promise<void> {
  return client.query("insert into work values ('a')").then(() => undefined);
}

async function workCount(): Promise<number> {
  return Number((await database.pool.query("select count(*) from work")).rows[0].count);
}

test("accepts an id once, across processes", async () => {
  const inboxes = [createPostgresInbox(database.pool), createPostgresInbox(database.pool)];
  const outcomes = await Promise.all(
    [...inboxes, ...inboxes].map((inbox) => inbox.acceptOnce("a", storeWork)),
  );
  expect(outcomes.sort()).toEqual(["accepted", "duplicate", "duplicate", "duplicate"]);
  expect(await workCount()).toBe(1);
});

test("keeps neither id nor work when accepting fails, and a call that waited steps in", async () => {
  const inbox = createPostgresInbox(database.pool);
  const { promise: written, resolve: reportWritten } = Promise.withResolvers<void>();
  const { promise: gate, reject: fail } = Promise.withResolvers<void>();
  const first = inbox.acceptOnce("a", async (client) => {
    await storeWork(client);
    reportWritten();
    await gate;
  });
  await written;
  const second = inbox.acceptOnce("a", storeWork);
  fail(new Error("full"));
  await expect(first).rejects.toThrow("full");
  expect(await second).toBe("accepted");
  expect(await workCount()).toBe(1);
});
