import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Content, ErasedRequest, Work } from "../../src/http/operation.ts";
import { type ObjectStore, ObjectStoreAwayError } from "../../src/workspace/objects/object-store.ts";
import { contentOperations } from "../../src/workspace/operations/document-content.ts";
import { changeRows, rowOf, rowsOf } from "../support/installation.ts";
import { BYTES } from "./support/documents.ts";
import {
  endKeeping,
  endLeases,
  keysInRows,
  keysInStore,
  moveOnce,
  removeAll,
  type StillApi,
  settle,
  startStillApi,
} from "./support/moving.ts";
import { passedOn } from "./support/object-stores.ts";

const HOUR_MS = 3_600_000;

let still: StillApi;
let { database, api, documents, objects } = {} as StillApi;
beforeAll(async () => {
  still = await startStillApi();
  ({ database, api, documents, objects } = still);
});
afterAll(async () => {
  await settle(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  await still.close();
});

const keyOf = async (id: unknown) => String((await documents.get(id)).body.storage_key);
const moveAll = async () => {
  while (await moveOnce(database.pool, objects));
};

test("a renamed document is found where it was, then where its name says, and its old object goes", async () => {
  const { id: space_id, storage_prefix } = await documents.newSpace("one");
  const before = await documents.uploaded({ space_id, file_name: "Before.txt" });
  const { id, storage_key: old } = before;
  const { status, body } = await documents.rename(id, "After.txt");
  expect([status, body]).toEqual([200, { ...before, file_name: "After.txt" }]);
  expect((await documents.download(id)).bytes).toEqual(BYTES);

  await moveAll();
  const key = await keyOf(id);
  expect(key).toMatch(new RegExp(`^${storage_prefix}${id}-[0-9a-f]{12}/After\\.txt$`));
  const got = await documents.download(id);
  expect(got.bytes).toEqual(BYTES);
  expect(got.headers.get("content-disposition")).toBe("attachment; filename=After.txt");
  expect((await objects.stat(String(old))).sizeBytes).toBe(BYTES.length);

  await endKeeping(database.pool, false);
  await removeAll(database.pool, objects);
  await expect(objects.stat(String(old))).rejects.toThrow("There is no object");
  expect((await documents.download(id)).bytes).toEqual(BYTES);
});

test("whoever has read the row before its object was moved and removed gets the new one", async () => {
  const { id: space_id } = await documents.newSpace("raced");
  const { id } = await documents.uploaded({ space_id });
  const moving: ObjectStore = {
    ...passedOn(objects),
    get: async (key, ...rest) => {
      if (key === old) {
        await documents.rename(id, "Elsewhere.txt");
        await moveAll();
        await endKeeping(database.pool, false);
        await removeAll(database.pool, objects);
      }
      return await objects.get(key, ...rest);
    },
  };
  const old = await keyOf(id);
  const operations = contentOperations({
    pool: database.pool,
    objects: moving,
    onObjectsAway: () => undefined,
  });
  const { work } = operations.find(({ key }) => key === "documents.download")!;
  const { accountId, userId } = api.account;
  const request = { params: { document_id: id }, user: { accountId, userId } } as unknown as ErasedRequest;
  const answer = (await (work as Extract<Work, { kind: "read" }>).handle(request)) as { content: Content };
  const body = await answer.content.open({ first: 0, last: BYTES.length - 1 });
  expect(await buffer(body)).toEqual(BYTES);
  expect(await keyOf(id)).not.toBe(old);
});

test("a document without content gets another key at once, and with its space", async () => {
  const { id: space_id } = await documents.newSpace("pending");
  const { id, storage_key } = await documents.created({ space_id });
  const { body } = await documents.rename(id, "Other.txt");
  expect(body.storage_key).not.toBe(storage_key);
  expect(String(body.storage_key).endsWith("/Other.txt")).toBe(true);
  const renamed = await documents.renameSpace(space_id, "pending no more");
  await moveAll();
  expect((await keyOf(id)).startsWith(String(renamed.body.storage_prefix))).toBe(true);
  expect((await documents.put(id)).status).toBe(200);
  expect((await documents.download(id)).bytes).toEqual(BYTES);
});

test("a space's documents all go where its prefix says, over many steps, also when it is renamed midway", async () => {
  const { id: space_id } = await documents.newSpace("many");
  const ids: unknown[] = [];
  for (let n = 0; n < 60; n++) {
    const name = { space_id, file_name: `${n}.txt` };
    ids.push(
      (n % 7 === 0 ? await documents.created(name) : await documents.uploaded(name, Buffer.from(`${n}`))).id,
    );
  }
  await documents.renameSpace(space_id, "more");
  await moveOnce(database.pool, objects);
  const { body: back } = await documents.renameSpace(space_id, "many");
  await moveOnce(database.pool, objects);
  const { body: space } = await documents.renameSpace(space_id, "most");
  expect(back.storage_prefix).not.toBe(space.storage_prefix);
  await moveAll();
  for (const [n, id] of ids.entries()) {
    expect((await keyOf(id)).startsWith(String(space.storage_prefix))).toBe(true);
    if (n % 7 !== 0) expect((await documents.download(id)).bytes.toString()).toBe(`${n}`);
  }
});

test("a step that was planned before a rename and comes after it undoes nothing", async () => {
  const { id: space_id } = await documents.newSpace("X");
  const { id } = await documents.uploaded({ space_id });
  await documents.renameSpace(space_id, "Y");
  const gate = Promise.withResolvers<void>();
  const copying = Promise.withResolvers<void>();
  const late: ObjectStore = {
    ...passedOn(objects),
    copy: async (...args) => {
      copying.resolve();
      await gate.promise;
      await objects.copy(...args);
    },
  };
  const lateStep = moveOnce(database.pool, late);
  await copying.promise;
  const { body: space } = await documents.renameSpace(space_id, "X");
  await endLeases(database.pool);
  await moveAll();
  gate.resolve();
  await lateStep;
  expect((await keyOf(id)).startsWith(String(space.storage_prefix))).toBe(true);
  expect((await documents.download(id)).bytes).toEqual(BYTES);
});

test("an upload that is under way while its document and its space are renamed is moved after them", async () => {
  const { id: space_id } = await documents.newSpace("before");
  const { id } = await documents.created({ space_id, file_name: "before" });
  // Renamed between the reservation of its key and the commit: the row is locked until both renames are asked for.
  const client = await database.pool.connect();
  await client.query("begin");
  await client.query("select from workspace.spaces where id = $1 for update", [space_id]);
  const uploading = documents.put(id);
  await expect
    .poll(async () => (await keysInStore(objects)).some((key) => key.includes(String(id))))
    .toBe(true);
  await client.query("update workspace.spaces set storage_prefix = $2 where id = $1", [
    space_id,
    "spaces/after/",
  ]);
  await client.query("update workspace.documents set file_name = 'after' where id = $1", [id]);
  await client.query("commit");
  client.release();
  expect((await uploading).status).toBe(200);
  await moveAll();
  expect(await keyOf(id)).toMatch(/^spaces\/after\/.*\/after$/);
  expect((await documents.download(id)).bytes).toEqual(BYTES);
});

test("an object that cannot be copied holds up no other, and is tried again, later each time", async () => {
  const { id: space_id } = await documents.newSpace("one bad");
  const ids: unknown[] = [];
  for (let n = 0; n < 30; n++) ids.push((await documents.uploaded({ space_id, file_name: `${n}` })).id);
  const bad = await keyOf(ids[3]);
  const copied: string[] = [];
  const faulty: ObjectStore = {
    ...passedOn(objects),
    copy: async (from, ...rest) => {
      if (from === bad) throw new ObjectStoreAwayError("copy it", new Error("EIO"));
      copied.push(from);
      await objects.copy(from, ...rest);
    },
  };
  const errors: Error[] = [];
  const hooks = { onUncopied: (error: Error) => void errors.push(error) };
  const { body: space } = await documents.renameSpace(space_id, "one bad, renamed");
  while (await moveOnce(database.pool, faulty, hooks));
  for (const [n, id] of ids.entries()) {
    expect((await keyOf(id)).startsWith(String(space.storage_prefix)), `${n}`).toBe(n !== 3);
  }
  expect(copied).toHaveLength(29);
  const waits: number[] = [];
  for (let n = 0; n < 9; n++) {
    const move = await rowOf(database.pool, "workspace.moves", { space_id });
    expect([move.document_id, move.failures]).toEqual([ids[3], n + 1]);
    waits.push(move.next_at.getTime() - Date.now());
    await endLeases(database.pool);
    await moveOnce(database.pool, faulty, hooks);
  }
  expect(waits[0]).toBeLessThan(30_000);
  for (const [n, wait] of waits.entries()) expect(wait).toBeGreaterThan((waits[n - 1] ?? 0) * 0.9);
  expect(waits.at(-1)).toBeGreaterThan(HOUR_MS / 2);
  expect(waits.at(-1)).toBeLessThanOrEqual(HOUR_MS);
  expect([copied.length, errors.length]).toEqual([29, 10]);
  await endLeases(database.pool);
  await moveAll();
  expect((await keyOf(ids[3])).startsWith(String(space.storage_prefix))).toBe(true);
});

test("a store that is away is no fault of an object's: the step is taken again as it was", async () => {
  const { id: space_id } = await documents.newSpace("away");
  const { id } = await documents.uploaded({ space_id });
  await documents.renameSpace(space_id, "away, renamed");
  const away = async () => {
    throw new ObjectStoreAwayError("answer", new Error("ECONNREFUSED"));
  };
  const store: ObjectStore = { ...passedOn(objects), copy: away, stat: away };
  await expect(moveOnce(database.pool, store)).rejects.toThrow("ECONNREFUSED");
  const move = await rowOf(database.pool, "workspace.moves", { space_id });
  expect(move).toMatchObject({ document_id: null, failures: 0 });
  await endLeases(database.pool);
  await moveAll();
  expect((await documents.download(id)).bytes).toEqual(BYTES);
});

test("a lost object is looked for again, and follows its name when it is restored", async () => {
  const { id: space_id } = await documents.newSpace("lost");
  const { id } = await documents.uploaded({ space_id });
  const { id: other } = await documents.uploaded({ space_id, file_name: "other" });
  const old = await keyOf(id);
  await objects.remove(old);
  const { body: space } = await documents.renameSpace(space_id, "lost and found");
  const lost: string[] = [];
  const hooks = { onLost: ({ documentId }: { documentId: string }) => void lost.push(documentId) };
  for (let n = 0; n < 3; n++) {
    await endLeases(database.pool);
    while (await moveOnce(database.pool, objects, hooks));
  }
  expect(lost).toEqual([id, id, id]);
  expect((await keyOf(other)).startsWith(String(space.storage_prefix))).toBe(true);
  await objects.put(old, Readable.from([BYTES]), BYTES.length);
  await endLeases(database.pool);
  await moveAll();
  expect((await keyOf(id)).startsWith(String(space.storage_prefix))).toBe(true);
  expect((await documents.download(id)).bytes).toEqual(BYTES);
});

test("a lost object is given up after 200 tries", async () => {
  const { id: space_id } = await documents.newSpace("gone");
  const { id } = await documents.uploaded({ space_id });
  const key = await keyOf(id);
  await objects.remove(key);
  await documents.rename(id, "renamed");
  await changeRows(database.pool, "workspace.moves", { space_id }, { failures: 198 });
  await moveOnce(database.pool, objects, { onLost: () => undefined });
  expect(await rowOf(database.pool, "workspace.moves", { space_id })).toMatchObject({ failures: 199 });
  await endLeases(database.pool);
  await moveOnce(database.pool, objects, { onLost: () => undefined });
  expect(await rowsOf(database.pool, "workspace.moves", { space_id })).toEqual([]);
  await objects.put(key, Readable.from([BYTES]), BYTES.length);
});

test.each([
  [0, 300],
  [86_400_000, 86_400],
])(
  "the old object of what was moved is kept for %i ms, and five minutes at least",
  async (keptMs, seconds) => {
    const { id: space_id } = await documents.newSpace("kept");
    const { storage_key, id } = await documents.uploaded({ space_id });
    await documents.rename(id, "renamed");
    while (await moveOnce(database.pool, objects, { keptMs }));
    const { remove_at } = await rowOf(database.pool, "workspace.loose_objects", { storage_key });
    const left = (remove_at.getTime() - Date.now()) / 1_000;
    expect(left).toBeGreaterThan(seconds - 60);
    expect(left).toBeLessThanOrEqual(seconds);
  },
);

test("20 who rename a space and a document at once come one after the other", async () => {
  const { id: space_id } = await documents.newSpace("at once");
  const { id } = await documents.uploaded({ space_id });
  const { id: other } = await documents.uploaded({ space_id, file_name: "other" });
  const renames = Array.from({ length: 20 }, async (_, n) => [
    (await documents.renameSpace(space_id, `at once ${n}`)).status,
    (await documents.rename(id, `document ${n}`)).status,
    (await documents.rename(n % 2 ? id : other, "the one")).status,
    await moveOnce(database.pool, objects),
  ]);
  const answers = (await Promise.all(renames)).flat();
  expect(answers.filter((answer) => typeof answer === "number" && ![200, 409].includes(answer))).toEqual([]);
  await endLeases(database.pool);
  await moveAll();
  const { body: space } = await api.ask("GET", `/v1/spaces/${space_id}`);
  expect(String(space.storage_prefix)).toContain(`spaces/${String(space.name).replaceAll(" ", "-")}-`);
  for (const one of [id, other]) {
    const { body } = await documents.get(one);
    expect(String(body.storage_key).startsWith(`${space.storage_prefix}${one}-`)).toBe(true);
    expect(String(body.storage_key).endsWith(`/${body.file_name}`)).toBe(true);
    expect((await documents.download(one)).bytes).toEqual(BYTES);
  }
});

test("of 20 documents that are given one name at once, one gets it", async () => {
  const { id: space_id } = await documents.newSpace("names");
  const made = await Promise.all(
    Array.from({ length: 20 }, (_, n) => documents.created({ space_id, file_name: `${n}` })),
  );
  const answers = await Promise.all(made.map(({ id }) => documents.rename(id, "wanted")));
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  expect(answers.filter(({ body }) => body.code === "document_name_taken")).toHaveLength(19);
});
