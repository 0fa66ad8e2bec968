// Uploads that clients break off, draw out or get wrong: told so, with nothing half done, and the same document again.
import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import { DOCUMENT_BYTES_MAX } from "../../src/workspace/model/documents.ts";
import { releaseKeys, reserveKeys } from "../../src/workspace/store/loose-objects.ts";
import { openRaw, type RawConnection, rawHead } from "../support/raw-http.ts";
import { type Json, startTestApi } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { BYTES, digestOf, documentsOf } from "./support/documents.ts";
import {
  endKeeping,
  keysInRows,
  keysInStore,
  removeAll,
  type StillApi,
  settle,
  startStillApi,
} from "./support/moving.ts";
import { putBytes } from "./support/object-bodies.ts";

const PROGRESS_WITHIN_MS = 500;

let still: StillApi;
let { database, api, documents, objects } = {} as StillApi;
let document: Json;
let connection: RawConnection;
beforeAll(async () => {
  still = await startStillApi({
    transferLimits: { ...TRANSFER_LIMITS, progressWithinMs: PROGRESS_WITHIN_MS },
  });
  ({ database, api, documents, objects } = still);
});
afterAll(() => still.close());
beforeEach(async () => {
  const { id: space_id } = await documents.newSpace();
  document = await documents.created({ space_id });
  connection = await openRaw(Number(new URL(api.url).port));
});
afterEach(async () => {
  connection.socket.destroy();
  await settle(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  expect(await unfinished()).toEqual([]);
});

const unfinished = () => readdir(join(api.stateDir, "objects", "unfinished"));

function head(headers: Record<string, string | number | null> = {}): string {
  return rawHead(`PUT /v1/documents/${document.id}/content`, {
    authorization: `Bearer ${api.account.key}`,
    "idempotency-key": randomUUID(),
    "content-type": "text/plain",
    "content-digest": digestOf(BYTES),
    "content-length": BYTES.length,
    connection: "close",
    ...headers,
  });
}

/** As if nobody had tried: the document, its key for retries, and what is stored. */
async function nothingIsDone(): Promise<void> {
  const claims = async () =>
    (await database.pool.query("select from sealpost.idempotency_keys where status is null")).rowCount;
  await expect.poll(claims, { timeout: patience(5_000) }).toBe(0);
  await expect.poll(unfinished, { timeout: patience(5_000) }).toEqual([]);
  expect((await documents.get(document.id)).body).toEqual(document);
  // What came last may not have been looked at yet, and is in the way until it is.
  const put = async () => (await documents.put(document.id)).status;
  await expect.poll(put, { timeout: patience(5_000) }).toBe(200);
  expect((await documents.download(document.id)).bytes).toEqual(BYTES);
}

test("one whose client sends hardly anything any more ends, and says so", async () => {
  connection.socket.write(head() + BYTES.subarray(0, 5));
  const answer = await connection.ended;
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(answer).toContain('"path":"body","message":"Fewer than 16384 bytes came in 0.5 s."');
  await nothingIsDone();
});

test.each([
  [404, "not_found", "member is removed"],
  [401, "unauthorized", "key is revoked"],
])("one ends with %i %s when its %s, and the document is free", async (status, code, what) => {
  const { userId, key } = await api.newUser(api.account.accountId);
  const member = `/v1/spaces/${document.space_id}/members/${userId}`;
  await api.ask("PUT", member, { body: { role: "EDITOR" } });
  const transferLimits = { ...TRANSFER_LIMITS, renewEveryMs: 20 };
  const other = await startTestApi(database, { STATE_DIR: api.stateDir }, { transferLimits });
  onTestFinished(() => other.close());
  const put = () => documentsOf(other.ask).put(document.id, BYTES, { key: api.account.key });
  const { socket, ended } = await openRaw(Number(new URL(other.url).port));
  socket.write(head({ authorization: `Bearer ${key}` }) + BYTES.subarray(0, 5));
  await expect.poll(unfinished, { timeout: patience(5_000) }).toHaveLength(1);
  expect((await put()).body.code).toBe("document_being_uploaded");
  if (what.startsWith("member")) expect((await api.ask("DELETE", member)).status).toBe(200);
  else
    await database.pool.query("update sealpost.api_keys set revoked_at = now() where user_id = $1", [userId]);
  const answer = await ended;
  expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(answer).toContain(`"code":"${code}"`);
  expect((await put()).status).toBe(200);
});

test("one whose client goes away leaves nothing", async () => {
  connection.socket.write(head() + BYTES.subarray(0, 5));
  await expect.poll(unfinished, { timeout: patience(5_000) }).toHaveLength(1);
  connection.socket.destroy();
  await nothingIsDone();
});

test("one whose client ends too soon leaves nothing", async () => {
  connection.socket.end(head() + BYTES.subarray(0, 5));
  expect(await connection.ended).not.toContain("200 OK");
  await nothingIsDone();
});

test("one with more bytes than were announced has those that were, and the rest is no request", async () => {
  const idempotencyKey = randomUUID();
  connection.socket.write(
    `${head({ connection: null, "idempotency-key": idempotencyKey })}${BYTES}and more\r\n\r\n`,
  );
  expect(await connection.ended).toContain("HTTP/1.1 400 ");
  const again = async () => (await documents.put(document.id, BYTES, { idempotencyKey })).status;
  await expect.poll(again, { timeout: patience(5_000) }).toBe(200);
  expect((await documents.download(document.id)).bytes).toEqual(BYTES);
});

test.each([
  [413, "payload_too_large", { "content-length": DOCUMENT_BYTES_MAX + 1 }],
  [413, "payload_too_large", { "content-length": "9".repeat(15) }],
  [400, "header.content-length", { "content-length": null, "transfer-encoding": "chunked" }],
  [400, "header.content-digest", { "content-digest": null }],
  [415, "unsupported_media_type", { "content-encoding": "gzip" }],
])("one that cannot be taken is answered %i %s before any of it is sent", async (status, told, headers) => {
  connection.socket.write(head({ expect: "100-continue", ...headers }));
  const answer = await connection.ended;
  expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(answer).toContain(told);
  await nothingIsDone();
});

describe("while an upload waits for its space", () => {
  /** Puts the document, and does `meanwhile` when its bytes are stored and its row is not written. */
  async function putWhile(meanwhile: () => Promise<unknown>, options: { readonly key?: string } = {}) {
    const isStored = async () =>
      (await keysInStore(objects)).some((key) => key.includes(String(document.id)));
    const client = await database.pool.connect();
    try {
      await client.query("begin");
      await client.query("select from workspace.spaces where id = $1 for update", [document.space_id]);
      const putting = documents.put(document.id, BYTES, options);
      await expect.poll(isStored, { timeout: patience(5_000) }).toBe(true);
      await meanwhile();
      await client.query("commit");
      return await putting;
    } finally {
      client.release();
    }
  }

  test("its key's reservation ends: it is told to come again, and finds nothing in its way", async () => {
    const { status, body, headers } = await putWhile(async () => {
      await endKeeping(database.pool, true);
      await removeAll(database.pool, objects);
    });
    expect([status, body.code, headers.has("retry-after")]).toEqual([503, "temporarily_unavailable", true]);
    await nothingIsDone();
  });

  test("who uploads is no member any more: it counts for nothing", async () => {
    const { userId, key } = await api.newUser(api.account.accountId);
    const path = `/v1/spaces/${document.space_id}/members/${userId}`;
    expect((await api.ask("PUT", path, { body: { role: "EDITOR" } })).status).toBe(200);
    const remove = () =>
      database.pool.query("delete from workspace.space_members where user_id = $1", [userId]);
    expect((await putWhile(remove, { key })).status).toBe(404);
    await nothingIsDone();
  });
});

test("what is stored after its reservation has ended is found when that is looked at again", async () => {
  const { pool } = database;
  const key = `spaces/late-000000000000/${randomUUID()}/late.txt`;
  await reserveKeys(pool, api.account, [key], BYTES.length, null);
  await endKeeping(pool, true);
  await removeAll(pool, objects);
  await putBytes(objects, key, BYTES);
  await releaseKeys(pool, api.account, { keys: [key] });
  expect(await keysInStore(objects)).toContain(key);
  await endKeeping(pool, true);
  await removeAll(pool, objects);
  expect(await keysInStore(objects)).not.toContain(key);
});

test("one that dies after its reservation has ended leaves what is found then, too", async () => {
  const { pool } = database;
  const key = `spaces/late-000000000000/${randomUUID()}/dead.txt`;
  await reserveKeys(pool, api.account, [key], BYTES.length, null);
  await endKeeping(pool, true);
  await removeAll(pool, objects);
  await putBytes(objects, key, BYTES);
  await endKeeping(pool, true);
  await removeAll(pool, objects);
  expect(await keysInStore(objects)).not.toContain(key);
  const { rows } = await pool.query("select from workspace.loose_objects where storage_key = $1", [key]);
  expect(rows).toEqual([]);
});
