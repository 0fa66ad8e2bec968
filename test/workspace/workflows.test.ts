import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { workflowsOf } from "./support/workflows.ts";

let database: TestDatabase;
let api: TestApi;
let owner: TestAccount;
let space: string;
let workflows: ReturnType<typeof workflowsOf>;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  owner = api.account;
  workflows = workflowsOf(api.ask);
  space = await workflows.newSpace();
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const FIRST_DRAFT = {
  nodes: [{ id: "trigger", kind: "manual_trigger", name: "Manual trigger", parameters: {} }],
  edges: [],
};
const draftOf = (...ids: readonly string[]) => ({
  nodes: [
    ...FIRST_DRAFT.nodes,
    ...ids.map((id) => ({ id, kind: "analyze", name: id, parameters: { top_words: 3 } })),
  ],
  edges: ids.map((to) => ({ from: "trigger", to })),
});
const codeOf = ({ status, body }: { status: number; body: Json | null }) => [status, body?.code ?? null];
const setMember = (id: string, user: string, role: string) =>
  api.ask("PUT", `/v1/spaces/${id}/members/${user}`, { body: { role } });

describe("a new workflow", () => {
  test("has every field, and a draft that begins with one manual trigger", async () => {
    const { status, body } = await workflows.create(space);
    expect(status).toBe(201);
    const user = {
      id: owner.userId,
      email: expect.any(String),
      name: expect.any(String),
      image_url: null,
    };
    expect(body).toEqual({
      id: expect.any(String),
      space_id: space,
      name: "Untitled",
      summary: "",
      status: "ACTIVE",
      enabled: true,
      has_draft: true,
      draft_differs: true,
      draft_revision: 1,
      current_version: null,
      node_count: 1,
      trigger_kinds: ["manual_trigger"],
      last_run: null,
      created_at: expect.any(String),
      updated_at: body.created_at,
      draft_updated_at: body.created_at,
      access: {
        space_role: "ADMIN",
        share_role: null,
        access_mode: "SPACE",
        is_creator: true,
        can_view: true,
        can_edit: true,
        can_run: true,
        can_publish: true,
        can_share: false,
        can_archive: true,
        can_approve: false,
      },
      access_mode: "SPACE",
      created_by: user,
      published_by: null,
      share_count: 0,
      draft: FIRST_DRAFT,
      webhooks: [],
      triggers: [],
      shares: [],
      pins: [],
    });
    expect((await workflows.get(body.id)).body).toEqual(body);
  });

  test("needs a space of the user's", async () => {
    expect(codeOf(await workflows.create(randomUUID()))).toEqual([404, "not_found"]);
    expect(codeOf(await workflows.create("none"))).toEqual([400, "invalid_request"]);
    expect(codeOf(await api.ask("POST", "/v1/workflows", { body: {} }))).toEqual([400, "invalid_request"]);
    const named = { space_id: space, name: "Named" };
    expect((await api.ask("POST", "/v1/workflows", { body: named })).body.errors).toEqual([
      { path: "body.name", message: "Unknown field." },
    ]);
  });

  test("is made once, however often its request comes", async () => {
    const idempotencyKey = randomUUID();
    const fresh = await workflows.newSpace();
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => workflows.create(fresh, { idempotencyKey })),
    );
    const ids = answers.filter(({ status }) => status === 201).map(({ body }) => body.id);
    expect(new Set(ids).size).toBe(1);
    expect((await workflows.list(fresh)).body.total).toBe(1);
  });
});

test("a workflow gets another name, another summary or both", async () => {
  const { id, created_at } = await workflows.created(space);
  const { body } = await workflows.update(id, { name: "Contracts" });
  expect(body).toMatchObject({ name: "Contracts", summary: "", draft_revision: 1, created_at });
  expect((await workflows.update(id, { summary: "Reads them." })).body).toMatchObject({
    name: "Contracts",
    summary: "Reads them.",
  });
  expect((await workflows.update(id, { name: "Bills", summary: "" })).body).toMatchObject({
    name: "Bills",
    summary: "",
  });
  expect((await workflows.update(id, {})).body.errors).toEqual([
    { path: "body", message: "Give at least one of name, summary and enabled." },
  ]);
  for (const wrong of [{ name: "" }, { name: " a" }, { name: null }, { summary: "a\nb" }, { summary: 1 }]) {
    expect((await workflows.update(id, wrong)).status, JSON.stringify(wrong)).toBe(400);
  }
  const longest = { name: "\u{1F600}".repeat(200), summary: "x".repeat(1_000) };
  expect((await workflows.update(id, longest)).body).toMatchObject(longest);
  expect((await workflows.update(id, { summary: "x".repeat(1_001) })).status).toBe(400);
});

describe("publishing", () => {
  test("makes the draft a version, and goes on from there", async () => {
    const { id } = await workflows.created(space);
    const first = (await workflows.publish(id, { change_note: "The first" })).body;
    expect(first).toMatchObject({
      has_draft: true,
      draft_differs: false,
      draft_revision: 1,
      current_version: {
        id: expect.any(String),
        version: 1,
        change_note: "The first",
        created_by: { id: owner.userId },
        created_at: expect.any(String),
        definition: FIRST_DRAFT,
      },
      published_by: { id: owner.userId },
      draft: FIRST_DRAFT,
    });
    const saved = (await workflows.save(id, 1, draftOf("a", "b"))).body;
    expect(saved).toMatchObject({ draft_differs: true, draft_revision: 2, node_count: 3 });
    expect(saved.current_version).toEqual(first.current_version);
    const second = (await workflows.publish(id, { revision: 2 })).body;
    expect(second).toMatchObject({
      draft_differs: false,
      current_version: { version: 2, change_note: null, definition: draftOf("a", "b") },
    });
    expect((await workflows.get(id)).body).toEqual(second);
  });

  test("of what is published already is refused, also where it was changed and changed back", async () => {
    const { id } = await workflows.created(space);
    await workflows.publish(id);
    expect(codeOf(await workflows.publish(id))).toEqual([409, "draft_not_changed"]);
    await workflows.save(id, 1, draftOf("a"));
    expect((await workflows.save(id, 2, FIRST_DRAFT)).body).toMatchObject({
      draft_revision: 3,
      draft_differs: false,
    });
    expect(codeOf(await workflows.publish(id))).toEqual([409, "draft_not_changed"]);
    expect((await workflows.get(id)).body).toMatchObject({ current_version: { version: 1 } });
  });

  test("of another revision than the draft's is refused", async () => {
    const { id } = await workflows.created(space);
    await workflows.save(id, 1, draftOf("a"));
    for (const revision of [1, 3, Number.MAX_SAFE_INTEGER]) {
      const refused = await workflows.publish(id, { revision });
      expect(codeOf(refused)).toEqual([409, "draft_revision_outdated"]);
      expect(refused.body.errors).toEqual([
        { path: "body.revision", message: "The draft is at revision 2." },
      ]);
    }
  });

  test("by 20 at once makes one version", async () => {
    const { id } = await workflows.created(space);
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => workflows.publish(id, { change_note: `by ${n}` })),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(answers.filter(({ body }) => body.code === "draft_not_changed")).toHaveLength(19);
  });

  test("of what was saved under other rules tells what is wrong now", async () => {
    const { id } = await workflows.created(space);
    const old = {
      nodes: [...FIRST_DRAFT.nodes, { id: "a", kind: "fax", name: "a", parameters: {} }],
      edges: [],
    };
    await database.pool.query("update workspace.workflows set draft = $2 where id = $1", [id, old]);
    const refused = await workflows.publish(id);
    expect(codeOf(refused)).toEqual([409, "draft_invalid"]);
    expect(refused.body.errors).toEqual([
      { path: "draft.nodes.1.kind", message: expect.stringMatching(/^Must be one of manual_trigger, /) },
    ]);
  });

  test("takes a note of one line", async () => {
    const { id } = await workflows.created(space);
    for (const change_note of ["", "a\nb", "x".repeat(1_001), 1, null]) {
      expect((await workflows.publish(id, { change_note })).status).toBe(400);
    }
  });
});

test("no version ever changes", async () => {
  const { id } = await workflows.created(space);
  await workflows.publish(id, { change_note: "as it is" });
  const change = database.pool.query(
    "update workspace.workflow_versions set change_note = 'as it was' where workflow_id = $1",
    [id],
  );
  const message = expect.stringContaining(`version 1 of workflow ${id} never changes`);
  await expect(change).rejects.toMatchObject({ code: "P0001", message });
});

describe("the list", () => {
  test("has a space's workflows, newest first, without what they do", async () => {
    const own = await workflows.newSpace();
    const made: Json[] = [];
    for (let n = 0; n < 5; n++) made.push(await workflows.created(own));
    const { body: first } = await workflows.publish(made[0]!.id);
    made[0] = first;
    const seen: Json[] = [];
    let cursor = "";
    for (;;) {
      const { body } = await workflows.list(own, `&limit=2${cursor}`);
      expect(body.total).toBe(5);
      seen.push(...(body.items as Json[]));
      if (body.next_cursor === null) break;
      cursor = `&cursor=${body.next_cursor}`;
      expect((await workflows.list(space, cursor)).status).toBe(400);
    }
    const listed = made.map(({ draft: _, current_version, ...rest }) => {
      const { definition: __, ...version } = (current_version ?? {}) as Json;
      return { ...rest, current_version: current_version === null ? null : version };
    });
    expect(seen).toEqual(listed.reverse());
  });

  test("is of one space, of which the user is a member", async () => {
    expect(codeOf(await workflows.list(randomUUID()))).toEqual([404, "not_found"]);
    expect((await api.ask("GET", "/v1/workflows")).body.errors).toEqual([
      { path: "query.space_id", message: "Missing." },
    ]);
    expect((await workflows.list(await workflows.newSpace())).body).toEqual({
      items: [],
      next_cursor: null,
      total: 0,
    });
  });

  test("counts 10,000, and says that there are more", async () => {
    const own = await workflows.newSpace();
    await database.pool.query(
      `insert into workspace.workflows (account_id, space_id, name, draft, created_by)
       select $1, $2, 'many', $4, $3 from generate_series(1, 10001)`,
      [owner.accountId, own, owner.userId, FIRST_DRAFT],
    );
    const { body, headers } = await workflows.list(own, "&limit=1");
    expect([body.total, headers.get("total-capped")]).toEqual([10_000, "true"]);
  });
});

/** What a member of each role may ask for; `nobody`: no member. */
const MATRIX: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  ADMIN: { list: 200, get: 200, create: 201, update: 200, save: 200, publish: 200 },
  EDITOR: { list: 200, get: 200, create: 201, update: 200, save: 200, publish: 200 },
  VIEWER: { list: 200, get: 200, create: 403, update: 403, save: 403, publish: 403 },
  nobody: { list: 404, get: 404, create: 404, update: 404, save: 404, publish: 404 },
  stranger: { list: 404, get: 404, create: 404, update: 404, save: 404, publish: 404 },
};
const CAN: Readonly<Record<string, readonly string[]>> = {
  ADMIN: ["archive", "edit", "publish", "run", "view"],
  EDITOR: ["archive", "edit", "publish", "run", "view"],
  VIEWER: ["view"],
};

describe.each(Object.keys(MATRIX))("as %s", (role) => {
  let own: string;
  let id: unknown;
  let key: string;
  beforeAll(async () => {
    own = await workflows.newSpace();
    ({ id } = await workflows.created(own));
    const member = role === "stranger" ? await api.newAccount() : await api.newUser(owner.accountId);
    ({ key } = member);
    if (role in CAN) await setMember(own, member.userId, role);
  });

  const asks: Readonly<Record<string, () => ReturnType<TestApi["ask"]>>> = {
    list: () => workflows.list(own, "", { key }),
    get: () => workflows.get(id, { key }),
    create: () => workflows.create(own, { key }),
    update: () => workflows.update(id, { name: "renamed" }, { key }),
    save: () => workflows.save(id, 1, draftOf("a"), { key }),
    publish: () => workflows.publish(id, {}, { key }),
  };

  test.each(Object.keys(asks))("to %s", async (what) => {
    const { status, body } = await asks[what]!();
    expect(status).toBe(MATRIX[role]![what]);
    if (status === 403) expect(body.code).toBe("access_denied");
    if (status === 404) expect(body.code).toBe("not_found");
    if (what !== "get" || status !== 200) return;
    const { access } = body as { access: Json };
    const may = Object.entries(access).filter(([name, value]) => name.startsWith("can_") && value);
    expect(may.map(([name]) => name.slice(4)).sort()).toEqual(CAN[role]);
    expect(access).toMatchObject({ space_role: role, is_creator: false });
  });

  test("nothing is changed that is refused", async () => {
    const { body } = await workflows.get(id);
    const isAllowed = MATRIX[role]!.save === 200;
    expect(body).toMatchObject(
      isAllowed
        ? { name: "renamed", draft_revision: 2, current_version: { version: 1 } }
        : { name: "Untitled", draft_revision: 1, current_version: null },
    );
  });
});

test("who published is told, not who made it", async () => {
  const own = await workflows.newSpace();
  const { id } = await workflows.created(own);
  const editor = await api.newUser(owner.accountId);
  await setMember(own, editor.userId, "EDITOR");
  await workflows.publish(id, {}, editor);
  const { body } = await workflows.get(id);
  expect(body).toMatchObject({
    created_by: { id: owner.userId },
    published_by: { id: editor.userId },
    current_version: { created_by: { id: editor.userId } },
  });
});
