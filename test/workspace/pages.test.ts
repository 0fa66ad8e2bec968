import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import type { Asked, Json, TestAccount } from "../support/sealpost-api.ts";
import { api, database, usePages, world } from "./page-world.ts";

usePages();

const codeOf = ({ status, body }: Asked) => [status, body?.code ?? null];
const getPage = async (id: string) => (await api.ask("GET", `/v1/pages/${id}`)).body;
const list = async (path: string) =>
  (await api.ask("GET", path)).body as { items: Json[]; next_cursor: string | null; total: number };

test("a page has what it was made of, and no version until it is published", async () => {
  const space_id = await world.newSpace();
  const body = { space_id, title: "Results", markdown: "# 2026\n" };
  const { status, body: page } = await api.ask("POST", "/v1/pages", { body });
  expect(status).toBe(201);
  const created_by = {
    id: api.account.userId,
    name: expect.any(String),
    email: expect.stringContaining("@"),
  };
  expect(page).toEqual({
    id: expect.any(String),
    space_id,
    title: "Results",
    revision: 1,
    current_version: null,
    draft_differs: true,
    created_by,
    created_at: expect.any(String),
    updated_at: expect.any(String),
  });
  expect(await getPage(String(page.id))).toEqual({ ...page, markdown: "# 2026\n" });
  const version = await world.publish(String(page.id));
  expect(version).toEqual({
    id: expect.any(String),
    page_id: page.id,
    number: 1,
    title: "Results",
    revision: 1,
    published_by: created_by,
    published_at: expect.any(String),
  });
  const current_version = { id: version.id, number: 1, published_at: version.published_at };
  expect(await getPage(String(page.id))).toMatchObject({ current_version, draft_differs: false });
});

test("a draft is saved by whoever has seen the one before", async () => {
  const page = await world.newPage("first");
  const save = (revision: number, markdown: string) =>
    api.ask("PUT", `/v1/pages/${page}/draft`, { body: { revision, title: "Saved", markdown } });
  expect(codeOf(await save(2, "ahead"))).toEqual([409, "page_changed"]);
  const saved = await save(1, "second");
  expect(saved.status).toBe(200);
  expect(saved.body).toMatchObject({ revision: 2, title: "Saved", draft_differs: true });
  const behind = await save(1, "behind");
  expect(codeOf(behind)).toEqual([409, "page_changed"]);
  expect(behind.body.errors).toEqual([{ path: "body.revision", message: "The draft is at revision 2." }]);
  expect(await getPage(page)).toMatchObject({ revision: 2, markdown: "second" });
  const publish = (revision: number) => api.ask("POST", `/v1/pages/${page}/publish`, { body: { revision } });
  expect(codeOf(await publish(1))).toEqual([409, "page_changed"]);
  expect(await publish(2)).toMatchObject({ status: 201, body: { number: 1, revision: 2 } });
});

test("of 20 who save at once one does, and of 20 who publish it one does", async () => {
  const page = await world.newPage();
  const saved = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      api.ask("PUT", `/v1/pages/${page}/draft`, { body: { revision: 1, title: "t", markdown: `${n}` } }),
    ),
  );
  expect(saved.filter(({ status }) => status === 200)).toHaveLength(1);
  expect(saved.filter(({ body }) => body.code === "page_changed")).toHaveLength(19);
  const published = await Promise.all(
    Array.from({ length: 20 }, () => api.ask("POST", `/v1/pages/${page}/publish`)),
  );
  expect(published.filter(({ status }) => status === 201)).toHaveLength(1);
  expect(published.filter(({ body }) => body.code === "page_already_published")).toHaveLength(19);
});

test("versions are numbered in a row and listed newest first, and each keeps its text", async () => {
  const page = await world.newPage("0");
  const made = [await world.publish(page)];
  for (let n = 1; n < 5; n++) {
    await world.save(page, `${n}`);
    made.unshift(await world.publish(page));
  }
  const path = `/v1/pages/${page}/versions`;
  const first = await list(`${path}?limit=3`);
  const rest = await list(`${path}?limit=3&cursor=${first.next_cursor}`);
  expect([first.total, rest.next_cursor]).toEqual([5, null]);
  expect([...first.items, ...rest.items]).toEqual(made);
  expect(made.map(({ number }) => number)).toEqual([5, 4, 3, 2, 1]);
  for (const [at, version] of made.entries()) {
    const { body } = await api.ask("GET", `${path}/${version.id}`);
    expect(body).toEqual({ ...version, markdown: `${4 - at}` });
  }
  const other = await world.published();
  for (const id of [other.version.id, page, randomUUID()]) {
    expect(codeOf(await api.ask("GET", `${path}/${id}`))).toEqual([404, "not_found"]);
  }
});

test("what is published is not published again until another text is saved", async () => {
  const { page, version } = await world.published("one");
  const publish = (body?: Json) => api.ask("POST", `/v1/pages/${page}/publish`, { body });
  expect(codeOf(await publish())).toEqual([409, "page_already_published"]);
  expect(codeOf(await publish({ revision: 1 }))).toEqual([409, "page_already_published"]);
  expect(codeOf(await publish({ revision: 2 }))).toEqual([409, "page_changed"]);
  await world.save(page, "one");
  expect(await getPage(page)).toMatchObject({ revision: 2, draft_differs: false });
  expect(codeOf(await publish({ revision: 2 }))).toEqual([409, "page_already_published"]);
  await world.save(page, "two");
  expect(await getPage(page)).toMatchObject({ revision: 3, draft_differs: true });
  expect(codeOf(await publish({ revision: 2 }))).toEqual([409, "page_changed"]);
  expect((await publish()).body).toMatchObject({ number: 2, revision: 3 });
  expect(codeOf(await publish())).toEqual([409, "page_already_published"]);
  // What it said before is another text.
  await world.save(page, "one");
  expect(await publish()).toMatchObject({ status: 201, body: { number: 3, title: version.title } });
});

test.each([
  ["becomes many megabytes", 200],
  ["takes more memory than there is for it", 50_000],
])("a text that %s is saved, and not published", async (_, chars) => {
  const heavy = `[a]: http://a.example/${"b".repeat(chars)}\n\n${"[a]".repeat(65_000)}`;
  const page = await world.newPage(heavy);
  expect(codeOf(await api.ask("POST", `/v1/pages/${page}/publish`))).toEqual([422, "page_too_heavy"]);
  expect(await getPage(page)).toMatchObject({ markdown: heavy, current_version: null });
  await world.save(page, "light");
  expect(await world.publish(page)).toMatchObject({ number: 1, revision: 2 });
});

test("a page that is saved while it is published is not published", async () => {
  const page = await world.newPage();
  await using saving = await database.pool.connect().then((client) => ({
    client,
    [Symbol.asyncDispose]: async () => client.release(),
  }));
  await saving.client.query("begin");
  await saving.client.query("update workspace.pages set revision = 2 where id = $1", [page]);
  const locking = () =>
    api.statements().filter((text) => /workspace\.pages .*for no key update/.test(text)).length;
  const before = locking();
  const publishing = api.ask("POST", `/v1/pages/${page}/publish`);
  // What is there has been rendered by now.
  await expect.poll(locking).toBeGreaterThan(before);
  await saving.client.query("commit");
  expect(codeOf(await publishing)).toEqual([409, "page_changed"]);
  expect(await world.publish(page)).toMatchObject({ number: 1, revision: 2 });
});

test("a version never changes, whoever writes SQL", async () => {
  const { version } = await world.published();
  const change = database.pool.query("update workspace.page_versions set markdown = '' where id = $1", [
    version.id,
  ]);
  await expect(change).rejects.toThrow(/version 1 of page .* never changes/);
});

test("a space's pages are listed newest first, without their texts", async () => {
  const space = await world.newSpace();
  const made: string[] = [];
  for (let n = 0; n < 3; n++) made.unshift(await world.newPage("Text.", space));
  await world.publish(made[0]!);
  const first = await list(`/v1/pages?space_id=${space}&limit=2`);
  const rest = await list(`/v1/pages?space_id=${space}&limit=2&cursor=${first.next_cursor}`);
  expect([...first.items, ...rest.items].map(({ id }) => id)).toEqual(made);
  expect(first).toMatchObject({ total: 3, items: [{ current_version: { number: 1 } }, {}] });
  expect(first.items[0]).not.toHaveProperty("markdown");
  expect((await api.ask("GET", `/v1/pages?space_id=${randomUUID()}`)).status).toBe(404);
});

test.each([
  ["too long", `${"é".repeat(131_072)}a`, 400],
  ["of NUL", "a\0b", 400],
  ["of half a character", "\ud800", 400],
  ["as long as it may be", "é".repeat(131_072), 201],
  ["of nothing", "", 201],
])("a Markdown %s", async (_, markdown, status) => {
  const space_id = await world.newSpace();
  const made = await api.ask("POST", "/v1/pages", { body: { space_id, title: "t", markdown } });
  expect(made.status).toBe(status);
  if (status === 201) expect((await getPage(String(made.body.id))).markdown).toBe(markdown);
  else
    expect(made.body.errors).toEqual([{ path: "body.markdown", message: expect.stringContaining("262144") }]);
});

test("a title is one line for people", async () => {
  const space_id = await world.newSpace();
  for (const title of ["", " a", "a\nb", "x".repeat(201)]) {
    const { status } = await api.ask("POST", "/v1/pages", { body: { space_id, title, markdown: "" } });
    expect(status, title).toBe(400);
  }
});

/** What a member of each role may ask for. */
const MATRIX: Readonly<Record<string, { readonly reads: number; readonly writes: number }>> = {
  ADMIN: { reads: 200, writes: 0 },
  EDITOR: { reads: 200, writes: 0 },
  VIEWER: { reads: 200, writes: 403 },
  nobody: { reads: 404, writes: 404 },
  "another account's": { reads: 404, writes: 404 },
};

describe.each(Object.keys(MATRIX))("as %s", (role) => {
  let who: Pick<TestAccount, "userId" | "key">;
  let space: string;
  let page: string;
  let version: Json;
  let link: Json;
  beforeAll(async () => {
    space = await world.newSpace();
    page = await world.newPage("Text.", space);
    version = await world.publish(page);
    link = await world.newLink(page);
    who = role === "another account's" ? await api.newAccount() : await api.newUser(api.account.accountId);
    const path = `/v1/spaces/${space}/members/${who.userId}`;
    if (!["nobody", "another account's"].includes(role)) await api.ask("PUT", path, { body: { role } });
  });

  test("one reads", async () => {
    const paths = [
      ...[`/v1/pages?space_id=${space}`, `/v1/pages/${page}`, `/v1/pages/${page}/versions`],
      ...[`/v1/pages/${page}/versions/${version.id}`, `/v1/pages/${page}/links`, `/v1/page-links/${link.id}`],
    ];
    for (const path of paths)
      expect((await api.ask("GET", path, who)).status, path).toBe(MATRIX[role]!.reads);
  });

  test("one writes", async () => {
    const draft = { title: "t", markdown: "m" };
    const writes: [string, string, Json, number][] = [
      ["POST", "/v1/pages", { space_id: space, ...draft }, 201],
      ["PUT", `/v1/pages/${page}/draft`, { revision: 1, ...draft }, 200],
      ["POST", `/v1/pages/${page}/publish`, {}, 201],
      ["POST", `/v1/pages/${page}/links`, { label: "l" }, 201],
      ["POST", `/v1/page-links/${link.id}/retarget`, { page_version_id: version.id }, 200],
      ["PATCH", `/v1/page-links/${link.id}`, { label: "m", status: "REVOKED" }, 200],
    ];
    for (const [method, path, body, done] of writes) {
      const { status } = await api.ask(method, path, { key: who.key, body });
      expect(status, path).toBe(MATRIX[role]!.writes || done);
    }
  });
});
