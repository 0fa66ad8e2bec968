import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { rowsOf } from "../support/installation.ts";
import { type AskOptions, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;
let staff: string;
let account: TestAccount;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  staff = await api.newKey(null);
});
beforeEach(async () => {
  account = await api.newAccount();
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const asStaff = (method: string, path: string, options: AskOptions = {}) =>
  api.ask(method, path, {
    key: staff,
    ...options,
    headers: { "x-account-id": account.accountId, ...options.headers },
  });

async function audited() {
  const rows = await rowsOf(database.pool, "audit_log", { account_id: account.accountId });
  return rows.map(({ operation_key, request_id, details, actor, key_id, actor_name }) => {
    return { operation_key, request_id, details, actor, key_id, actor_name };
  });
}

test("a staff key works on the account that it names", async () => {
  const body = { analysis: { id: "a", status: "succeeded" } };
  const { delivery_id } = (await api.ask("POST", "/v1/analyses", { ...account, body })).body;
  const read = await asStaff("GET", `/v1/webhooks/deliveries/${delivery_id}`);
  expect([read.status, read.body.id]).toEqual([200, delivery_id]);
  const shouted = { "x-account-id": account.accountId.toUpperCase() };
  expect((await asStaff("GET", "/v1/analyses/a", { headers: shouted })).status).toBe(200);
});

test("it must name one, and one that exists", async () => {
  const nobody = await api.ask("GET", "/v1/webhooks/deliveries", { key: staff });
  expect([nobody.status, nobody.body.code]).toEqual([400, "account_required"]);
  for (const id of ["01900000-0000-7000-8000-000000000000", "x", "'", `${account.accountId}x`]) {
    const unknown = await asStaff("GET", "/v1/webhooks/deliveries", { headers: { "x-account-id": id } });
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
  }
});

test("what it writes is in the audit log, with what it was about; what it reads is not", async () => {
  const [{ id: key_id } = {}] = await rowsOf(database.pool, "api_keys", { account_id: null });
  const by = { actor: "staff_key", key_id, actor_name: null };
  const body = { analysis: { id: "a", status: "succeeded" } };
  const { delivery_id } = (await api.ask("POST", "/v1/analyses", { ...account, body })).body;
  await asStaff("GET", "/v1/webhooks/signing-secret");
  await asStaff("POST", `/v1/webhooks/deliveries/${delivery_id}/replay`, {
    headers: { "x-request-id": "call 17" },
  });
  const filter = { status: "abandoned" };
  const many = await asStaff("POST", "/v1/webhooks/replays", { body: { filter, rate_per_second: 5 } });
  await asStaff("POST", "/v1/webhooks/signing-secret/rotate", { body: { overlap_seconds: 5 } });
  // Whose log line says who did it.
  await asStaff("POST", "/v1/analyses", { body: { analysis: { id: "b", status: "failed" } } });
  expect(await audited()).toEqual([
    {
      operation_key: "webhooks.deliveries.replay",
      request_id: "call 17",
      details: { delivery_id, run: 2 },
      ...by,
    },
    {
      operation_key: "webhooks.replays.create",
      request_id: expect.any(String),
      details: { replay_id: many.body.id, filter, rate_per_second: 5, matched: 0 },
      ...by,
    },
    {
      operation_key: "webhooks.signing_secret.rotate",
      request_id: expect.any(String),
      details: { overlap_seconds: 5 },
      ...by,
    },
  ]);
});

test("what is refused, counted only, or answered from memory, is not in it", async () => {
  await asStaff("PUT", "/v1/webhooks/endpoint", { body: { url: "http://x" } });
  await asStaff("DELETE", "/v1/webhooks/endpoint");
  await asStaff("POST", "/v1/webhooks/replays", { body: { filter: {}, dry_run: true } });
  expect(await audited()).toEqual([]);
  const key = await api.newKey(account.accountId);
  await api.ask("PUT", "/v1/webhooks/endpoint", { key, body: { url: "https://hooks.example.com/" } });
  const set = { operation_key: "webhooks.endpoint.set", actor: "key" };
  expect(await audited()).toMatchObject([set]);
  for (let n = 0; n < 2; n++) await asStaff("DELETE", "/v1/webhooks/endpoint", { idempotencyKey: "once" });
  expect(await audited()).toMatchObject([set, { operation_key: "webhooks.endpoint.remove" }]);
});

test("an entry that cannot be written undoes what it tells of", async () => {
  await database.pool.query(
    "alter table sealpost.audit_log add constraint none check (operation_key <> 'webhooks.endpoint.set') not valid",
  );
  const body = { url: "https://hooks.example.com/" };
  await expect(asStaff("PUT", "/v1/webhooks/endpoint", { body })).rejects.toThrow("met a fault");
  expect((await api.ask("GET", "/v1/webhooks/endpoint", account)).status).toBe(404);
  await database.pool.query("alter table sealpost.audit_log drop constraint none");
});
