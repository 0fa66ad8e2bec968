// Objects that no row knows: of a database that was restored to a time before they were stored.
import { randomBytes } from "node:crypto";
import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import { runSealpost } from "../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { rowOf } from "../support/installation.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";
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
