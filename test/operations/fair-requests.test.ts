// One account's requests that take long must not take all that `serve` can do at a time.
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { begin, countRows, insertEndpoint, untilSomebodyWaits } from "../support/installation.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

/** Several times as many as there are connections to the database. */
const REQUESTS = 40;

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

test("an account whose requests all wait for a row keeps no other one's waiting", async () => {
  const { accountId } = api.account;
  await insertEndpoint(database.pool, accountId, "https://hooks.example.com/");
  const other = await api.newAccount();
  const held = await begin(database.pool);
  onTestFinished(held.rollback);
  await held.client.query("select from sealpost.endpoints where account_id = $1 for update", [accountId]);
  const body = { url: "https://hooks.example.com/new" };
  const hanging = Array.from({ length: REQUESTS }, () => api.ask("PUT", "/v1/webhooks/endpoint", { body }));
  await untilSomebodyWaits(database.pool);

  const { key } = other;
  const analysis = { id: "n-1", status: "succeeded" };
  for (const asked of [
    api.ask("PUT", "/v1/webhooks/endpoint", { key, body }),
    api.ask("POST", "/v1/analyses", { key, body: { analysis } }),
    api.ask("GET", "/v1/webhooks/deliveries", { key }),
    api.ask("GET", "/v1/webhooks/signing-secret", { key }),
  ]) {
    expect((await asked).status).toBeLessThan(300);
  }
  expect(
    await countRows(database.pool, "idempotency_keys", { account_id: accountId }),
    "they still wait",
  ).toBe(0);
  await held.rollback();
  const statuses = new Set((await Promise.all(hanging)).map(({ status }) => status));
  for (const status of statuses) expect([200, 503]).toContain(status);
});
