// A process with another folder than the others: a disk that is not mounted, another STATE_DIR.
import { cp, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { readConfig } from "../../src/base/config/config.ts";
import { knownStore, openObjectStore } from "../../src/workspace/objects/known-store.ts";
import { type ObjectStore, ObjectStoreAwayError } from "../../src/workspace/objects/object-store.ts";
import { readStoreId, settleStoreId } from "../../src/workspace/store/storage.ts";
import { changeRows, rowOf } from "../support/installation.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { BYTES, documentsOf } from "./support/documents.ts";
import {
  endKeeping,
  keysInStore,
  moveOnce,
  removeAll,
  type StillApi,
  startStillApi,
} from "./support/moving.ts";
import { putBytes, readBytes } from "./support/object-bodies.ts";

const OTHER = /could not be used: it is another one: .*STATE_DIR or OBJECT_STORE_URL/;

let still: StillApi;
let { database, api, documents, objects } = {} as StillApi;
beforeAll(async () => {
  still = await startStillApi();
  ({ database, api, documents, objects } = still);
});
afterAll(() => still.close());

let space_id: unknown;
beforeEach(async () => {
  await changeRows(database.pool, "workspace.object_store", {}, { id: null });
  ({ id: space_id } = await documents.newSpace());
});

function openKnown(stateDir: string): ObjectStore {
  const config = { ...readConfig({}), stateDir };
  return knownStore((isNew) => openObjectStore(config, isNew), {
    read: () => readStoreId(database.pool),
    settle: (findId) => settleStoreId(database.pool, findId),
  });
}
const folderOf = (name: string) => join(api.stateDir, name);
const ours = () => openKnown(api.stateDir);

test("until something is stored any folder will do; of those that store something at once one is left", async () => {
  const stores = [1, 2, 3].map((n) => openKnown(folderOf(`first ${n}`)));
  for (const store of stores) expect(await store.removeLeftovers(new Date())).toBe(0);
  expect(await rowOf(database.pool, "workspace.object_store")).toMatchObject({ id: null });
  const puts = await Promise.allSettled(stores.map((store) => putBytes(store, "spaces/a", BYTES)));
  expect(puts.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected", "rejected"]);
  const same = openKnown(folderOf(`first ${1 + puts.findIndex(({ status }) => status === "fulfilled")}`));
  expect(await readBytes(same, "spaces/a")).toEqual(BYTES);
  await putBytes(same, "spaces/b", BYTES);
});

test("a dispatcher with another folder moves and removes nothing, and says what to look at", async () => {
  const { id, storage_key } = await documents.uploaded({ space_id });
  await putBytes(ours(), "spaces/known", BYTES);
  const other = openKnown(folderOf("another"));
  await documents.rename(id, "once.txt");
  await expect(moveOnce(database.pool, other)).rejects.toThrow(OTHER);
  await database.pool.query("update workspace.moves set next_at = now()");
  while (await moveOnce(database.pool, ours()));
  await endKeeping(database.pool, false);
  await expect(removeAll(database.pool, other)).rejects.toThrow(OTHER);
  await expect(other.check()).rejects.toThrow(OTHER);
  expect(await keysInStore(objects)).toContain(storage_key);
  await endKeeping(database.pool, false);
  await removeAll(database.pool, ours());
  expect(await keysInStore(objects)).not.toContain(storage_key);
});

test("an API with another folder answers 503 about documents' bytes, and the rest as ever", async () => {
  const { id } = await documents.uploaded({ space_id });
  await putBytes(ours(), "spaces/known", BYTES);
  const { id: empty } = await documents.created({ space_id, file_name: "empty" });
  const elsewhere = await startTestApi(database);
  const { key } = api.account;
  const there = documentsOf((method, path, options) => elsewhere.ask(method, path, { key, ...options }));
  expect((await there.download(id)).status).toBe(503);
  expect((await there.put(empty)).status).toBe(503);
  expect((await there.get(id)).status).toBe(200);
  await elsewhere.close();
  expect((await documents.put(empty)).status).toBe(200);
});

test("a copy of everything is the same store, and an operator can say that another one is", async () => {
  await putBytes(ours(), "spaces/known", BYTES);
  await cp(folderOf("objects"), join(folderOf("copied"), "objects"), { recursive: true });
  expect(await readBytes(openKnown(folderOf("copied")), "spaces/known")).toEqual(BYTES);
  const { id } = await rowOf(database.pool, "workspace.object_store");
  const fresh = openKnown(folderOf("fresh"));
  await expect(fresh.stat("spaces/a")).rejects.toThrow(ObjectStoreAwayError);
  const keys = join(folderOf("fresh"), "objects", "keys");
  await mkdir(keys, { recursive: true });
  await writeFile(join(keys, "store-id="), `${id}\n`);
  await expect(fresh.stat("spaces/a")).rejects.toThrow("There is no object");
});

test("a disk that goes later, and leaves empty folders in its place, is an outage", async () => {
  const [reader, remover] = [ours(), ours()];
  await putBytes(reader, "spaces/known", BYTES);
  await remover.stat("spaces/known");
  const keys = join(folderOf("objects"), "keys");
  await rename(keys, `${keys} away`);
  await mkdir(keys);
  await expect(reader.get("spaces/known")).rejects.toThrow(OTHER);
  await expect(remover.remove("spaces/known"), "it is not known as removed").rejects.toThrow(OTHER);
  await rm(keys, { recursive: true });
  await rename(`${keys} away`, keys);
  expect(await readBytes(reader, "spaces/known")).toEqual(BYTES);
});

test("whoever starts while the disk is away makes no folder in its place", async () => {
  const before = ours();
  await putBytes(before, "spaces/known", BYTES);
  const folder = folderOf("objects");
  await rename(folder, `${folder} away`);
  const after = ours();
  await expect(after.check()).rejects.toThrow(OTHER);
  await expect(putBytes(after, "spaces/new", BYTES)).rejects.toThrow(OTHER);
  await expect(before.remove("spaces/known")).rejects.toThrow(ObjectStoreAwayError);
  await expect(putBytes(before, "spaces/new", BYTES)).rejects.toThrow(ObjectStoreAwayError);
  await rename(`${folder} away`, folder);
  for (const store of [before, after]) expect(await readBytes(store, "spaces/known")).toEqual(BYTES);
});
