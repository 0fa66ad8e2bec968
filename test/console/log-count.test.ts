import { afterAll, beforeAll, expect, test } from "vitest";
import { enter } from "../support/console.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;

beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

async function countOf(deliveries: number): Promise<string | undefined> {
  const { accountId, key } = await api.newAccount();
  for (let from = 0; from < deliveries; from += 1_000) {
    const count = Math.min(1_000, deliveries - from);
    const names = Array.from({ length: count }, (_, n) => `inv-${from + n}`);
    await publishAt(database.pool, accountId, new Date(), names);
  }
  const hand = await enter(api, { key });
  const { text } = await hand.get(`${hand.base}/deliveries`);
  return /<div class="count"><p>([^<]*)</.exec(text)?.[1];
}

test.each([
  [1, "1 delivery"],
  [1_234, "1,234 deliveries"],
  [12_000, "at least 10,000 deliveries"],
])("of %i deliveries the log says %s", async (deliveries, said) => {
  expect(await countOf(deliveries)).toBe(said);
});
