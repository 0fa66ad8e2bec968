// Processes that die in the middle of an upload.
import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { openRaw, rawHead } from "../support/raw-http.ts";
import { ask, type Json } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { BYTES, digestOf, documentsOf } from "./support/documents.ts";
import { keysInRows, keysInStore, type StillApi, settle, startStillApi } from "./support/moving.ts";

let still: StillApi;
let { database, api, documents, objects } = {} as StillApi;
let env: Record<string, string>;
beforeAll(async () => {
  still = await startStillApi();
  ({ database, api, documents, objects } = still);
  env = { DATABASE_URL: database.url, STATE_DIR: api.stateDir, RATE_LIMIT_REQUESTS: "1000000" };
});
afterAll(() => still.close());
afterEach(async () => {
  await settle(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
});

describe("serve dies", () => {
  let serve: SealpostProcess;
  let document: Json;
  let idempotencyKey: string;
  beforeEach(async () => {
    idempotencyKey = randomUUID();
    serve = await startProcess("serve", env);
    const { id: space_id } = await documents.newSpace();
    document = await documents.created({ space_id });
  });

  /** As if its lease were over. */
  async function retry() {
    await database.pool.query(
      "update sealpost.idempotency_keys set claim_until = now() where status is null",
    );
    return await documents.put(document.id, BYTES, { idempotencyKey });
  }

  async function nothingIsDone(): Promise<void> {
    expect((await documents.get(document.id)).body).toEqual(document);
    expect((await documents.download(document.id)).status).toBe(409);
  }

  test("in the middle of an upload: nothing is stored, and the same request succeeds", async () => {
    const port = Number(new URL(serve.url).port);
    const { socket, ended } = await openRaw(port);
    socket.write(
      rawHead(`PUT /v1/documents/${document.id}/content`, {
        authorization: `Bearer ${api.account.key}`,
        "idempotency-key": idempotencyKey,
        "content-type": "text/plain",
        "content-digest": digestOf(BYTES),
        "content-length": BYTES.length,
      }),
    );
    socket.write(BYTES.subarray(0, 5));
    const unfinished = () => readdir(join(api.stateDir, "objects", "unfinished")).catch(() => []);
    await expect.poll(unfinished, { timeout: patience(5_000) }).toHaveLength(1);
    await serve.kill();
    await ended;
    await nothingIsDone();
    expect((await retry()).status).toBe(200);
    expect((await documents.download(document.id)).bytes).toEqual(BYTES);
    expect(await objects.removeLeftovers(new Date(Date.now() + 60_000))).toBe(1);
  });

  test("between the last byte and the commit: nothing is done, and the same request succeeds", async () => {
    const { put } = documentsOf((method, path, options) =>
      ask(serve.url, method, path, { key: api.account.key, ...options }),
    );
    const isStored = async () =>
      (await keysInStore(objects)).some((key) => key.includes(String(document.id)));
    const client = await database.pool.connect();
    try {
      await client.query("begin");
      await client.query("select from workspace.spaces where id = $1 for update", [document.space_id]);
      const cut = expect(put(document.id, BYTES, { idempotencyKey })).rejects.toThrow();
      await expect.poll(isStored, { timeout: patience(5_000) }).toBe(true);
      await serve.kill();
      await cut;
    } finally {
      await client.query("rollback");
      client.release();
    }
    await nothingIsDone();
    expect((await retry()).status).toBe(200);
    expect((await documents.download(document.id)).bytes).toEqual(BYTES);
  });
});
