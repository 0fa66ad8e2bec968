// Processes that die in the middle of an upload, of deleting, or of starting a run again.
import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { begin, untilSomebodyWaits } from "../support/installation.ts";
import { openRaw, rawHead } from "../support/raw-http.ts";
import { ask, type Json } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { binOf } from "./support/bin.ts";
import { BYTES, digestOf, documentsOf } from "./support/documents.ts";
import { keysInRows, keysInStore, type StillApi, settle, startStillApi } from "./support/moving.ts";
import { chain, runsOf } from "./support/runs.ts";

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

/** Kills a process that waits for a row which somebody else has. */
async function killedBehind(
  sql: string,
  process: SealpostProcess,
  does: () => Promise<unknown>,
): Promise<void> {
  const other = await begin(database.pool, sql);
  const cut = expect(does()).rejects.toThrow();
  await untilSomebodyWaits(database.pool);
  await process.kill();
  await cut;
  await other.commit();
}

describe("what is deleted", () => {
  let serve: SealpostProcess;
  const things = binOf((method, path, options) =>
    ask(serve.url, method, path, { key: api.account.key, ...options }),
  );
  let folder: { path: string };
  let ids: readonly unknown[];
  let space: Json;
  beforeEach(async () => {
    serve = await startProcess("serve", env);
    space = await documents.newSpace();
    const folder_id = await things.newFolder(space.id, "folder");
    folder = { path: `/v1/spaces/${space.id}/folders/${folder_id}` };
    const made = ["one", "two"].map((file_name) =>
      documents.uploaded({ space_id: space.id, folder_id, file_name }),
    );
    ids = (await Promise.all(made)).map(({ id }) => id);
  });
  const statuses = async () =>
    await Promise.all(ids.map(async (id) => (await documents.download(id)).status));

  test.each(["folders", "documents"])(
    "is all there when serve dies at its %s, and so is what is restored",
    async (table) => {
      const locked = `select from workspace.${table} where space_id = '${space.id}' for update`;
      const idempotencyKey = randomUUID();
      for (const [change, before, after] of [
        ["remove", 200, 404],
        ["restore", 404, 200],
      ] as const) {
        await killedBehind(locked, serve, () =>
          things[change](folder, { idempotencyKey: `${change}-${idempotencyKey}` }),
        );
        expect(await statuses()).toEqual([before, before]);
        serve = await startProcess("serve", env);
        await database.pool.query(
          "update sealpost.idempotency_keys set claim_until = now() where status is null",
        );
        expect((await things[change](folder, { idempotencyKey: `${change}-${idempotencyKey}` })).status).toBe(
          200,
        );
        expect(await statuses()).toEqual([after, after]);
      }
      await serve.stop();
    },
  );

  test("for good is gone though dispatchers die at it, and is never restored", async () => {
    const asked = await things.removeForGood({ path: `/v1/spaces/${space.id}` });
    expect(asked.status).toBe(200);
    for (const table of ["documents", "folders", "spaces"]) {
      const id = table === "spaces" ? "id" : "space_id";
      const other = await begin(
        database.pool,
        `select from workspace.${table} where ${id} = '${space.id}' for key share`,
      );
      const dispatch = await startProcess("dispatch", env);
      await untilSomebodyWaits(database.pool);
      await dispatch.kill();
      await other.commit();
      expect((await things.restore({ path: `/v1/spaces/${space.id}` })).status).toBe(404);
      await database.pool.query("update workspace.bin set next_at = now()");
    }
    const dispatch = await startProcess("dispatch", env);
    const left = async () => (await database.pool.query("select from workspace.bin")).rows;
    await expect.poll(left, { timeout: patience(30_000) }).toEqual([]);
    await Promise.all([dispatch.stop(), serve.stop()]);
    expect(
      (await database.pool.query("select from workspace.spaces where id = $1", [space.id])).rows,
    ).toEqual([]);
  });
});

test.each(["workspaces", "node_runs"])("a run is retried once though serve dies at its %s", async (table) => {
  const { key } = api.account;
  const runs = runsOf((...asked) => api.ask(...asked));
  const { id: space_id } = await documents.newSpace();
  const { id } = await runs.started(await runs.newWorkflow(space_id, chain()));
  await runs.cancel(id);
  let serve = await startProcess("serve", env);
  const idempotencyKey = randomUUID();
  const retry = () => ask(serve.url, "POST", `/v1/workflow-runs/${id}/retry`, { key, idempotencyKey });
  // Before its row is there, and after.
  const locked =
    table === "workspaces"
      ? "select from workspace.workspaces for update"
      : "lock table workspace.node_runs in exclusive mode";
  await killedBehind(locked, serve, retry);
  const retried = () => database.pool.query("select id from workspace.runs where retry_of = $1", [id]);
  expect((await retried()).rows).toEqual([]);
  serve = await startProcess("serve", env);
  await database.pool.query("update sealpost.idempotency_keys set claim_until = now() where status is null");
  const [first, again] = [await retry(), await retry()];
  expect([first.status, again.body]).toEqual([202, first.body]);
  expect((await retried()).rows).toEqual([{ id: first.body.id }]);
  await runs.cancel(first.body.id);
  await serve.stop();
});
