// What writes leave behind, answers for their Idempotency-Keys and rows of the audit log, tried to the limit.
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { forgetStorageCounts, writeStorageLimits } from "../../src/base/database/storage.ts";
import { STORAGE_KINDS, type StorageKind, type StorageLimits } from "../../src/base/model/storage.ts";
import type { TestDatabase } from "../support/database.ts";
import { countRows } from "../support/installation.ts";
import type { Asked, AskOptions, TestAccount, TestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";
import { startStillApi } from "./support/moving.ts";

const NO_LIMIT = Object.fromEntries(STORAGE_KINDS.map((kind) => [kind, null])) as StorageLimits;
/** Of a row besides what is in it. */
const ROW = 1_024;

let database: TestDatabase;
let api: TestApi;
let close: () => Promise<void>;
/** Each test has an account of its own. */
let account: TestAccount;

beforeAll(async () => {
  ({ database, api, close } = await startStillApi());
});
afterAll(() => close());
beforeEach(async () => {
  account = await api.newAccount();
  await limit({});
});

const limit = (limits: Partial<Record<StorageKind, number>>) =>
  writeStorageLimits(database.pool, { ...NO_LIMIT, ...limits });
const ask: TestApi["ask"] = (method, path, options) =>
  api.ask(method, path, { key: account.key, ...options });
const documents = documentsOf((...asked) => ask(...asked));

async function usageOf(kind: StorageKind): Promise<{ readonly bytes: number; readonly bytes_left: number }> {
  const { body } = await ask("GET", "/v1/usage", { key: account.ownKey });
  return (body.storage as { kind: string; bytes: number; bytes_left: number }[]).find(
    (use) => use.kind === kind,
  )!;
}

function expectFull({ status, body }: Asked, kind: "answers" | "audit"): void {
  expect([status, body.code]).toEqual([409, "storage_full"]);
  expect(JSON.stringify(body.errors)).toContain(kind === "audit" ? "of the audit log" : "of answers a day");
}

/** Asks until it is refused. Returns how often it was not. */
async function untilFull(kind: "answers" | "audit", tryOnce: (n: number) => Promise<Asked>): Promise<number> {
  for (let n = 0; ; n++) {
    const answer = await tryOnce(n);
    if (answer.status < 300) continue;
    expectFull(answer, kind);
    return n;
  }
}

const publish = (id: string, options: AskOptions = {}) =>
  ask("POST", "/v1/analyses", { body: { analysis: { id, status: "succeeded" } }, ...options });
const answersStored = () => countRows(database.pool, "idempotency_keys", { account_id: account.accountId });
const setEndpoint = (n = 0) =>
  ask("PUT", "/v1/webhooks/endpoint", {
    key: account.ownKey,
    body: { url: `https://receiver.example.com/${n}` },
  });

test("publishing again what is known, each time under another key, has an end, which is the user's own", async () => {
  await limit({ answers: 100_000 });
  expect((await publish("known")).status).toBe(202);
  expect((await usageOf("answers")).bytes).toBe(0);
  const repeats = await untilFull("answers", () => publish("known"));
  expect(repeats).toBeGreaterThan(30);
  expect(repeats * ROW).toBeLessThanOrEqual(50_000);
  const { bytes, bytes_left } = await usageOf("answers");
  expect([bytes <= 50_000, bytes_left]).toEqual([true, 100_000 - bytes]);
  expect(await answersStored()).toBe(repeats + 1);

  // The pipeline publishes on, and again; and what is new is nobody's answer.
  expect((await publish("known", { key: account.ownKey })).status).toBe(202);
  expect((await publish("new", { key: account.ownKey })).status).toBe(202);
  expect((await publish("new-of-the-user")).status).toBe(202);
});

test("such an answer is kept for its key as any other", async () => {
  await publish("kept");
  const idempotencyKey = randomUUID();
  const first = await publish("kept", { idempotencyKey });
  const again = await publish("kept", { idempotencyKey });
  expect([again.bytes, again.headers.get("idempotent-replayed")]).toEqual([first.bytes, "true"]);
  const other = await publish("other", { idempotencyKey });
  expect([other.status, other.body.code]).toEqual([422, "idempotency_key_reused"]);
});

test("of many at once as many are answered as there is room for, and nobody else notices", async () => {
  const other = await api.newAccount();
  await publish("known");
  await limit({ answers: 60_000 });
  const known = Array.from({ length: 60 }, () => publish("known"));
  const beside = Array.from({ length: 60 }, (_, n) =>
    publish(`new-${n}`, { key: n % 2 === 0 ? other.key : account.ownKey }),
  );
  const count = async (all: Promise<Asked>[], status: number) =>
    (await Promise.all(all)).filter((one) => one.status === status).length;
  expect(await count(beside, 202)).toBe(60);
  const answered = await count(known, 202);
  expect([answered, await count(known, 409)]).toEqual([answered, 60 - answered]);
  const each = ROW + 300;
  expect(answered).toBe(Math.floor(30_000 / each));
  expect((await usageOf("answers")).bytes).toBe(answered * each);
});

test("uploads have an end before they begin", async () => {
  const { id: space_id } = await documents.newSpace();
  const ids: unknown[] = [];
  for (let n = 0; n < 40; n++) {
    ids.push((await documents.created({ space_id, file_name: `${n}.txt`, file_size: 1 })).id);
  }
  await database.pool.query("delete from sealpost.write_bytes where account_id = $1", [account.accountId]);
  await limit({ answers: 60_000 });
  const put = (n: number) =>
    documents.put(ids[n], Buffer.from("x"), { headers: { "content-type": "text/plain" } });
  const uploads = await untilFull("answers", put);
  expect(uploads).toBeGreaterThan(10);
  expect((await usageOf("answers")).bytes).toBeLessThanOrEqual(30_000);
  const left = async () => [
    await answersStored(),
    await countRows(database.pool, "workspace.loose_objects", { account_id: account.accountId }),
  ];
  const before = await left();
  expectFull(await put(uploads), "answers");
  expect(await left()).toEqual(before);
});

test("rows of the audit log have a limit, of whatever size they are and for as long as they are kept", async () => {
  const { id } = await documents.newSpace();
  const rename = (name: string) => ask("PATCH", `/v1/spaces/${id}`, { body: { name } });
  await limit({ audit: 40_000 });
  const before = (await usageOf("audit")).bytes;
  expect(before).toBeGreaterThanOrEqual(512);
  const renames = await untilFull("audit", (n) => rename(`${n} ${"x".repeat(100)}`));
  const { bytes, bytes_left } = await usageOf("audit");
  expect([bytes <= 20_000, bytes > 19_000, bytes_left]).toEqual([true, true, 40_000 - bytes]);
  expect(renames).toBeLessThan((20_000 - before) / (512 + 100));
  const written = () => countRows(database.pool, "audit_log", { account_id: account.accountId });
  const rows = await written();
  expectFull(await rename("refused"), "audit");
  expect(await written()).toBe(rows);

  // What helps the account is possible, and nothing that leaves no row is refused.
  expect((await setEndpoint()).status).toBe(200);
  expect((await publish("goes-on")).status).toBe(202);
  expect((await publish("goes-on")).status).toBe(202);
  const shift = (days: number) =>
    database.pool.query("update sealpost.write_bytes set day = day - $2::integer where account_id = $1", [
      ...[account.accountId, days],
    ]);
  await shift(365);
  expect([(await usageOf("audit")).bytes > 0, (await usageOf("answers")).bytes]).toEqual([true, 0]);
  expectFull(await rename("still"), "audit");
  await shift(1);
  await forgetStorageCounts(database.pool);
  expect(await countRows(database.pool, "write_bytes", { account_id: account.accountId })).toBe(0);
  expect((await rename("there is room again")).status).toBe(200);
});

test("the account's own keys have an end, too: changing the endpoint, at twice as much", async () => {
  await limit({ audit: 20_000 });
  const changes = await untilFull("audit", (n) => setEndpoint(n));
  expect(changes).toBeGreaterThan(40);
  const { bytes, bytes_left } = await usageOf("audit");
  expect([bytes <= 40_000, bytes > 39_000, bytes_left]).toEqual([true, true, 0]);
});

test("what twenty users have beyond their own, because it is never refused, has an end together", async () => {
  await limit({ answers: 40_000 });
  const revoke = (key: string) => ask("POST", "/v1/console/sessions/revoke", { key });
  const revoked: number[] = [];
  for (let n = 0; n < 20; n++) {
    const { key } = await api.newUser(account.accountId);
    revoked.push(await untilFull("answers", () => revoke(key)));
  }
  // Each has had something, as long as there was room for a row; all together three times the limit at most.
  expect(revoked.slice(0, 4).every((count) => count > 0)).toBe(true);
  const total = revoked.reduce((sum, count) => sum + count, 0);
  expect(total * ROW).toBeLessThanOrEqual(3 * 40_000);
  expect((await usageOf("answers")).bytes).toBeLessThanOrEqual(40_000);
  expect((await setEndpoint()).status).toBe(200);
});
