import { chmod, lstat, mkdtemp, readdir, rename, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type ObjectStore, ObjectStoreAwayError } from "../../../src/workspace/objects/object-store.ts";
import { putBytes, readBytes, uniqueBytes } from "../support/object-bodies.ts";
import { openFileStore } from "../support/object-listing.ts";

const KEY = "spaces/plans/a";
let folder: string;
let store: ObjectStore;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "sealpost-objects-"));
  store = await openFileStore(folder);
});
afterEach(() => rm(folder, { recursive: true }));

async function everythingBelow(path: string): Promise<string[]> {
  return (await readdir(path, { recursive: true })).sort();
}

test("files and folders are their owner's alone", async () => {
  await putBytes(store, KEY, Buffer.from("x"));
  await store.copy(KEY, "spaces/b");
  for (const path of await everythingBelow(folder)) {
    const facts = await lstat(join(folder, path));
    expect(facts.mode & 0o777, path).toBe(facts.isDirectory() ? 0o700 : 0o600);
  }
});

test("a copy shares its object's bytes on the disk", async () => {
  await putBytes(store, KEY, uniqueBytes(1_000));
  await store.copy(KEY, "spaces/b");
  const inode = async (path: string) => (await lstat(join(folder, "keys", path))).ino;
  expect(await inode("spaces/b=")).toBe(await inode("spaces/plans/a="));
});

test("a copy in progress is no leftover, however old its object is", async () => {
  const draft = join(folder, "unfinished", "draft");
  await writeFile(draft, "x");
  await utimes(draft, 0, 0);
  expect(await store.removeLeftovers(new Date(Date.now() - 3_600_000))).toBe(0);
});

test("of a removed object its folders go too, up to one that is in use", async () => {
  await putBytes(store, "spaces/plans/2026/a", Buffer.from("x"));
  await putBytes(store, "spaces/other", Buffer.from("x"));
  await store.remove("spaces/plans/2026/a");
  expect(await everythingBelow(join(folder, "keys"))).toEqual(["spaces", "spaces/other="]);
});

test("objects that come and go in one folder at once do not get in each other's way", async () => {
  const rounds = Array.from({ length: 20 }, async (_, n) => {
    for (let round = 0; round < 20; round++) {
      const key = `spaces/busy/deep/${n}`;
      await putBytes(store, key, Buffer.from(key));
      await store.copy(key, `spaces/busy/deeper/still/${n}`);
      expect((await readBytes(store, key)).toString()).toBe(key);
      await store.remove(key);
      await store.remove(`spaces/busy/deeper/still/${n}`);
    }
  });
  await Promise.all(rounds);
  expect(await everythingBelow(folder)).toEqual(["keys", "unfinished"]);
});

test("a disk that has gone is an outage, and no object is said to be missing, or removed", async () => {
  await putBytes(store, KEY, Buffer.from("x"));
  await rename(join(folder, "keys"), join(folder, "away"));
  for (const ended of await Promise.allSettled([
    store.get(KEY),
    store.stat(KEY),
    store.copy(KEY, "spaces/b"),
    store.remove(KEY),
  ])) {
    expect(ended).toMatchObject({ status: "rejected", reason: expect.any(ObjectStoreAwayError) });
  }
  await rename(join(folder, "away"), join(folder, "keys"));
  await rename(join(folder, "unfinished"), join(folder, "away"));
  await expect(putBytes(store, KEY, Buffer.from("y"))).rejects.toThrow(
    /could not store "spaces\/plans\/a": ENOENT/,
  );
  expect((await readBytes(store, KEY)).toString()).toBe("x");
});

test.each(["keys", "unfinished"])("who starts is told that the folder %s cannot be used", async (name) => {
  await rm(join(folder, name), { recursive: true });
  await writeFile(join(folder, name), "");
  await chmod(join(folder, name), 0o600);
  await expect(store.check()).rejects.toThrow(
    new RegExp(`could not (?:use|write to) the folder ${join(folder, name)}: (?:EACCES|ENOTDIR)`),
  );
});

test("a file where the folder should be is told when the store is opened", async () => {
  const file = join(folder, "file");
  await writeFile(file, "x");
  await chmod(file, 0o600);
  await expect(openFileStore(file)).rejects.toThrow(/could not use the folder .*: ENOTDIR/);
});
