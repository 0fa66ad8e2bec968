// What is deleted for good: its bytes, its rows, and what is counted of them, whoever dies on the way.
import pg from "pg";
import { beforeEach, describe, expect, test } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { eraseWorkspace } from "../../src/workspace/moving/mover.ts";
import { deleteGone } from "../../src/workspace/store/bin.ts";
import { KEPT_MS } from "../../src/workspace/store/loose-objects.ts";
import type { Json } from "../support/sealpost-api.ts";
import {
  account,
  api,
  ask,
  database,
  documents,
  expectExact,
  objects,
  runs,
  stepping,
  usageOf,
  useStorage,
} from "./storage-world.ts";
import { binOf, deleteAllGone, endBin, KINDS } from "./support/bin.ts";
import { BYTES } from "./support/documents.ts";
import { endKeeping, keysInRows, keysInStore, moveOnce, removeAll, settle } from "./support/moving.ts";
import { chain, stepAll } from "./support/runs.ts";

useStorage();
const bin = binOf((...asked) => ask(...asked));

let space: Json;
beforeEach(async () => {
  space = await documents.newSpace("things");
});

const spacePath = () => ({ path: `/v1/spaces/${space.id}` });
const bytesOf = async () => {
  const kinds = ["documents", "leftovers", "pages", "workflows", "runs"] as const;
  const used = await Promise.all(kinds.map(async (kind) => [kind, (await usageOf(kind)).bytes]));
  return Object.fromEntries(used);
};

/** A space with one of everything, and things in its bin. */
async function fill(space_id: unknown): Promise<void> {
  for (const kind of ["folder", "document", "page", "workflow"] as const) {
    await bin.newThing(kind, space_id, `stays ${kind}`);
    await bin.remove(await bin.newThing(kind, space_id, `goes ${kind}`));
  }
  const outer = await bin.newFolder(space_id, "outer");
  const folder_id = await bin.newFolder(space_id, "inner", outer);
  for (const file_name of ["one", "two"]) await documents.uploaded({ space_id, folder_id, file_name });
  await documents.created({ space_id, folder_id, file_name: "empty" });
  const { id: moved } = await documents.uploaded({ space_id, folder_id, file_name: "three" });
  await documents.rename(moved, "renamed");
  const page = await bin.newThing("page", space_id, "with links");
  await ask("POST", `${page.path}/publish`);
  for (let n = 0; n < 2; n++) await ask("POST", `${page.path}/links`, { body: { label: "A link" } });
  const workflow = await runs.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
  for (let n = 0; n < 2; n++) await runs.started(workflow);
  await stepAll(stepping());
}

const rowsOf = async () => {
  const tables = [
    ...[
      "bin",
      "spaces",
      "space_members",
      "folders",
      "documents",
      "moves",
      "pages",
      "page_versions",
      "page_links",
    ],
    ...["workflows", "workflow_versions", "runs", "node_runs", "node_items", "run_events"],
  ];
  const counts = tables.map(
    (table) => `(select count(*)::integer from workspace.${table} where account_id = $1) as ${table}`,
  );
  const { rows } = await database.pool.query(`select ${counts.join()}`, [account.accountId]);
  return rows[0] as Readonly<Record<string, number>>;
};

describe.each(KINDS)("a %s", (kind) => {
  test.each(["permanently", "after its time"])(
    "%s, is gone from the store and from what is counted",
    async (how) => {
      const other = await documents.newSpace("other");
      await fill(other.id);
      await settle(database.pool, objects);
      const [rows, bytes, keys] = [await rowsOf(), await bytesOf(), await keysInStore(objects)];
      const { id } = kind === "space" ? await documents.newSpace("another") : space;
      const thing = await bin.newThing(kind, id, "thing");
      if (kind === "folder") {
        const inner = await bin.newFolder(id, "inner", thing.id);
        for (const folder_id of [thing.id, inner]) await documents.uploaded({ space_id: id, folder_id });
      }
      if (kind === "space") await fill(id);
      expect(await bytesOf()).not.toEqual(bytes);
      await settle(database.pool, objects);
      if (how === "permanently") expect((await bin.removeForGood(thing)).status).toBe(200);
      else {
        await bin.remove(thing);
        await deleteAllGone(database.pool);
        expect(await bin.listed(id)).toMatchObject([
          { id: thing.id },
          ...(kind === "space" ? [{}, {}, {}, {}] : []),
        ]);
        await endBinOf(thing.id);
      }
      await deleteAllGone(database.pool);
      await expectExact();
      // Whoever has just begun to read it reads it to its end.
      const stored = await keysInStore(objects);
      await removeAll(database.pool, objects);
      expect(await keysInStore(objects)).toEqual(stored);
      await endKeeping(database.pool, false);
      await removeAll(database.pool, objects);
      expect(await keysInStore(objects)).toEqual(keys);
      expect([await rowsOf(), await bytesOf()]).toEqual([rows, bytes]);
      await expectExact();
    },
  );
});

async function endBinOf(id: unknown): Promise<void> {
  await database.pool.query("update workspace.bin set gone_at = now(), next_at = now() where item_id = $1", [
    id,
  ]);
}

test("what a rename keeps of a document for a day goes with it, and nobody else's", async () => {
  await settle(database.pool, objects);
  const ids: unknown[] = [];
  for (const file_name of ["goes", "stays"]) {
    const { id } = await documents.uploaded({ space_id: space.id, file_name });
    await documents.rename(id, `${file_name}, renamed`);
    ids.push(id);
  }
  while (await moveOnce(database.pool, objects, { keptMs: DAY_MS }));
  await bin.removeForGood({ path: `/v1/documents/${ids[0]}` });
  await deleteAllGone(database.pool);
  const { rows } = await database.pool.query(
    `select storage_key, remove_at <= now() + $2 * interval '1 millisecond' as goes
     from workspace.loose_objects where account_id = $1 order by split_part(storage_key, '/', 4)`,
    [account.accountId, KEPT_MS],
  );
  expect(rows.map(({ storage_key, goes }) => [storage_key.split("/").at(-1), goes])).toEqual([
    ["goes", true],
    ["goes, renamed", true],
    ["stays", false],
  ]);
});

test("killed before any of its statements, it leaves nothing half done, and the next one ends it", async () => {
  await fill(space.id);
  await bin.removeForGood(spacePath());
  let deaths = 0;
  for (let statements = 0; ; statements = (statements + 1) % 24) {
    const dying = new pg.Pool({ connectionString: database.url, max: 1 });
    let left = statements;
    dying.on("connect", (client) => {
      const query = client.query.bind(client) as (...asked: unknown[]) => unknown;
      const dies = (...asked: unknown[]) => {
        if (left-- > 0) return query(...asked);
        deaths++;
        throw new Error("killed");
      };
      Object.assign(client, { query: dies });
    });
    const took = await deleteGone(dying, "00000000-0000-0000-0000-000000000000").catch(() => "killed");
    // Its connection ends with it.
    await dying.end();
    await expectExact();
    expect((await bin.restore(spacePath())).status).toBe(404);
    await database.pool.query("update workspace.bin set next_at = now() where gone_at <= now()");
    if (took === null) break;
  }
  expect(deaths).toBeGreaterThan(30);
  await settle(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  expect(new Set(Object.values(await rowsOf()))).toEqual(new Set([0]));
});

test("an account that is erased loses what is in its bins, too", async () => {
  const other = await documents.newSpace("deleted");
  for (const { id } of [space, other]) await fill(id);
  await bin.remove({ path: `/v1/spaces/${other.id}` });
  const folders = (await ask("GET", `/v1/spaces/${space.id}/folders`)).body.items as Json[];
  for (const { id } of folders) await bin.remove({ path: `/v1/spaces/${space.id}/folders/${id}` });
  const prefixes = [space, other].map(({ storage_prefix }) => String(storage_prefix));
  const theirs = async () =>
    (await keysInStore(objects)).filter((key) => prefixes.some((prefix) => key.startsWith(prefix)));
  expect(await theirs()).not.toEqual([]);
  await eraseWorkspace({ pool: database.pool, objects }, account.accountId, () => undefined);
  expect(await theirs()).toEqual([]);
  expect(new Set(Object.values(await rowsOf()))).toEqual(new Set([0]));
});

test("movers of several processes delete side by side, with renames and uploads beside them", async () => {
  const others = await Promise.all(Array.from({ length: 3 }, () => documents.newSpace("more")));
  for (const { id } of others) await fill(id);
  const live = await documents.uploaded({ space_id: space.id });
  for (const { id } of others) await bin.removeForGood({ path: `/v1/spaces/${id}` });
  const deleting = Promise.all(Array.from({ length: 4 }, () => deleteAllGone(database.pool)));
  for (let n = 0; n < 5; n++) {
    await documents.renameSpace(space.id, `renamed ${n}`);
    await documents.uploaded({ space_id: space.id, file_name: `beside ${n}` });
  }
  await deleting;
  await deleteAllGone(database.pool);
  await settle(database.pool, objects);
  expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
  expect((await documents.download(live.id)).bytes).toEqual(BYTES);
  expect((await ask("GET", "/v1/spaces")).body.total).toBe(1);
  await expectExact();
});

test("a workflow is kept until its last run has ended, whose analysis stays", async () => {
  const workflow = await runs.newWorkflow(
    space.id,
    chain({ kind: "wait", parameters: { for_seconds: 3600 } }),
  );
  const run = await runs.started(workflow);
  await stepAll(stepping());
  await bin.removeForGood({ path: `/v1/workflows/${workflow}` });
  await deleteAllGone(database.pool);
  expect(await rowsOf()).toMatchObject({ bin: 1, workflows: 1, workflow_versions: 1, runs: 1 });
  const refused = await runs.start(workflow);
  expect([refused.status, refused.body.code]).toEqual([404, "not_found"]);
  await database.pool.query("update workspace.node_runs set next_at = now() where status = 'WAITING'");
  await database.pool.query("update workspace.node_runs set started_at = started_at - interval '1 hour'");
  await stepAll(stepping());
  expect(await runs.get(run.id)).toMatchObject({ status: "SUCCEEDED" });
  await deleteAllGone(database.pool);
  expect(await rowsOf()).toMatchObject({ bin: 0, workflows: 0, workflow_versions: 0, runs: 0 });
  expect((await ask("GET", `/v1/analyses/${run.id}`)).body).toMatchObject({ status: "succeeded" });
});

test("of what many accounts have deleted, each has its turn", async () => {
  const keys = await Promise.all([1, 2].map(async () => (await api.newAccount()).key));
  for (const key of keys) {
    const theirs = binOf((method, path, options) => api.ask(method, path, { key, ...options }));
    const { id } = await documents.newSpace("theirs", { key });
    for (let n = 0; n < 3; n++) await theirs.removeForGood(await theirs.newThing("page", id, "page"));
  }
  const accounts: string[] = [];
  for (let after = "00000000-0000-0000-0000-000000000000"; ; ) {
    const claimed = await deleteGone(database.pool, after);
    if (claimed === null) break;
    accounts.push(claimed.accountId);
    after = claimed.accountId;
  }
  expect(new Set(accounts).size).toBe(accounts.length);
  expect(accounts.length).toBeGreaterThanOrEqual(2);
  await deleteAllGone(database.pool);
  await endBin(database.pool);
});
