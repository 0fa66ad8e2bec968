import { afterAll, beforeAll, expect, test } from "vitest";
import { AREAS } from "../../src/model/areas.ts";
import { readMigrationNames } from "../../src/store/migrate.ts";
import { findHindrances } from "../../src/store/readiness.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { dropPartitionAhead } from "../support/installation.ts";

let database: TestDatabase;
let names: readonly string[];

beforeAll(async () => {
  database = await createTestDatabase();
  names = await readMigrationNames(AREAS);
});
afterAll(() => database.drop());

test("a database that is up to date lacks nothing, and neither does one that is ahead of us", async () => {
  expect(await findHindrances(database.pool, names)).toEqual([]);
  expect(await findHindrances(database.pool, names.slice(1))).toEqual([]);
});

test("a migration that is not applied is named", async () => {
  expect(await findHindrances(database.pool, [...names, "9999_later.sql"])).toEqual([
    "The migration 9999_later.sql is not applied: run migrate.",
  ]);
});

test("tomorrow's partition is missed today", async () => {
  const name = await dropPartitionAhead(database.pool, "bodies", 1);
  expect(await findHindrances(database.pool, names)).toEqual([
    `The partition ${name} is missing: the dispatchers' leader makes it.`,
  ]);
});

test("a database that nobody has migrated says so", async () => {
  await database.pool.query("drop schema sealpost cascade");
  expect(await findHindrances(database.pool, names)).toEqual([
    "The database holds no tables of ours: run migrate.",
  ]);
});
