// What each kind of node does.
import { createHash } from "node:crypto";
import { fc } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import { analyzeText } from "../../src/workspace/nodes/analyze.ts";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import type { Json } from "../support/sealpost-api.ts";
import { api, database, documents, objects, runs, space, stepping, useRuns } from "./run-world.ts";
import { moveOnce } from "./support/moving.ts";
import { passedOn } from "./support/object-stores.ts";
import { chain, endWaits, stepAll, stepOnce } from "./support/runs.ts";

useRuns();

/** Runs it to its end. */
async function done(definition: ReturnType<typeof chain>, input: object = {}, space_id = space.id) {
  const { id } = await runs.started(await runs.newWorkflow(space_id, definition), { input });
  expect(await stepAll(stepping())).toBe("run_succeeded");
  return await runs.get(id);
}

describe("documents", () => {
  test("are those of the folder itself, with content, in the order of ids", async () => {
    const { id: space_id } = await documents.newSpace("folders");
    const newFolder = async (name: string, parent_id?: unknown) =>
      (await api.ask("POST", `/v1/spaces/${space_id}/folders`, { body: { name, parent_id } })).body.id;
    const folder_id = await newFolder("one");
    const inner = await newFolder("inner", folder_id);
    const first = await documents.uploaded({ space_id, folder_id, file_name: "z" });
    await documents.created({ space_id, folder_id, file_name: "pending" });
    await documents.uploaded({ space_id, folder_id: inner, file_name: "deeper" });
    const top = await documents.uploaded({ space_id, file_name: "top" });
    const second = await documents.uploaded({ space_id, folder_id, file_name: "a" });
    const idsOf = async (parameters: object) => {
      const { id } = await done(chain({ kind: "documents", parameters }), {}, space_id);
      return (await runs.items(id, "node-0")).map(({ document_id }) => document_id);
    };
    expect(await idsOf({ folder_id })).toEqual([first.id, second.id]);
    expect(await idsOf({})).toEqual([top.id]);
    expect(await idsOf({ folder_id: await newFolder("empty") })).toEqual([]);
  });

  test("of a large folder are handed on in several steps, each once", async () => {
    const { id: space_id } = await documents.newSpace("large");
    const { id: document_id } = await documents.uploaded({ space_id });
    await database.pool.query(
      `insert into workspace.documents (account_id, space_id, file_name, content_type, file_size, storage_key, status,
         live_content_type, has_content, uploaded_by)
       select account_id, space_id, file_name || n, content_type, file_size, storage_key || n, status,
         live_content_type, has_content, uploaded_by
       from workspace.documents, generate_series(1, 1199) as n where id = $1`,
      [document_id],
    );
    const run = await done(chain({ kind: "documents" }), {}, space_id);
    const ids = (await runs.items(run.id, "node-0")).map((item) => item.document_id);
    expect([ids.length, new Set(ids).size]).toEqual([1_200, 1_200]);
    expect(ids).toEqual([...ids].sort());
    const progress = (await runs.events(run.id)).filter(({ node_id }) => node_id === "node-0");
    expect(progress.map(({ kind, details }) => [kind, details])).toEqual([
      ["node.started", {}],
      ["node.progressed", { items: 500, errors: 0 }],
      ["node.progressed", { items: 1_000, errors: 0 }],
      ["node.succeeded", { items: 1_200, errors: 0 }],
    ]);
  });
});

describe("wait", () => {
  test.each([
    ["a time gone by", { until: "2020-01-01T00:00:00Z" }],
    ["a second ago, in another zone", { until: "2020-01-01T02:00:00+02:00" }],
  ])("until %s is none", async (_, parameters) => {
    const run = await done(chain({ kind: "wait", parameters }), { a: 1 });
    expect(await runs.items(run.id, "node-0")).toEqual([{ a: 1 }]);
    expect((await runs.events(run.id)).some(({ kind }) => kind === "node.waiting")).toBe(false);
  });

  test("does not end before its time, and a run waits until the earliest", async () => {
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const definition = chain(
      { kind: "wait", parameters: { for_seconds: 7_200 } },
      { kind: "wait", parameters: { until } },
    );
    definition.edges.splice(1, 1, { from: "trigger", to: "node-1" });
    const { id } = await runs.started(await runs.newWorkflow(space.id, definition));
    await stepAll(stepping());
    expect(await runs.get(id)).toMatchObject({ status: "WAITING", wake_at: until });
    await endWaits(database.pool);
    await stepAll(stepping());
    // Woken too early, both wait on.
    expect(await runs.get(id)).toMatchObject({ status: "WAITING", wake_at: until });
    expect((await runs.cancel(id)).status).toBe(200);
  });
});

describe("analyze", () => {
  const analyses = async (
    document_ids: readonly unknown[],
    more: Partial<ObjectStore> = {},
    space_id = space.id,
  ) => {
    const items: Json[] = [];
    for (const document_id of document_ids) {
      const workflow = await runs.newWorkflow(space_id, chain({ kind: "analyze" }));
      const { id } = await runs.started(workflow, { input: { document_id } });
      await stepAll({ pool: database.pool, objects: { ...passedOn(objects), ...more } });
      const run = await runs.get(id);
      expect(run.status).toBe("SUCCEEDED");
      const found = await runs.items(id, "node-0");
      const errors = found.filter(({ error }) => error !== undefined).length;
      expect(run.node_runs[1]!.output_counts).toEqual({ items: 1, errors });
      items.push(...found);
    }
    return items;
  };
  const codeOf = ({ error }: Json) => (error as Json | undefined)?.code;

  test("hands on what is no document, without an analysis", async () => {
    const run = await done(chain({ kind: "analyze" }), { a: 1, "\u0000": "\ud800" });
    expect(await runs.items(run.id, "node-0")).toEqual([{ a: 1, "\u0000": "\ud800", analysis: null }]);
  });

  test("tells of what cannot be analysed, and goes on", async () => {
    const { id: other } = await documents.newSpace("other");
    const pending = await documents.created({ space_id: space.id, file_name: "pending" });
    const elsewhere = await documents.uploaded({ space_id: other, file_name: "elsewhere" });
    const { id: large } = await documents.uploaded({ space_id: space.id, file_name: "large" });
    await database.pool.query("update workspace.documents set file_size = 268435457 where id = $1", [large]);
    const { id: gone, storage_key } = await documents.uploaded({ space_id: space.id, file_name: "gone" });
    await objects.remove(String(storage_key));
    const named = [pending.id, elsewhere.id, large, gone, 7, null, "", "0".repeat(36), { a: 1 }];
    const items = await analyses(named);
    expect(items.map(codeOf)).toEqual([
      ...["document_not_uploaded", "document_not_found", "document_too_large", "document_gone"],
      ...Array(5).fill("document_not_found"),
    ]);
    expect(items.map(({ document_id, analysis }) => [document_id, analysis])).toEqual(
      named.map((document_id) => [document_id, null]),
    );
  });

  test("finds a document that is moved while it looks for it", async () => {
    const { id: space_id } = await documents.newSpace("moved");
    const { id, storage_key } = await documents.uploaded({ space_id, file_name: "moved" });
    const [item] = await analyses(
      [id],
      {
        get: async (key, ...rest) => {
          if (key === storage_key) {
            await documents.rename(id, "elsewhere");
            while (await moveOnce(database.pool, objects));
            await objects.remove(key);
          }
          return await objects.get(key, ...rest);
        },
      },
      space_id,
    );
    expect([codeOf(item!), (item!.analysis as Json).bytes]).toEqual([undefined, 21]);
  });

  test.each([
    ["a long text", "text/plain", Buffer.alloc(1_048_577, "a "), null],
    ["a text of just that length", "text/plain", Buffer.alloc(1_048_576, "a "), { lines: 1, words: 524_288 }],
    ["an empty text", "text/plain", Buffer.alloc(0), { lines: 0, words: 0, language: null, top_words: [] }],
    ["data", "application/pdf", Buffer.from("%PDF"), null],
    [
      "a text in another charset",
      "text/plain;charset=utf-16le",
      Buffer.from("Ärger ärger", "utf16le"),
      {
        words: 2,
        top_words: [{ word: "ärger", count: 2 }],
      },
    ],
    ["a text in a charset that nobody knows", "text/plain;charset=none", Buffer.from("Ärger"), { words: 1 }],
    ["a text that is none", "text/plain", Buffer.from([0xff, 0xfe, 0x00, 0x41]), { words: 1 }],
  ])("reads %s", async (file_name, content_type, bytes, text) => {
    const { id } = await documents.uploaded({ space_id: space.id, file_name, content_type }, bytes);
    const [item] = await analyses([id]);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    expect(item!.analysis).toMatchObject({ content_type, bytes: bytes.length, sha256 });
    if (text === null) expect(item!.analysis).toMatchObject({ text });
    else expect((item!.analysis as Json).text).toMatchObject(text);
  });
});

test("a node's input is what its sources hand on, in the order of the edges into it", async () => {
  const { id: space_id } = await documents.newSpace("joined");
  const { id: document_id } = await documents.uploaded({ space_id });
  const now = { until: "2020-01-01T00:00:00Z" };
  const definition = chain(
    { kind: "documents" },
    { kind: "wait", parameters: now },
    { kind: "wait", parameters: now },
  );
  definition.edges.splice(
    0,
    3,
    ...[
      { from: "node-1", to: "node-2" },
      { from: "trigger", to: "node-0" },
      { from: "trigger", to: "node-1" },
      { from: "node-0", to: "node-2" },
      { from: "trigger", to: "node-2" },
    ],
  );
  const run = await done(definition, { a: 1 }, space_id);
  expect(await runs.items(run.id, "node-2")).toMatchObject([{ a: 1 }, { document_id }, { a: 1 }]);
  expect(run.node_runs.at(-1)).toMatchObject({ node_id: "node-2", input_count: 3, sequence: 4 });
});

test("items and events are read page by page while the run goes on: each once, none changed", async () => {
  const { id: space_id } = await documents.newSpace("paged");
  for (let n = 0; n < 6; n++) await documents.uploaded({ space_id, file_name: `${n}` });
  const definition = chain({ kind: "documents" }, { kind: "analyze" });
  const { id } = await runs.started(await runs.newWorkflow(space_id, definition));
  const items: Json[] = [];
  const events: Json[] = [];
  let after = 0;
  let cursor = "";
  for (;;) {
    const end = await stepOnce(stepping());
    const page = await runs.itemPage(id, "node-0", `?limit=1${cursor}`);
    expect(page.status).toBe(200);
    items.push(...(page.body.items as Json[]));
    if (page.body.next_cursor !== null) cursor = `&cursor=${page.body.next_cursor}`;
    const { body } = await runs.eventPage(id, `?limit=2&after=${after}`);
    events.push(...(body.items as Json[]));
    after = Number(body.events_cursor);
    const isRead = page.body.next_cursor === null && (body.items as Json[]).length === 0;
    if (end === null && isRead) break;
  }
  expect(items.slice(0, 6).map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(events).toEqual(await runs.events(id));
  expect(events.map(({ sequence }) => sequence)).toEqual(events.map((_, n) => n + 1));
  const wrong = await runs.itemPage(id, "node-1", `?limit=1${cursor}`);
  expect([wrong.status, (await runs.itemPage(id, "node-9")).status]).toEqual([400, 404]);
  expect((await runs.eventPage(id, "?after=1000")).body).toEqual({ items: [], events_cursor: 1_000 });
});

test("a page of items has 256 KiB of them at most, or one, and the next one goes on", async () => {
  const run = await done(chain({ kind: "analyze" }), { a: 1 });
  // Numbers that a double cannot hold, and spaces, tell whether an item was read and written again.
  const texts = [100, 200, 60, 60, 300, 1].map(
    (kib) => `{"n":  12345678901234567890,"t":"${"x".repeat(kib * 1_024)}"}`,
  );
  await database.pool.query(
    `with gone as (delete from workspace.node_items where run_id = $1)
     insert into workspace.node_items (account_id, run_id, sequence, index, item)
     select $2, $1, 2, 10 + n, item from unnest($3::json[]) with ordinality as handed (item, n)`,
    [run.id, api.account.accountId, texts],
  );
  await database.pool.query(
    "update workspace.node_runs set item_count = 17 where run_id = $1 and sequence = 2",
    [run.id],
  );
  const pages: string[] = [];
  for (let query = "?limit=100"; ; ) {
    const page = await runs.itemPage(run.id, "node-0", query);
    expect([page.status, page.headers.get("content-type"), page.body.total]).toEqual([
      200,
      "application/json",
      17,
    ]);
    pages.push(page.bytes.toString());
    if (page.body.next_cursor === null) break;
    query = `?limit=100&cursor=${page.body.next_cursor}`;
  }
  const itemOf = (n: number) => `{"node_id":"node-0","index":${n + 11},"item":${texts[n]}}`;
  const expected = [[0], [1], [2, 3], [4], [5]].map((page) => `"items":[${page.map(itemOf).join()}]`);
  expect(pages.map((page, n) => page.includes(expected[n]!))).toEqual([true, true, true, true, true]);
});

describe("a text", () => {
  test.each([
    ["one line", 1],
    ["one line\n", 1],
    ["two\nlines", 2],
    ["three\r\nlines\rhere", 3],
    ["", 0],
    ["\n", 1],
  ])("%j has its lines", async (text, lines) => {
    expect((await analyzeText(text, 1)).lines).toBe(lines);
  });

  test.each([
    ["Der Bericht zeigt, dass die Einnahmen gestiegen sind.", 8],
    ["El informe trimestral muestra que los ingresos han crecido.", 9],
    ["12345 67890", 2],
  ])("%j has its words, and no language: that is not offered", async (text, words) => {
    expect(await analyzeText(text, 3)).toMatchObject({ words, language: null });
  });

  test("has its most frequent words, whole, without what is none", async () => {
    const { words, top_words } = await analyzeText(`B b a, A! c don't ${"x".repeat(65)} ...`, 3);
    expect(words).toBe(7);
    expect(top_words).toEqual([
      { word: "a", count: 2 },
      { word: "b", count: 2 },
      { word: "c", count: 1 },
    ]);
  });

  test("has those first that sorting all of them would put first", async () => {
    const words = fc.array(fc.stringMatching(/^[a-d]{1,3}$/), { maxLength: 60 });
    await fc.assert(
      fc.asyncProperty(words, fc.integer({ min: 1, max: 8 }), async (all, countMax) => {
        const counts = [...Map.groupBy(all, (word) => word)].map(([word, { length: count }]) => ({
          word,
          count,
        }));
        counts.sort((a, b) => b.count - a.count || (a.word < b.word ? -1 : 1));
        const { top_words } = await analyzeText(all.join(" "), countMax);
        expect(top_words).toEqual(counts.slice(0, countMax));
      }),
    );
  });
});
