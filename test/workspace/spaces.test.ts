import { describe, expect, test } from "vitest";
import { insertRow } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { Json, TestAccount } from "../support/sealpost-api.ts";

const { database, api } = await openApi();

type Person = Pick<TestAccount, "userId" | "key">;

async function create(name: string, { key }: Pick<Person, "key"> = api.account): Promise<Json> {
  const { status, body } = await api.ask("POST", "/v1/spaces", { key, body: { name } });
  expect(status).toBe(201);
  return body;
}
const listOf = async ({ key }: Pick<Person, "key">, query = "") =>
  (await api.ask("GET", `/v1/spaces${query}`, { key })).body as {
    items: Json[];
    next_cursor: string | null;
    total: number;
  };

test("a space has every field, as its maker sees it", async () => {
  const account = await api.newAccount();
  const made = await create("Quarterly: Größen & Co.", account);
  const [{ idp_user_id }] = (
    await database.pool.query("select idp_user_id from sealpost.users where id = $1", [account.userId])
  ).rows;
  expect(made).toEqual({
    id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    idp_user_id,
    name: "Quarterly: Größen & Co.",
    storage_prefix: `spaces/quarterly-groen-co-${String(made.id).slice(-12)}/`,
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    role: "ADMIN",
    is_owner: true,
    can_read: true,
    can_download: true,
    can_upload: true,
    can_delete: true,
    can_rename: true,
    document_count: 0,
    member_count: 1,
    skill_count: 0,
  });
  expect((await api.ask("GET", `/v1/spaces/${made.id}`, account)).body).toEqual(made);
  expect(await listOf(account)).toEqual({ items: [made], next_cursor: null, total: 1 });
});

test.each([" x", "x ", "", "x\ny", "x".repeat(201), "\ud800", 7, null])(
  "no space is called %j",
  async (name) => {
    expect((await api.ask("POST", "/v1/spaces", { body: { name } })).status).toBe(400);
  },
);

test.each(["x", "🦑".repeat(200), "../..", "a\u00a0b", "名前", "---"])(
  "a space may be called %j, twice",
  async (name) => {
    const [one, other] = [await create(name), await create(name)];
    expect(one.storage_prefix).not.toBe(other.storage_prefix);
    for (const { storage_prefix } of [one, other]) {
      expect(storage_prefix).toMatch(/^spaces\/[a-z0-9]+(-[a-z0-9]+)*-[0-9a-f]{12}\/$/);
      expect(String(storage_prefix).length).toBeLessThan(64);
    }
  },
);

test("two spaces never have one prefix, not even of two accounts under ids that end alike", async () => {
  const space = await create("same");
  const { accountId, userId } = await api.newAccount();
  await insertRow(database.pool, "workspace.workspaces", { account_id: accountId });
  const id = `0199a1f0-7d2c-7c3a-9b1e-${String(space.id).slice(-12)}`;
  const alike = {
    account_id: accountId,
    id,
    owner_id: userId,
    name: "other",
    storage_prefix: "spaces/other/",
  };
  await expect(insertRow(database.pool, "workspace.spaces", alike)).rejects.toThrow("spaces_prefix_digits");
});

test("a rename changes name and prefix at once, in the transaction of the answer", async () => {
  const space = await create("Before");
  const { status, body } = await api.ask("PATCH", `/v1/spaces/${space.id}`, { body: { name: "After" } });
  expect(status).toBe(200);
  const storage_prefix = `spaces/after-${String(space.id).slice(-12)}/`;
  expect(body).toEqual({ ...space, name: "After", storage_prefix });
  expect((await api.ask("GET", `/v1/spaces/${space.id}`)).body).toEqual(body);
});

test("documents are counted, whatever their status, in their own space only", async () => {
  const { accountId, userId } = api.account;
  const [space, other] = [await create("counted"), await create("other")];
  const document = { account_id: accountId, space_id: space.id, content_type: "text/plain", file_size: 1 };
  const rest = { live_content_type: "NONE", uploaded_by: userId };
  for (const status of ["PENDING_UPLOAD", "UPLOADED"]) {
    const row = { ...document, ...rest, status, file_name: status, storage_key: `${space.id}/${status}` };
    await insertRow(database.pool, "workspace.documents", row);
  }
  const get = async (id: unknown) => (await api.ask("GET", `/v1/spaces/${id}`)).body.document_count;
  expect([await get(space.id), await get(other.id)]).toEqual([2, 0]);
});

describe("the list", () => {
  test("is of the spaces that the user is a member of, newest first, and of no others", async () => {
    const owner = await api.newAccount();
    const colleague = await api.newUser(owner.accountId);
    const [one, two] = [await create("one", owner), await create("two", owner)];
    await create("three", colleague);
    expect((await listOf(owner)).items.map(({ id }) => id)).toEqual([two.id, one.id]);
    const path = `/v1/spaces/${one.id}/members/${colleague.userId}`;
    expect((await api.ask("PUT", path, { key: owner.key, body: { role: "VIEWER" } })).status).toBe(200);
    expect((await listOf(colleague)).items).toMatchObject([
      { name: "three", is_owner: true },
      { id: one.id, is_owner: false, role: "VIEWER", member_count: 2, can_read: true, can_upload: false },
    ]);
  });

  test("has stable pages while spaces are made", async () => {
    const owner = await api.newAccount();
    const made: unknown[] = [];
    for (let n = 0; n < 7; n++) made.push((await create(`first ${n}`, owner)).id);
    const seen: unknown[] = [];
    let query = "?limit=2";
    for (;;) {
      const page = await listOf(owner, query);
      expect(page.total).toBe(7 + seen.length / 2);
      seen.push(...page.items.map(({ id }) => id));
      if (page.next_cursor === null) break;
      await create("later", owner);
      query = `?limit=2&cursor=${page.next_cursor}`;
    }
    expect(seen).toEqual(made.reverse());
  });

  test("has cursors that are good for one user alone", async () => {
    const owner = await api.newAccount();
    const colleague = await api.newUser(owner.accountId);
    for (const name of ["one", "two"]) await create(name, owner);
    const { next_cursor } = await listOf(owner, "?limit=1");
    const asked = await api.ask("GET", `/v1/spaces?limit=1&cursor=${next_cursor}`, colleague);
    expect(asked.status).toBe(400);
  });
});

describe("a key that acts for no user", () => {
  test.each([
    ["GET", "/v1/spaces"],
    ["POST", "/v1/spaces"],
  ])("is denied %s %s, staff's included", async (method, path) => {
    const { accountId } = api.account;
    const body = method === "POST" ? { name: "x" } : undefined;
    const denied = await api.ask(method, path, { key: await api.newKey(accountId), body });
    expect([denied.status, denied.body.code]).toEqual([403, "access_denied"]);
    expect(denied.body.errors).toEqual([{ path: "header.authorization", message: "It acts for no user." }]);
    const headers = { "x-account-id": accountId };
    const staff = await api.ask(method, path, { key: await api.newKey(null), headers, body });
    expect([staff.status, staff.body.code]).toEqual([403, "access_denied"]);
  });
});
