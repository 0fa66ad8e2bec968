import { createHash, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { pageLinkOperations } from "../../src/workspace/operations/page-links.ts";
import { pageOperations } from "../../src/workspace/operations/pages.ts";
import { openLinks } from "../../src/workspace/store/page-links.ts";
import { changeRows } from "../support/installation.ts";
import {
  type Asked,
  type Json,
  startTestApi,
  type TestAccount,
  type TestApi,
} from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { api, database, usePages, world } from "./page-world.ts";

usePages();

const codeOf = ({ status, body }: Asked) => [status, body?.code ?? null];
const update = (link: Json, body: Json) => api.ask("PATCH", `/v1/page-links/${link.id}`, { body });
const retarget = (link: Json, page_version_id: unknown) =>
  api.ask("POST", `/v1/page-links/${link.id}/retarget`, { body: { page_version_id } });
const PAST = "2020-01-01T00:00:00.000Z";
const FUTURE = "2099-01-01T00:00:00.000Z";

test("a link has every field of the platform's, and tells its URL once", async () => {
  const { page, version, link } = await world.linked({ expires_at: FUTURE, max_visits: 3 });
  const { url, ...rest } = link;
  expect(rest).toEqual({
    id: expect.any(String),
    page_id: page,
    page_version_id: version.id,
    page_version_number: 1,
    pinned: false,
    label: "A link",
    status: "ACTIVE",
    state: "active",
    auth_version: 1,
    expires_at: FUTURE,
    max_visits: 3,
    visit_count: 0,
    has_password: false,
    access_mode: "ANONYMOUS",
    allowed_emails: [],
    allowed_domains: [],
    submission_mode: "NONE",
    submission_count: 0,
    last_visited_at: null,
    locale: null,
    permissions: {},
    context: {},
    source_type: "USER",
    source_id: null,
    source_metadata: {},
    created_by: { id: api.account.userId, name: expect.any(String), email: expect.any(String) },
    created_at: expect.any(String),
    updated_at: expect.any(String),
  });
  expect(url).toMatch(/^http:\/\/pages\.localhost\/p\/[\w-]{43}$/);
  expect(await world.linkOf(link.id)).toEqual(rest);
  const { body } = await api.ask("GET", `/v1/pages/${page}/links`);
  expect(body).toEqual({ items: [rest], next_cursor: null, total: 1 });
});

test("a password is not hashed for whoever may not set it, nor a page rendered", async () => {
  const done: string[] = [];
  const hashPassword = async (accountId: string) => `${done.push(`hashed ${accountId}`)}`;
  const rendering = { render: async (accountId: string) => `${done.push(`rendered ${accountId}`)}` };
  const { pool } = database;
  const operations = [
    ...pageLinkOperations({ pool, pagesUrl: "http://pages.localhost", hashPassword }),
    ...pageOperations({ pool, rendering }),
  ];
  const { page, link } = await world.linked();
  await world.save(page, "Another text.");
  const prepare = async (key: string, { accountId, userId }: Pick<TestAccount, "accountId" | "userId">) => {
    const { work } = operations.find((operation) => operation.key === key)!;
    const params = { page_id: page, link_id: link.id };
    const body = { label: "l", password: "correct horse" };
    const request = { user: { accountId, userId }, params, body };
    if (work.kind === "write") await work.prepare!(request as never, new AbortController().signal);
  };
  const viewer = { ...(await api.newUser(api.account.accountId)), accountId: api.account.accountId };
  const { space_id } = (await api.ask("GET", `/v1/pages/${page}`)).body;
  await api.ask("PUT", `/v1/spaces/${space_id}/members/${viewer.userId}`, { body: { role: "VIEWER" } });
  for (const key of ["pages.links_create", "pages.links_update", "pages.publish"]) {
    for (const who of [viewer, await api.newAccount()]) await prepare(key, who);
    expect(done, key).toEqual([]);
    await prepare(key, api.account);
    expect(done.splice(0), key).toHaveLength(1);
  }
});

test("a link needs something to show, and a host to show it on", async () => {
  const page = await world.newPage();
  const ask = (one: TestApi, key: string) =>
    one.ask("POST", `/v1/pages/${page}/links`, { key, body: { label: "l" } });
  expect(codeOf(await ask(api, api.account.key))).toEqual([409, "page_not_published"]);
  await using other = await closing(startTestApi(database, { PAGES_URL: "" }));
  expect(codeOf(await ask(other.api, api.account.key))).toEqual([409, "pages_not_configured"]);
  const shown = await fetch(new URL(`/p/${"a".repeat(43)}`, other.api.url));
  expect(shown.status).toBe(404);
});

test("a link that nobody could open is not made", async () => {
  const { page, link } = await world.linked({
    expires_at: new Date(Date.now() + patience(60_000)).toISOString(),
  });
  const make = (expires_at: string, key = api.account.key) =>
    api.ask("POST", `/v1/pages/${page}/links`, { key, body: { label: "l", expires_at } });
  for (const over of [PAST, new Date().toISOString(), "0001-01-01T00:00:00Z"]) {
    const { status, body } = await make(over);
    expect([status, body.code, body.errors], over).toEqual([
      400,
      "invalid_request",
      [{ path: "body.expires_at", message: expect.stringContaining("Give a later time, or null") }],
    ]);
  }
  // Whoever may not make links learns nothing else.
  expect(codeOf(await make(PAST, (await api.newAccount()).key))).toEqual([404, "not_found"]);
  const { body } = await api.ask("GET", `/v1/pages/${page}/links`);
  expect(body).toMatchObject({ items: [{ id: link.id, state: "active" }], total: 1 });
  // To end one at once is another thing.
  expect(await update(link, { expires_at: PAST })).toMatchObject({ status: 200, body: { state: "expired" } });
});

async function closing(starting: Promise<TestApi>) {
  const api = await starting;
  return { api, [Symbol.asyncDispose]: () => api.close() };
}

test.each(["allowed_emails", "allowed_domains"])("%s is refused: nobody would enforce it", async (name) => {
  const { page, link } = await world.linked();
  const refused = [
    await api.ask("POST", `/v1/pages/${page}/links`, { body: { label: "l", [name]: ["a@example.com"] } }),
    await update(link, { [name]: ["example.com"] }),
  ];
  for (const { status, body } of refused) {
    expect(status).toBe(400);
    expect(body.errors).toEqual([
      { path: `body.${name}`, message: expect.stringContaining("not asked who they are") },
    ]);
  }
  expect((await update(link, { [name]: [] })).status).toBe(200);
});

test("a link follows new versions until it is retargeted, and again when it is told to", async () => {
  const { page, version, link } = await world.linked({}, "one");
  await world.save(page, "two");
  const second = await world.publish(page);
  expect(await world.linkOf(link.id)).toMatchObject({ page_version_id: second.id, page_version_number: 2 });
  const pinned = await retarget(link, version.id);
  expect(pinned.status).toBe(200);
  expect(pinned.body).toMatchObject({ page_version_id: version.id, page_version_number: 1, pinned: true });
  await world.save(page, "three");
  const third = await world.publish(page);
  expect(await world.linkOf(link.id)).toMatchObject({ page_version_id: version.id, pinned: true });
  expect((await world.open(link)).text).toContain("<p>one</p>");
  expect(await retarget(link, second.id)).toMatchObject({ status: 200, body: { page_version_number: 2 } });
  const following = await update(link, { pinned: false });
  expect(following.body).toMatchObject({ page_version_id: third.id, pinned: false, visit_count: 1 });
  expect((await world.open(link)).text).toContain("<p>three</p>");
});

test("a link is retargeted to a published version of its own page alone, and its counts stay", async () => {
  const { version, link } = await world.linked({ max_visits: 5 });
  await world.open(link);
  await world.open(link);
  const before = await world.linkOf(link.id);
  const other = await world.published();
  const stranger = await api.newAccount();
  const theirs = await world.newPage("Text.", undefined, stranger);
  const strange = await world.publish(theirs, stranger);
  for (const id of [other.version.id, strange.id, other.page, link.id, randomUUID()]) {
    expect(codeOf(await retarget(link, id))).toEqual([422, "page_version_mismatch"]);
  }
  expect(await world.linkOf(link.id)).toEqual(before);
  const path = `/v1/page-links/${link.id}/retarget`;
  const asked = await api.ask("POST", path, { key: stranger.key, body: { page_version_id: version.id } });
  expect(codeOf(asked)).toEqual([404, "not_found"]);
  expect((await retarget({ id: randomUUID() }, version.id)).status).toBe(404);
  const done = await retarget(link, version.id);
  expect(done.body).toEqual({ ...before, pinned: true, updated_at: done.body.updated_at });
});

test("a link that was revoked or has expired is not retargeted", async () => {
  const { version, link } = await world.linked();
  await update(link, { expires_at: PAST });
  expect(await world.linkOf(link.id)).toMatchObject({ status: "ACTIVE", state: "expired" });
  expect(codeOf(await retarget(link, version.id))).toEqual([409, "page_link_expired"]);
  await update(link, { expires_at: null });
  expect((await retarget(link, version.id)).status).toBe(200);
  expect((await update(link, { status: "REVOKED" })).body).toMatchObject({
    status: "REVOKED",
    state: "revoked",
  });
  expect(codeOf(await retarget(link, version.id))).toEqual([409, "page_link_revoked"]);
  for (const body of [{ label: "back" }, { status: "REVOKED" }, { pinned: false }] as Json[]) {
    expect(codeOf(await update(link, body))).toEqual([409, "page_link_revoked"]);
  }
  expect((await update(link, { status: "ACTIVE" })).status).toBe(400);
});

test("auth_version changes with the password, and with nothing else", async () => {
  const { link } = await world.linked();
  const steps: [Json, Json][] = [
    [{ label: "Renamed" }, { auth_version: 1, label: "Renamed", has_password: false }],
    [{ password: "correct horse" }, { auth_version: 2, has_password: true, access_mode: "PASSWORD" }],
    [{ max_visits: 9 }, { auth_version: 2, max_visits: 9, label: "Renamed" }],
    [{ password: "correct horse" }, { auth_version: 3 }],
    [{ password: null }, { auth_version: 4, has_password: false, access_mode: "ANONYMOUS" }],
    [
      { max_visits: null, expires_at: FUTURE },
      { auth_version: 4, max_visits: null, expires_at: FUTURE },
    ],
    [{}, { auth_version: 4, label: "Renamed", expires_at: FUTURE }],
  ];
  for (const [changes, expected] of steps) {
    expect((await update(link, changes)).body, JSON.stringify(changes)).toMatchObject(expected);
  }
});

test.each([
  { password: "short" },
  { password: "x".repeat(201) },
  { max_visits: 0 },
  { max_visits: 2 ** 31 },
  { expires_at: "tomorrow" },
  { expires_at: "0000-01-01T00:00:00Z" },
  { expires_at: "0001-01-01T00:00:00+00:01" },
  { expires_at: "9999-12-31T23:59:59-00:01" },
  { password: "two\nlines of it" },
  { label: "" },
  { pinned: true },
  { visit_count: 0 },
])("a link cannot be changed to %j", async (body) => {
  const { link } = await world.linked();
  const { status, body: problem } = await update(link, body);
  expect([status, problem.errors]).toEqual([400, [expect.objectContaining({ path: expect.any(String) })]]);
});

test("neither a password nor its hash is in the database as it was sent, in the log or in the audit", async () => {
  const password = `kept nowhere ${randomUUID()}`;
  const { link } = await world.linked({ password });
  await update(link, { password });
  await world.send(link, password);
  const found = await Promise.all(
    ["sealpost.idempotency_keys", "sealpost.audit_log", "workspace.page_links"].map((table) =>
      database.pool.query(`select to_jsonb(t)::text as row from ${table} as t`),
    ),
  );
  const everything = JSON.stringify([found.map(({ rows }) => rows), api.log]);
  expect(everything).not.toContain(password);
  expect(everything).not.toContain(Buffer.from(password).toString("hex"));
  const { rows } = await database.pool.query("select password_hash from workspace.page_links where id = $1", [
    link.id,
  ]);
  expect(rows[0].password_hash).toMatch(/^scrypt\$15\$8\$3\$[^$]{24}\$[^$]{44}$/);
  const audit = JSON.stringify(found[1]!.rows);
  expect(audit).not.toContain("scrypt$");
  expect(audit).toContain("has_password");
});

test("no transaction is open while a password is hashed", async () => {
  const { page } = await world.published();
  const making = Promise.all(
    Array.from({ length: 8 }, () =>
      api.ask("POST", `/v1/pages/${page}/links`, { body: { label: "l", password: "correct horse" } }),
    ),
  );
  let isMade = false;
  making.finally(() => {
    isMade = true;
  });
  while (!isMade) {
    // Eight of these take a second of both processors.
    const { rows } = await database.pool.query(
      `select query from pg_stat_activity
       where datname = current_database() and state = 'idle in transaction'
         and state_change < now() - $1 * interval '1 ms'`,
      [patience(400)],
    );
    expect(rows).toEqual([]);
  }
  const statuses = (await making).map(({ status }) => status);
  // On a slow machine some would have waited for too long.
  expect(statuses.filter((status) => status !== 503)).not.toEqual([]);
  for (const status of statuses) expect([201, 503]).toContain(status);
});

test("a link opens nothing from the moment on when its account is erased", async () => {
  const { link } = await world.linked({});
  const digest = createHash("sha256").update(String(link.url).split("/p/")[1]!).digest("hex");
  expect((await openLinks(database.pool, [digest])).size).toBe(1);
  await changeRows(database.pool, "accounts", {}, { erased_at: new Date() });
  expect((await openLinks(database.pool, [digest])).size).toBe(0);
  await changeRows(database.pool, "accounts", {}, { erased_at: null });
});
