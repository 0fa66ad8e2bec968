import { fc } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

type Person = Pick<TestAccount, "userId" | "key">;

let database: TestDatabase;
let api: TestApi;
let owner: TestAccount;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  owner = api.account;
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

async function newSpace(): Promise<string> {
  return String((await api.ask("POST", "/v1/spaces", { body: { name: "shared" } })).body.id);
}
const set = (space: string, who: Person, role: string, by: Person = owner) =>
  api.ask("PUT", `/v1/spaces/${space}/members/${who.userId}`, { key: by.key, body: { role } });
const remove = (space: string, who: Person, by: Person = owner) =>
  api.ask("DELETE", `/v1/spaces/${space}/members/${who.userId}`, { key: by.key });
const codeOf = ({ status, body }: { status: number; body: Json | null }) => [status, body?.code ?? null];

/** What a member of each role may ask for; `null`: no member. */
const MATRIX: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  ADMIN: { get: 200, rename: 200, list: 200, set: 200, remove: 200, folders: 200, folder: 201 },
  EDITOR: { get: 200, rename: 200, list: 200, set: 403, remove: 403, folders: 200, folder: 201 },
  VIEWER: { get: 200, rename: 403, list: 200, set: 403, remove: 403, folders: 200, folder: 403 },
  nobody: { get: 404, rename: 404, list: 404, set: 404, remove: 404, folders: 404, folder: 404 },
};
const CAN: Readonly<Record<string, readonly string[]>> = {
  ADMIN: ["read", "download", "upload", "delete", "rename"],
  EDITOR: ["read", "download", "upload", "rename"],
  VIEWER: ["read", "download"],
};

describe.each(Object.keys(MATRIX))("as %s", (role) => {
  let space: string;
  let member: Person;
  let third: Person;
  beforeAll(async () => {
    space = await newSpace();
    member = await api.newUser(owner.accountId);
    third = await api.newUser(owner.accountId);
    await set(space, third, "VIEWER");
    if (role !== "nobody") await set(space, member, role);
  });

  const asks: Readonly<Record<string, () => ReturnType<TestApi["ask"]>>> = {
    get: () => api.ask("GET", `/v1/spaces/${space}`, member),
    rename: () => api.ask("PATCH", `/v1/spaces/${space}`, { key: member.key, body: { name: "renamed" } }),
    list: () => api.ask("GET", `/v1/spaces/${space}/members`, member),
    set: () => set(space, third, "EDITOR", member),
    remove: () => remove(space, third, member),
    folders: () => api.ask("GET", `/v1/spaces/${space}/folders`, member),
    folder: () =>
      api.ask("POST", `/v1/spaces/${space}/folders`, { key: member.key, body: { name: "a folder" } }),
  };

  test.each(Object.keys(asks))("to %s", async (what) => {
    const { status, body } = await asks[what]!();
    expect(status).toBe(MATRIX[role]![what]);
    if (status === 403) {
      const message = expect.stringMatching(/^Its user's role in the space, [A-Z]+, is not enough\.$/);
      expect(body).toMatchObject({ code: "access_denied", errors: [{ message }] });
    }
    if (what !== "get" || role === "nobody") return;
    const may = Object.entries(body).filter(([name, value]) => name.startsWith("can_") && value);
    expect(may.map(([name]) => name.slice(4)).sort()).toEqual([...CAN[role]!].sort());
    expect(body).toMatchObject({ role, is_owner: false });
  });
});

describe("the owner", () => {
  test.each(["ADMIN", "EDITOR", "VIEWER"])("is not made %s by anybody", async (role) => {
    const space = await newSpace();
    const admin = await api.newUser(owner.accountId);
    await set(space, admin, "ADMIN");
    for (const by of [owner, admin]) {
      expect(codeOf(await set(space, owner, role, by))).toEqual([409, "space_owner_fixed"]);
      expect(codeOf(await remove(space, owner, by))).toEqual([409, "space_owner_fixed"]);
    }
    expect((await api.ask("GET", `/v1/spaces/${space}`)).body).toMatchObject({
      role: "ADMIN",
      is_owner: true,
    });
  });
});

test.each(["EDITOR", "VIEWER"])("an %s may leave, and nobody else through that", async (role) => {
  const space = await newSpace();
  const [member, other] = [await api.newUser(owner.accountId), await api.newUser(owner.accountId)];
  await set(space, member, role);
  await set(space, other, "VIEWER");
  expect(codeOf(await remove(space, other, member))).toEqual([403, "access_denied"]);
  expect((await remove(space, member, member)).status).toBe(200);
  expect(codeOf(await remove(space, member, member))).toEqual([404, "not_found"]);
});

test("a user has a thousand spaces, and is in as many of others", async () => {
  const [user, other] = [await api.newUser(owner.accountId), await api.newUser(owner.accountId)];
  const make = async (of: Person, members: readonly Person[]) => {
    await database.pool.query(
      `with made as (
         insert into workspace.spaces (account_id, id, owner_id, name, storage_prefix)
         select $1, id, $2, 'one', id::text from (select gen_random_uuid() as id from generate_series(1, 999)) as ids
         returning id
       )
       insert into workspace.space_members (account_id, user_id, space_id, role)
       select $1, user_id, made.id, 'ADMIN' from made, unnest($3::uuid[]) as user_id`,
      [owner.accountId, of.userId, members.map(({ userId }) => userId)],
    );
  };
  await make(other, [other, user]);
  await make(user, [user]);
  const create = () => api.ask("POST", "/v1/spaces", { key: user.key, body: { name: "more" } });
  expect((await create()).status).toBe(201);
  expect(codeOf(await create())).toEqual([409, "too_many_spaces"]);
  const [last, beyond] = [await newSpace(), await newSpace()];
  expect((await set(last, user, "VIEWER")).status).toBe(200);
  expect(codeOf(await set(beyond, user, "VIEWER"))).toEqual([409, "too_many_spaces"]);
  expect((await set(last, user, "EDITOR")).status, "in which the user is already").toBe(200);
  expect((await remove(last, user, user)).status).toBe(200);
  expect((await set(beyond, user, "VIEWER")).status).toBe(200);
});

test("a member is a user of the account", async () => {
  const space = await newSpace();
  expect(codeOf(await set(space, await api.newAccount(), "ADMIN"))).toEqual([404, "not_found"]);
  expect(codeOf(await remove(space, await api.newUser(owner.accountId)))).toEqual([404, "not_found"]);
});

test("the list has every member, page by page", async () => {
  const space = await newSpace();
  const users = [owner, ...(await Promise.all([1, 2, 3, 4].map(() => api.newUser(owner.accountId))))];
  for (const user of users.slice(1)) await set(space, user, "VIEWER");
  const seen: unknown[] = [];
  let query = "?limit=2";
  for (;;) {
    const { body } = await api.ask("GET", `/v1/spaces/${space}/members${query}`);
    expect(body.total).toBe(5);
    seen.push(...(body.items as { user: Json }[]).map(({ user }) => user.id));
    if (body.next_cursor === null) break;
    query = `?limit=2&cursor=${body.next_cursor}`;
  }
  expect(seen).toEqual(users.map(({ userId }) => userId).sort());
});

test("of two ADMINs who remove each other at once one stays", async () => {
  for (let n = 0; n < 10; n++) {
    const space = await newSpace();
    const [one, other] = [await api.newUser(owner.accountId), await api.newUser(owner.accountId)];
    for (const user of [one, other]) await set(space, user, "ADMIN");
    const answers = await Promise.all([remove(space, other, one), remove(space, one, other)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404]);
    expect((await api.ask("GET", `/v1/spaces/${space}`)).body.member_count).toBe(2);
  }
});

test("whatever is asked for at once, the space keeps its owner as an ADMIN", async () => {
  const admins = await Promise.all([1, 2, 3].map(() => api.newUser(owner.accountId)));
  const people: readonly Person[] = [owner, ...admins];
  const person = fc.constantFrom(...people);
  const asking = fc.record({ who: person, by: person, role: fc.constantFrom("ADMIN", "VIEWER", null) });
  await fc.assert(
    fc.asyncProperty(fc.array(asking, { minLength: 2, maxLength: 12 }), async (all) => {
      const space = await newSpace();
      for (const admin of admins) await set(space, admin, "ADMIN");
      const answers = await Promise.all(
        all.map(({ who, by, role }) => (role === null ? remove(space, who, by) : set(space, who, role, by))),
      );
      for (const { status } of answers) expect([200, 204, 403, 404, 409]).toContain(status);
      const { items } = (await api.ask("GET", `/v1/spaces/${space}/members`)).body as { items: Json[] };
      expect(items.filter(({ is_owner }) => is_owner)).toMatchObject([
        { user: { id: owner.userId }, role: "ADMIN" },
      ]);
    }),
    { numRuns: 20, seed: 20260301 },
  );
});

test("20 renames at once have one order: name and prefix go together, and the last answer stays", async () => {
  const space = await newSpace();
  const names = Array.from({ length: 20 }, (_, n) => `name ${n}`);
  const answers = await Promise.all(
    names.map((name) => api.ask("PATCH", `/v1/spaces/${space}`, { body: { name } })),
  );
  for (const [n, { status, body }] of answers.entries()) {
    expect(status).toBe(200);
    expect(body).toMatchObject({ name: names[n], storage_prefix: `spaces/name-${n}-${space.slice(-12)}/` });
  }
  expect(answers.map(({ body }) => body)).toContainEqual((await api.ask("GET", `/v1/spaces/${space}`)).body);
});
