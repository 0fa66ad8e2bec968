// What one account can store, of every kind, tried to its limit.
import { randomBytes } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import type { Definition } from "../../src/workspace/model/definition.ts";
import type { Asked } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import {
  account,
  accountKey,
  api,
  ask,
  beginUpload,
  database,
  documents,
  expectExact,
  expectFull,
  limit,
  limitUser,
  MIB,
  objects,
  runs,
  stepping,
  untilFull,
  usageOf,
  useStorage,
  workflows,
} from "./storage-world.ts";
import { endKeeping, moveOnce, removeAll } from "./support/moving.ts";
import { chain, stepAll, stepOnce } from "./support/runs.ts";

useStorage();

/** A busy machine answers some of many at once with 503, or 429; some of these were done all the same. */
async function putWhenPossible(id: unknown, content: Uint8Array): Promise<Asked> {
  for (;;) {
    const answer = await documents.put(id, content, { idempotencyKey: `put ${id}` });
    if (![429, 503].includes(answer.status)) return answer;
  }
}

/** Layers of five nodes, each joined with all of the layer before: every layer holds five times as much. */
function joinedLayers(layers: number): Definition {
  const definition = chain(...Array.from({ length: 5 * layers }, () => ({ kind: "analyze" }) as const));
  definition.edges.splice(0);
  for (let n = 0; n < 5 * layers; n++) {
    const first = n - (n % 5) - 5;
    const before = n < 5 ? ["trigger"] : [0, 1, 2, 3, 4].map((of) => `node-${first + of}`);
    for (const from of before) definition.edges.push({ from, to: `node-${n}` });
  }
  return definition;
}

describe("runs that multiply what they were given", () => {
  const definition = joinedLayers(19);
  const newRun = () => ({ input: { text: randomBytes(30_000).toString("hex") } });
  let workflow: string;

  /** Of all items of the account's runs; that they are what is stored, `expectExact` sees. */
  const itemBytes = async () => {
    const { rows } = await database.pool.query<{ bytes: number }>(
      "select coalesce(sum(item_bytes), 0)::float8 as bytes from workspace.runs where account_id = $1",
      [account.accountId],
    );
    return rows[0]!.bytes;
  };

  beforeEach(async () => {
    expect([definition.nodes.length, definition.edges.length]).toEqual([96, 455]);
    workflow = await runs.newWorkflow((await documents.newSpace()).id, definition);
  });

  test("hold a hundred and fifty times that at most, and nothing once they have failed", async () => {
    const { id } = await runs.started(workflow, newRun());
    let most = 0;
    for (let end = null; end !== "run_failed"; ) {
      end = await stepOnce(stepping());
      expect(end).not.toBeNull();
      most = Math.max(most, await itemBytes());
    }
    expect(most).toBeGreaterThan(4 * MIB);
    expect(most).toBeLessThan(150 * 60_000);
    expect(await runs.get(id)).toMatchObject({ status: "FAILED", error_code: "run_too_large" });
    expect((await runs.itemPage(id, "node-0")).body).toEqual({ items: [], next_cursor: null, total: 0 });
    expect((await usageOf("runs")).bytes).toBeLessThan(4 * 60_000);
    await expectExact();
  });

  test("hold together no more than the account may store, however many there are", {
    tags: ["slow"],
  }, async () => {
    await limitUser({ runs: 4 * MIB });
    const ids: string[] = [];
    while (ids.length < 40) ids.push((await runs.started(workflow, newRun())).id);
    let most = 0;
    for (let step = 0; (await stepOnce(stepping())) !== null; step++) {
      if (step % 10 === 0) most = Math.max(most, await itemBytes());
    }
    expect(most).toBeLessThanOrEqual(4 * MIB);
    const codes = await Promise.all(ids.map(async (id) => String((await runs.get(id)).error_code)));
    expect(codes.filter((code) => code !== "storage_full" && code !== "run_too_large")).toEqual([]);
    expect(codes).toContain("storage_full");
    expect(await itemBytes()).toBe(0);
    await expectExact();
  });

  test("and those that have ended count until they are gone: no other is started", async () => {
    await limit({ runs: MIB });
    const kept = await runs.newWorkflow((await documents.newSpace()).id, chain({ kind: "analyze" }));
    const started = await untilFull("runs", async () => {
      const answer = await runs.start(kept, newRun());
      await stepAll(stepping());
      return answer;
    });
    // Of those that failed nothing but their rows is left, and each has its input twice while it goes on.
    expect(started).toBeGreaterThan(3);
    expect(started).toBeLessThan(MIB / 60_000);
    await expectExact();
    await database.pool.query(
      "update workspace.runs set completed_at = now() - interval '1 year' where account_id = $1",
      [account.accountId],
    );
    await database.pool.query("delete from workspace.runs where account_id = $1", [account.accountId]);
    expect(await usageOf("runs")).toMatchObject({ bytes: 0, bytes_left: MIB });
    expect((await runs.start(kept, newRun())).status).toBe(202);
  });
});

test("of 50 uploads at once exactly as many are taken as there is room for", async () => {
  const { id: space_id } = await documents.newSpace();
  const content = randomBytes(100_000);
  const made: unknown[] = [];
  for (let n = 0; n < 50; n++) {
    made.push((await documents.created({ space_id, file_name: `${n}`, file_size: content.length })).id);
  }
  const before = (await usageOf("documents")).bytes;
  expect(before).toBe(51 * 1_024);
  const most = before + 20 * content.length + 99_999;
  await limitUser({ documents: most });
  const answers = await Promise.all(made.map((id) => putWhenPossible(id, content)));
  const full = answers.filter(({ status }) => status !== 200);
  for (const answer of full) expectFull(answer, "documents");
  expect(answers.length - full.length).toBe(20);
  expect(await usageOf("documents")).toMatchObject({
    bytes: before + 20 * content.length,
    bytes_left: most + 99_999,
  });
  await expectExact();
});

test("an upload has its room as soon as it begins, and gives it back when it is cut", async () => {
  const { id: space_id } = await documents.newSpace();
  const { id } = await documents.created({ space_id, file_size: MIB });
  const { id: other } = await documents.created({ space_id, file_name: "Other.txt", file_size: MIB });
  const { bytes: before } = await usageOf("documents");
  await limitUser({ documents: before + MIB });
  const cut = new AbortController();
  const uploading = beginUpload(id, MIB, cut.signal);
  const bytes = async () => (await usageOf("documents")).bytes;
  await expect.poll(bytes, { timeout: patience(5_000) }).toBe(before + MIB);
  expectFull(await documents.put(other, Buffer.alloc(MIB)), "documents");
  cut.abort();
  expect(await uploading).toBeNull();
  await expect.poll(bytes, { timeout: patience(5_000) }).toBe(before);
  expect((await documents.put(id, Buffer.alloc(MIB))).status).toBe(200);
  await expectExact();
});

test("an upload that was refused at its end counts as a leftover until its object is removed", async () => {
  const { id: space_id } = await documents.newSpace();
  const { id } = await documents.created({ space_id });
  const [one, other] = await Promise.all([documents.put(id), documents.put(id)]);
  const statuses = [one.status, other.status].sort();
  expect(statuses).toEqual([200, 409]);
  await expectExact();
  await endKeeping(database.pool, true);
  await removeAll(database.pool, objects);
  expect((await usageOf("leftovers")).bytes).toBe(0);
});

test("what renames leave is counted, and another is refused while that is too much", async () => {
  const { id: space_id } = await documents.newSpace();
  const content = randomBytes(50_000);
  const { id } = await documents.uploaded({ space_id, file_name: "0" }, content);
  await limitUser({ leftovers: 120_000 });
  const renames = await untilFull("leftovers", async (n) => {
    const answer = await (n % 2 === 0
      ? documents.rename(id, `${n + 1}`)
      : documents.renameSpace(space_id, `space ${n}`));
    while (await moveOnce(database.pool, objects, { keptMs: 3_600_000 }));
    return answer;
  });
  expect(renames).toBe(3);
  expect(await usageOf("leftovers")).toMatchObject({ bytes: 153_072, bytes_left: 86_928 });
  await expectExact();
  await endKeeping(database.pool, false);
  await removeAll(database.pool, objects);
  expect((await usageOf("leftovers")).bytes).toBe(0);
  expect((await documents.rename(id, "again")).status).toBe(200);
});

test("empty documents, folders, spaces and links have a limit, too", async () => {
  const { id: space_id } = await documents.newSpace();
  const page = await ask("POST", "/v1/pages", { body: { space_id, title: "A page", markdown: "Text." } });
  await ask("POST", `/v1/pages/${page.body.id}/publish`);
  await limitUser({ documents: 12 * 1_024, pages: 6 * 1_024 });
  const makeOne = (n: number) => {
    if (n % 3 === 0) return documents.create({ space_id, file_name: `${n}` });
    if (n % 3 === 1) return ask("POST", `/v1/spaces/${space_id}/folders`, { body: { name: `${n}` } });
    return ask("POST", "/v1/spaces", { body: { name: `${n}` } });
  };
  expect(await untilFull("documents", makeOne)).toBe(11);
  expect((await documents.create({ space_id, file_name: "one more" })).status).toBe(409);
  const link = () => ask("POST", `/v1/pages/${page.body.id}/links`, { body: { label: "A link" } });
  expect(await untilFull("pages", link)).toBe(3);
  await expectExact();
});

test("every version of a page counts with its HTML, and drafts that are saved do by their text", async () => {
  const { id: space_id } = await documents.newSpace();
  const made = await ask("POST", "/v1/pages", {
    body: { space_id, title: "A page", markdown: "a".repeat(50_000) },
  });
  const path = `/v1/pages/${made.body.id}`;
  await limitUser({ pages: 500_000 });
  const versions = await untilFull("pages", async (n) => {
    const { revision } = (await ask("GET", path)).body;
    const markdown = String.fromCharCode(98 + n).repeat(50_000);
    const saved = await ask("PUT", `${path}/draft`, { body: { revision, title: "A page", markdown } });
    expect(saved.status).toBe(200);
    return await ask("POST", `${path}/publish`);
  });
  expect(versions).toBe(4);
  const { revision } = (await ask("GET", path)).body;
  const longer = { revision, title: "A page", markdown: "z".repeat(150_000) };
  expectFull(await ask("PUT", `${path}/draft`, { body: longer }), "pages");
  const shorter = await ask("PUT", `${path}/draft`, { body: { ...longer, markdown: "z" } });
  expect(shorter.status).toBe(200);
  await expectExact();
});

test("every version of a workflow counts", async () => {
  const space = await workflows.newSpace();
  const { id } = await workflows.created(space);
  await limit({ workflows: 40_000 });
  const versions = await untilFull("workflows", async (n) => {
    const definition = chain(...Array.from({ length: 20 + (n % 2) }, () => ({ kind: "analyze" }) as const));
    const saved = await workflows.save(id, n + 1, definition);
    return saved.status === 200 ? await workflows.publish(id) : saved;
  });
  expect(versions).toBeGreaterThan(2);
  expect((await usageOf("workflows")).bytes).toBeLessThanOrEqual(40_000);
  await expectExact();
});

test("answers of one day have a limit, and what frees something is never refused for it", async () => {
  const space = await workflows.newSpace();
  const { id } = await workflows.created(space);
  const definition = chain(...Array.from({ length: 90 }, () => ({ kind: "analyze" }) as const));
  const { key } = await api.newUser(account.accountId);
  const [listed] = (await ask("GET", "/v1/api-keys", { key: accountKey })).body.items as { id: string }[];
  await limit({ answers: MIB });
  const again = { idempotencyKey: "again" };
  const first = await workflows.save(id, 1, definition, again);
  const saves = await untilFull("answers", (n) => workflows.save(id, n + 2, definition));
  const { bytes, bytes_left } = await usageOf("answers");
  expect([bytes <= MIB / 2, bytes > 0.45 * MIB, bytes_left]).toEqual([true, true, MIB - bytes]);
  // A write that was refused is undone, one that was answered is answered again, and other accounts go on.
  expect((await workflows.get(id)).body.draft_revision).toBe(saves + 2);
  expect((await workflows.save(id, 1, definition, again)).bytes).toEqual(first.bytes);
  expect((await ask("DELETE", `/v1/api-keys/${listed!.id}`, { key })).status).toBe(204);
  expect((await api.ask("POST", "/v1/spaces", { body: { name: "another account's" } })).status).toBe(201);
  // Publishing goes on, too.
  const analysis = { analysis: { id: "goes-on", status: "succeeded" } };
  expect((await ask("POST", "/v1/analyses", { body: analysis })).status).toBe(202);
});
