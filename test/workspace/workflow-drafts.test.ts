import { randomUUID } from "node:crypto";
import { fc } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Definition, FIRST_DEFINITION } from "../../src/workspace/model/definition.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { definitions } from "./support/definitions.ts";
import { workflowsOf } from "./support/workflows.ts";

let database: TestDatabase;
let api: TestApi;
let space: string;
let folders: readonly string[];
let workflows: ReturnType<typeof workflowsOf>;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  workflows = workflowsOf(api.ask);
  space = await workflows.newSpace();
  folders = [await newFolder(space, "one"), await newFolder(space, "two")];
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

async function newFolder(space_id: string, name: string, key = api.account.key): Promise<string> {
  const { body } = await api.ask("POST", `/v1/spaces/${space_id}/folders`, { key, body: { name } });
  return String(body.id);
}
const documentsOf = (folder_id: unknown) => ({
  nodes: [
    ...FIRST_DEFINITION.nodes,
    { id: "files", kind: "documents", name: "Files", parameters: { folder_id } },
  ],
  edges: [{ from: "trigger", to: "files" }],
});
const named = (name: string): Definition => ({
  nodes: [{ ...FIRST_DEFINITION.nodes[0]!, name }],
  edges: [],
});
/** A body that is sent as it stands. */
const put = (id: unknown, text: string) => api.ask("PUT", `/v1/workflows/${id}/draft`, { body: text });

test("whatever is right is saved as it is, and published", { timeout: patience(60_000) }, async () => {
  const { id } = await workflows.created(space);
  let revision = 1;
  let version = 0;
  let before: unknown = null;
  await fc.assert(
    fc.asyncProperty(definitions({ nodesMax: 99, folderIds: folders }), async (definition) => {
      const saved = await workflows.save(id, revision, definition);
      expect([saved.status, saved.body.errors]).toEqual([200, undefined]);
      revision++;
      expect(saved.body).toMatchObject({ draft_revision: revision, node_count: definition.nodes.length });
      expect(saved.body.draft).toEqual(definition);
      const published = await workflows.publish(id);
      if (JSON.stringify(before) === JSON.stringify(definition)) {
        expect(published.body.code).toBe("draft_not_changed");
        return;
      }
      before = definition;
      version++;
      expect(published.body).toMatchObject({
        draft_differs: false,
        current_version: { version, definition },
      });
    }),
    { numRuns: 150, seed: 20260301 },
  );
});

test("defaults are filled in, and ids have one spelling", async () => {
  const { id } = await workflows.created(space);
  const given = {
    nodes: [
      ...FIRST_DEFINITION.nodes,
      { id: "a", kind: "analyze", name: "a", parameters: {} },
      { id: "b", kind: "documents", name: "b", parameters: {} },
      { id: "c", kind: "documents", name: "c", parameters: { folder_id: folders[0]!.toUpperCase() } },
    ],
    edges: ["a", "b", "c"].map((to) => ({ from: "trigger", to })),
  };
  const { draft } = (await workflows.save(id, 1, given)).body as { draft: Definition };
  expect(draft.nodes.map(({ parameters }) => parameters)).toEqual([
    {},
    { top_words: 10 },
    { folder_id: null },
    { folder_id: folders[0] },
  ]);
});

test("of 20 who save at once on the same revision one does, and 19 are told the new one", async () => {
  const { id } = await workflows.created(space);
  for (let revision = 1; revision <= 5; revision++) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => workflows.save(id, revision, named(`by ${n}`))),
    );
    const saved = answers.filter(({ status }) => status === 200);
    expect(saved).toHaveLength(1);
    expect(saved[0]!.body.draft_revision).toBe(revision + 1);
    const refused = answers.filter(({ body }) => body.code === "draft_revision_outdated");
    expect(refused).toHaveLength(19);
    for (const { body } of refused) {
      expect(body.errors).toEqual([
        { path: "body.revision", message: `The draft is at revision ${revision + 1}.` },
      ]);
    }
    expect((await workflows.get(id)).body).toEqual(saved[0]!.body);
  }
});

test("20 who each add a node, and try again when they are refused, lose none", {
  timeout: patience(60_000),
}, async () => {
  const { id } = await workflows.created(space);
  const add = async (name: string): Promise<void> => {
    for (;;) {
      const { draft, draft_revision } = (await workflows.get(id)).body as { draft: Definition } & Json;
      const node = { id: name, kind: "analyze", name, parameters: { top_words: 1 } };
      const { status } = await workflows.save(id, draft_revision, {
        nodes: [...draft.nodes, node],
        edges: [...draft.edges, { from: "trigger", to: name }],
      });
      if (status === 200) return;
      expect(status).toBe(409);
    }
  };
  const names = Array.from({ length: 20 }, (_, n) => `n${n}`);
  await Promise.all(names.map(add));
  const { draft, draft_revision } = (await workflows.get(id)).body as { draft: Definition } & Json;
  expect(draft_revision).toBe(21);
  expect(draft.nodes.map((node) => node.id).sort()).toEqual(["trigger", ...names].sort());
});

test("publishing and saving at once: a version is one whole draft", async () => {
  const { id } = await workflows.created(space);
  const save = async (n: number) => {
    const { draft_revision } = (await workflows.get(id)).body;
    await workflows.save(id, draft_revision, named(`draft ${n}`));
  };
  const all = Array.from({ length: 20 }, (_, n) => [save(n), workflows.publish(id, { change_note: `${n}` })]);
  await Promise.all(all.flat());
  const { rows } = await database.pool.query<{ version: number; definition: Definition }>(
    "select version, definition from workspace.workflow_versions where workflow_id = $1 order by version",
    [id],
  );
  expect(rows.map(({ version }) => version)).toEqual(rows.map((_, n) => n + 1));
  for (const [n, { definition }] of rows.slice(1).entries())
    expect(definition).not.toEqual(rows[n]!.definition);
});

describe("a folder", () => {
  test("is one of the workflow's space", async () => {
    const { id } = await workflows.created(space);
    const other = await newFolder(await workflows.newSpace(), "elsewhere");
    const stranger = await api.newAccount();
    const strangers = await newFolder(await workflows.newSpace(stranger), "theirs", stranger.key);
    for (const folder of [other, strangers, randomUUID()]) {
      const { status, body } = await workflows.save(id, 1, documentsOf(folder));
      expect([status, body.code]).toEqual([400, "invalid_request"]);
      expect(body.errors).toEqual([
        {
          path: "body.definition.nodes.1.parameters.folder_id",
          message: "The space has no such folder. List its folders, or give null for its top.",
        },
      ]);
    }
    expect((await workflows.get(id)).body).toMatchObject({ draft_revision: 1 });
    expect((await workflows.save(id, 1, documentsOf(folders[1]))).status).toBe(200);
  });

  test("that is gone when it is published is told", async () => {
    const { id } = await workflows.created(space);
    await database.pool.query("update workspace.workflows set draft = $2 where id = $1", [
      id,
      documentsOf(randomUUID()),
    ]);
    const { status, body } = await workflows.publish(id);
    expect([status, body.code]).toEqual([409, "draft_invalid"]);
    expect(body.errors).toMatchObject([{ path: "draft.nodes.1.parameters.folder_id" }]);
  });
});

describe("hostile drafts are refused, with the place, and change nothing", () => {
  let id: unknown;
  beforeAll(async () => {
    ({ id } = await workflows.created(space));
  });
  const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels);
  const withNode = (node: string) => `{"revision":1,"definition":{"nodes":[{"id":"a",${node}}],"edges":[]}}`;
  const withName = (name: string) => withNode(`"kind":"manual_trigger","name":"${name}","parameters":{}`);
  const withParameters = (parameters: string) =>
    withNode(`"kind":"analyze","name":"a","parameters":${parameters}`);
  const cases: Readonly<Record<string, readonly [text: string, path: string]>> = {
    "no JSON": ['{"revision":1,', "body"],
    "nested 513 deep": [withParameters(nested(513)), "body"],
    "nested 400 deep": [withParameters(nested(400)), "body.definition.nodes.0.parameters"],
    "a prototype": ['{"revision":1,"definition":{"nodes":[],"edges":[]},"__proto__":{}}', "body.__proto__"],
    "a definition that is a prototype": ['{"revision":1,"__proto__":{"definition":{}}}', "body.__proto__"],
    "a node's prototype": [
      withParameters('{"__proto__":{"top_words":3}}'),
      "body.definition.nodes.0.parameters.__proto__",
    ],
    "a constructor": [
      withParameters('{"constructor":{"prototype":{}}}'),
      "body.definition.nodes.0.parameters.constructor",
    ],
    "members twice": [
      withParameters('{"top_words":1,"top_words":2}'),
      "body.definition.nodes.0.parameters.top_words",
    ],
    "a number beyond all": [
      withParameters('{"top_words":1e999}'),
      "body.definition.nodes.0.parameters.top_words",
    ],
    "a number of 400 digits": [
      withParameters(`{"top_words":${"9".repeat(400)}}`),
      "body.definition.nodes.0.parameters.top_words",
    ],
    "a NUL": [withName("\\u0000"), "body.definition.nodes.0.name"],
    "half a character": [withName("\\ud800"), "body.definition.nodes.0.name"],
    "a revision of nothing": ['{"revision":0,"definition":{"nodes":[],"edges":[]}}', "body.revision"],
    "no revision": ['{"definition":{"nodes":[],"edges":[]}}', "body.revision"],
  };
  test.each(Object.entries(cases))("%s", async (_, [text, path]) => {
    const refused = await put(id, text);
    expect(refused.status).toBe(400);
    const paths = (refused.body.errors as { path: string }[]).map((error) => error.path);
    expect(paths).toContain(path);
    expect((await workflows.get(id)).body).toMatchObject({ draft_revision: 1, draft: FIRST_DEFINITION });
  });

  test("of 60 faults the first 20 are told", async () => {
    const nodes = Array.from({ length: 60 }, (_, n) => ({
      id: `n${n}`,
      kind: "fax",
      name: "a",
      parameters: {},
    }));
    const { body } = await workflows.save(id, 1, { nodes, edges: [] });
    expect((body.errors as Json[]).map(({ path }) => path)).toEqual(
      Array.from({ length: 20 }, (_, n) => `body.definition.nodes.${n}.kind`),
    );
  });

  test("of more than 64 KiB the size is told, and of more than 256 KiB no more than that it is", async () => {
    const nodes = Array.from({ length: 99 }, (_, n) => ({
      id: `n${n}`,
      kind: "analyze",
      name: "\u{1F600}".repeat(200),
      parameters: {},
    }));
    const large = {
      nodes: [...FIRST_DEFINITION.nodes, ...nodes],
      edges: nodes.map(({ id: to }) => ({ from: "trigger", to })),
    };
    const { status, body } = await workflows.save(id, 1, large);
    expect(status).toBe(400);
    const message = expect.stringMatching(/^Must have at most 65536 bytes of JSON, and has 8/);
    expect(body.errors).toEqual([{ path: "body.definition", message }]);
    const huge = await workflows.save(id, 1, { nodes: [..."x".repeat(140_000)], edges: [] });
    expect(huge.status).toBe(413);
  });
});
