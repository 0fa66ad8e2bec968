// What a key that was revoked while its request was under way still does: nothing.
import { once } from "node:events";
import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { listenToFeed, sequenceEvents } from "../../src/feed/feed-sql.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { countRows, publish, rowsOf } from "../support/installation.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";

let database: TestDatabase;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, {}, { transferLimits: { ...TRANSFER_LIMITS, renewEveryMs: 50 } });
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

async function revoke(key: string): Promise<void> {
  const { rowCount } = await database.pool.query(
    "update sealpost.api_keys set revoked_at = now() where digest = $1",
    [digestSecret(key)],
  );
  expect(rowCount).toBe(1);
  expect((await api.ask("GET", "/v1/operations", { key })).status).toBe(401);
}

const lookUps = () => api.statements().filter((text) => text.includes("api_keys where digest")).length;

/** Sends all but the last byte of the body; `finish` sends that, and resolves with the answer's status and text. */
async function begin(method: string, path: string, key: string, body: string) {
  const sending = request(`${api.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      "idempotency-key": `slow ${path} ${Math.random()}`,
    },
  });
  sending.on("error", () => undefined);
  const answered = once(sending, "response");
  const before = lookUps();
  sending.write(body.slice(0, -1));
  // Publishing looks at a key that is known in its transaction.
  if (path !== "/v1/analyses") await expect.poll(lookUps).toBe(before + 1);
  return {
    finish: async () => {
      sending.end(body.slice(-1));
      const [response] = await answered;
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      return { status: response.statusCode as number, text: Buffer.concat(chunks).toString() };
    },
  };
}

test.each([
  ["PUT", "/v1/webhooks/endpoint", '{"url":"https://elsewhere.example.com/"}'],
  ["POST", "/v1/webhooks/signing-secret/rotate", '{"overlap_seconds":60}'],
  ["POST", "/v1/analyses", '{"analysis":{"id":"by-revoked","status":"succeeded"}}'],
  ["POST", "/v1/webhooks/replays", '{"filter":{"status":["abandoned"]}}'],
])("%s %s writes nothing, and tells nothing", async (method, path, body) => {
  const key = await api.newKey(api.account.accountId);
  // Known to be valid a moment ago.
  expect((await api.ask("GET", "/v1/operations", { key })).status).toBe(200);
  const slow = await begin(method, path, key, body);
  await revoke(key);
  const counts = () =>
    Promise.all(["analyses", "replays", "signing_secrets"].map((table) => countRows(database.pool, table)));
  const before = [await counts(), await rowsOf(database.pool, "endpoints", {})];
  const { status, text } = await slow.finish();
  expect([status, JSON.parse(text).code]).toEqual([401, "unauthorized"]);
  expect([await counts(), await rowsOf(database.pool, "endpoints", {})]).toEqual(before);
});

describe("what takes long", () => {
  test("a bulk replay that is being made is not", async () => {
    const { accountId } = api.account;
    const key = await api.newKey(accountId);
    const client = await database.pool.connect();
    await client.query("begin");
    await client.query("select from sealpost.accounts where id = $1 for no key update", [accountId]);
    const before = await countRows(database.pool, "replays");
    const replaying = api.ask("POST", "/v1/webhooks/replays", { key, body: { filter: {} } });
    const waiting = async () =>
      (await database.pool.query("select from pg_stat_activity where wait_event_type = 'Lock'")).rowCount;
    await expect.poll(waiting).toBe(1);
    await revoke(key);
    await client.query("commit");
    client.release();
    const { status, body } = await replaying;
    expect([status, body.code]).toEqual([401, "unauthorized"]);
    expect(await countRows(database.pool, "replays")).toBe(before);
  });

  test("a read that waits for news is told nothing more", async () => {
    const listening = Promise.withResolvers<void>();
    const news = listenToFeed({
      pool: database.pool,
      onNews: (accountIds) => api.news.tell(accountIds),
      onPublished: () => undefined,
      onListening: () => listening.resolve(),
      onError: () => undefined,
      random: () => 0,
    });
    await listening.promise;
    const key = await api.newKey(api.account.accountId);
    const { body } = await api.ask("GET", "/v1/webhooks/events?cursor=newest", { key });
    const reading = api.ask("GET", `/v1/webhooks/events?cursor=${body.next_cursor}&wait=20`, { key });
    await expect.poll(() => api.waiting()).toBe(1);
    await revoke(key);
    await publish(database.pool, api.account.accountId, '{"id":"news","status":"succeeded"}');
    await sequenceEvents(database.pool, "00000000-0000-7000-8000-000000000001", 1_000);
    expect((await reading).status).toBe(401);
    await news.stop();
  });

  test.each(["a key that is revoked", "a member who is removed"])("a download ends for %s", async (who) => {
    const { accountId, key: ownerKey } = api.account;
    const documents = documentsOf(api.ask);
    const space = await documents.newSpace(who, { key: ownerKey });
    const { userId, key } = await api.newUser(accountId);
    await api.ask("PUT", `/v1/spaces/${space.id}/members/${userId}`, {
      key: ownerKey,
      body: { role: "VIEWER" },
    });
    const bytes = Buffer.alloc(30_000_000, "x");
    const named = { space_id: space.id, file_name: "long.txt" };
    const document = await documents.uploaded(named, bytes, { key: ownerKey });
    const reading = request(`${api.url}/v1/documents/${document.id}/content`, {
      headers: { authorization: `Bearer ${key}` },
    }).end();
    const [response] = await once(reading, "response");
    expect(response.statusCode).toBe(200);
    const ended = once(response, "end");
    ended.catch(() => undefined);
    if (who === "a key that is revoked") await revoke(key);
    else await api.ask("DELETE", `/v1/spaces/${space.id}/members/${userId}`, { key: ownerKey });
    // Nobody reads until it was looked at again, so that it is not over before; that also took looks.
    const before = lookUps();
    await expect.poll(() => lookUps() > before || response.destroyed).toBe(true);
    response.resume();
    await expect(ended).rejects.toThrow("aborted");
  });
});
