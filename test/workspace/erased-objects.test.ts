// Objects that no row knows, of a database that was restored to a time before they were stored; and keys for objects
// that are reserved beside an erasure.
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eraseAccount } from "../../src/cells/erase-account.ts";
import { eraseWorkspace } from "../../src/workspace/moving/mover.ts";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import { releaseKeys, reserveKeys } from "../../src/workspace/store/loose-objects.ts";
import { runSealpost } from "../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import {
  begin,
  changeRows,
  deleteRows,
  insertRow,
  rowOf,
  rowsOf,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { documentsOf } from "./support/documents.ts";
import { endKeeping, moveOnce, removeAll } from "./support/moving.ts";
import { putBytes } from "./support/object-bodies.ts";
import { keysIn, openFileStore } from "./support/object-listing.ts";

let database: TestDatabase;
let api: TestApi;
let store: ObjectStore;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  store = await openFileStore(join(api.stateDir, "objects"));
});
afterAll(async () => {
  await store.close();
  await api.close();
  await database.drop();
});

test("objects of an erased account's spaces go, though no row knows them, and nobody else's", async () => {
  const documents = documentsOf(api.ask);
  const fill = async () => {
    const { accountId, key } = await api.newAccount();
    const space = await documents.newSpace("Plans", { key });
    await documents.uploaded({ space_id: space.id }, undefined, { key });
    const prefix = String(space.storage_prefix);
    const end = prefix.slice(-13);
    // Uploaded after the backup, and moved by a later rename of the space.
    for (const start of [prefix, `spaces/later-name-${end}`])
      await putBytes(store, `${start}x-1/${"Ä".repeat(200)}.txt`, randomBytes(3));
    return { accountId, end };
  };
  const erased = await fill();
  const other = await fill();
  const keys = (end: string) => keysIn(store).then((all) => all.filter((key) => key.includes(end)));
  const others = await keys(other.end);
  expect([(await keys(erased.end)).length, others.length]).toEqual([3, 3]);
  // What somebody else has left there is no object.
  const folder = join(api.stateDir, "objects", "keys", "spaces");
  const [prefix = ""] = (await readdir(folder)).filter((name) => name.includes(erased.end.slice(0, 12)));
  const foreign = join(folder, prefix, "100%=");
  await writeFile(foreign, "");

  const { code, stdout } = await runSealpost(
    ["account", "erase", "--account", erased.accountId, "--confirm", "test"],
    { env: { DATABASE_URL: database.url, STATE_DIR: api.stateDir } },
  );
  expect([code, JSON.parse(stdout)]).toMatchObject([0, { objects_left: 0 }]);
  expect(await rowOf(database.pool, "accounts", { id: erased.accountId })).toMatchObject({ name: "erased" });
  await rm(foreign);
  expect(await keys(erased.end)).toEqual([]);
  expect(await keys(other.end)).toEqual(others);
});

test("names that an erased account's renames have left go with its objects, however long these are kept", async () => {
  const documents = documentsOf(api.ask);
  const account = await api.newAccount();
  const space = await documents.newSpace("Plans", { key: account.key });
  const { id } = await documents.uploaded({ space_id: space.id }, undefined, { key: account.key });
  await documents.rename(id, "renamed.txt", { key: account.key });
  while (await moveOnce(database.pool, store, { keptMs: 7 * 86_400_000 }));
  expect(await looseOf(account)).toMatchObject([{ is_reserved: false }]);
  const erased = await eraseWith(account, async () => undefined);
  expect(erased, "no upload's key").toMatchObject({ outcome: "erased", objectsLeft: 0 });
  const soon = Date.now() + 301_000;
  for (const { remove_at } of await looseOf(account)) expect(remove_at.getTime()).toBeLessThan(soon);
});

/** An account with a document, and where its space has its objects. */
async function filled() {
  const documents = documentsOf(api.ask);
  const account = await api.newAccount();
  const { id: space_id, storage_prefix } = await documents.newSpace("Plans", { key: account.key });
  await documents.uploaded({ space_id }, undefined, { key: account.key });
  return { account, space_id, prefix: String(storage_prefix) };
}

/** Erases it, and does `late` once, when its loose objects have been looked through. */
async function eraseWith({ accountId }: TestAccount, late: () => Promise<unknown>) {
  let isDone = false;
  const list: ObjectStore["list"] = async function* (...asked) {
    if (!isDone) await late();
    isDone = true;
    yield* store.list(...asked);
  };
  const objects = Object.assign(Object.create(store) as ObjectStore, { list });
  return await eraseAccount({
    ...{ pool: database.pool, accountId, name: null, waitMaxMs: patience(10_000) },
    tooLong: (_, whom) => new Error(`waited for ${whom}`),
    eraseFromAreas: (onPage) => eraseWorkspace({ pool: database.pool, objects }, accountId, onPage),
    onProgress: () => undefined,
  });
}

const looseOf = ({ accountId }: TestAccount) =>
  rowsOf(database.pool, "workspace.loose_objects", { account_id: accountId });

test("folders that a removal has left which was cut off go, as there are names in them", async () => {
  const { account, prefix } = await filled();
  const folders = join(api.stateDir, "objects", "keys", "spaces");
  const own = async () => (await readdir(folders)).filter((name) => name.includes(prefix.slice(-13, -1)));
  await mkdir(join(folders, (await own())[0]!, "a document's", "name"), { recursive: true });
  expect(await eraseWith(account, async () => undefined)).toMatchObject({ outcome: "erased" });
  expect(await own()).toEqual([]);
});

test("no key is reserved or released for an account that is erased, which is erased all the same", async () => {
  const { account, prefix } = await filled();
  const keys = [`${prefix}late-1/a.txt`];
  const late = async () => {
    expect(await reserveKeys(database.pool, account, keys, 5, null)).toEqual([]);
    await releaseKeys(database.pool, account, { keys });
  };
  expect(await eraseWith(account, late)).toMatchObject({ outcome: "erased", objectsLeft: 0 });
  expect(await looseOf(account)).toEqual([]);
});

test("a key that was reserved all the same keeps nobody from being erased", async () => {
  const { account, prefix } = await filled();
  const { accountId: account_id, userId: user_id } = account;
  const reserved = { account_id, user_id, bytes: 5, is_reserved: true, remove_at: new Date() };
  const late = () =>
    insertRow(database.pool, "workspace.loose_objects", {
      ...reserved,
      storage_key: `${prefix}late-1/a.txt`,
    });
  expect(await eraseWith(account, late)).toMatchObject({ outcome: "erased", objectsLeft: 1 });
  expect(await looseOf(account)).toMatchObject([{ user_id: null, is_reserved: false }]);
});

test("an upload that would reserve its key once the account is erased is 401", async () => {
  const { account, space_id } = await filled();
  const { key } = account;
  const documents = documentsOf(api.ask);
  const { id } = await documents.created({ space_id, file_name: "second.txt" }, { key });
  const before = await looseOf(account);
  const other = await begin(database.pool, "lock table workspace.loose_objects in share mode");
  const putting = documents.put(id, undefined, { key });
  await untilSomebodyWaits(database.pool);
  await changeRows(database.pool, "accounts", { id: account.accountId }, { erased_at: new Date() });
  await other.commit();
  const { status, body } = await putting;
  expect([status, body.code]).toEqual([401, "unauthorized"]);
  expect(await looseOf(account)).toEqual(before);
});

test("one account's counts that are wrong keep nobody else's objects from being removed", async () => {
  const accounts = [await filled(), await filled()].toSorted((a, b) =>
    a.account.accountId < b.account.accountId ? -1 : 1,
  );
  for (const { account, prefix } of accounts)
    await reserveKeys(database.pool, account, [`${prefix}x-1/a.txt`], 5, null);
  const [wrong, other] = accounts.map(({ account }) => account) as [TestAccount, TestAccount];
  await deleteRows(database.pool, "workspace.storage", { account_id: wrong.accountId });
  await endKeeping(database.pool, true);
  // Told once there is nothing else to do.
  const removing = removeAll(database.pool, store);
  await expect(removing).rejects.toMatchObject({ constraint: "storage_documents_check" });
  expect(await looseOf(wrong)).toMatchObject([{ is_reserved: true }]);
  expect(await looseOf(other)).toMatchObject([{ is_reserved: false }]);
});
