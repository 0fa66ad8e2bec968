import { afterAll, beforeAll, expect, test } from "vitest";
import { Wakeups } from "../../src/dispatch/wakeups.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

test("stops when it is asked to while its runner is still starting", async () => {
  const ends: unknown[] = [];
  const wakeups = new Wakeups({
    pool: database.pool,
    wake: async () => undefined,
    onRunnerEnded: (error) => ends.push(error),
  });
  wakeups.start();
  await wakeups.stop();
  expect(ends).toEqual([]);
});
