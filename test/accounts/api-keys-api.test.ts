import { beforeEach, describe, expect, test } from "vitest";
import { ACCOUNT_KEYS_MAX } from "../../src/accounts/api-keys-sql.ts";
import { accountScopes, scopes as everyScope, userScopes } from "../../src/base/model/api-keys.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { begin, changeRows, countRows, rowOf, rowsOf, untilSomebodyWaits } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { AskOptions, Json, TestAccount } from "../support/sealpost-api.ts";

const PATH = "/v1/api-keys";
/** What a new account has: its own, and its user's. */
const KEYS = 2;
const nobody = "00000000-0000-7000-8000-000000000000";

const { database, api } = await openApi();
let account: TestAccount;
beforeEach(async () => {
  account = await api.newAccount();
});

const rowOfKey = (key: string) => rowOf(database.pool, "api_keys", { digest: digestSecret(key) });
const idOf = async (key: string): Promise<string> => (await rowOfKey(key)).id;
const create = (body: Json = {}, options: AskOptions = {}) =>
  api.ask("POST", PATH, {
    key: account.ownKey,
    body: { name: "CI", scopes: ["webhooks:read"], ...body },
    ...options,
  });
const revoke = (id: unknown, options: AskOptions = {}) =>
  api.ask("DELETE", `${PATH}/${id}`, { key: account.ownKey, ...options });
const list = (query = "", options: AskOptions = {}) =>
  api.ask("GET", PATH + query, { key: account.ownKey, ...options });
const keys = () => countRows(database.pool, "api_keys", { account_id: account.accountId });

describe("a key made by a key", () => {
  test("works for its own account, in this environment, and can do what was asked for", async () => {
    const { status, body } = await create({ scopes: ["webhooks:write", "webhooks:read", "webhooks:read"] });
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.any(String),
      name: "CI",
      class: "test",
      scopes: ["webhooks:read", "webhooks:write"],
      user_id: null,
      created_at: expect.any(String),
      expires_at: null,
      revoked_at: null,
      last_used_at: null,
      api_key: expect.stringMatching(/^svc_test_[A-Za-z0-9_-]{43}$/),
    });
    const key = String(body.api_key);
    expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).status).toBe(200);
    expect((await list("", { key })).status).toBe(403);
    expect(await rowOfKey(key)).toMatchObject({ id: body.id, account_id: account.accountId });
  });

  test("acts for the same user, and for none where the maker does: staff's, too", async () => {
    const { accountId, userId } = account;
    const made = await create({}, { key: account.key });
    expect(made.body.user_id).toBe(userId);
    expect(await rowOfKey(String(made.body.api_key))).toMatchObject({ user_id: userId });
    expect((await create()).body.user_id).toBeNull();
    const headers = { "x-account-id": accountId };
    const byStaff = await create({}, { key: await api.newKey(null), headers });
    expect(byStaff.body.user_id).toBeNull();
    const listed = (await list()).body.items as Json[];
    expect(listed.find(({ id }) => id === made.body.id)).toMatchObject({ user_id: userId });
  });

  test("is shown again for the same Idempotency-Key, and lies nowhere in the clear", async () => {
    const first = await create({}, { idempotencyKey: "once" });
    const again = await create({}, { idempotencyKey: "once" });
    expect(again.bytes.equals(first.bytes)).toBe(true);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(again.headers.get("cache-control")).toBe("no-store");
    expect(await keys()).toBe(KEYS + 1);
    const { rows } = await database.pool.query<{ text: string }>(
      `select k::text as text from sealpost.idempotency_keys as k
       union all select k::text from sealpost.api_keys as k union all select a::text from sealpost.audit_log as a`,
    );
    const everything = rows.map(({ text }) => text).join() + JSON.stringify(api.log);
    const key = String(first.body.api_key);
    expect(everything).toContain(String(first.body.id));
    expect(everything).not.toContain(key);
    expect(everything).not.toContain(Buffer.from(key).toString("hex"));
  });

  test("is in the list without its text, the newest first, page by page", async () => {
    const made = (await create()).body;
    const { api_key: _, ...shown } = made;
    const page = (await list("?limit=1")).body;
    expect(page).toMatchObject({ items: [shown], total: KEYS + 1 });
    const next = (await list(`?limit=1&cursor=${page.next_cursor}`)).body;
    expect(next).toMatchObject({ items: [{ id: await idOf(account.key) }], total: KEYS + 1 });
    const stranger = await api.newAccount();
    expect((await list(`?limit=1&cursor=${page.next_cursor}`, { key: stranger.ownKey })).status).toBe(400);
    expect((await list("", { key: stranger.ownKey })).body.total).toBe(KEYS);
  });

  test.each<[string, Json]>([
    ["no name", { name: undefined }],
    ["an empty name", { name: "" }],
    ["a name with a line break", { name: "a\nb" }],
    ["a name with spaces around it", { name: " a" }],
    ["a name of 201 characters", { name: "x".repeat(201) }],
    ["half a character as its name", { name: "\ud800" }],
    ["no scopes", { scopes: [] }],
    ["an unknown scope", { scopes: ["webhooks:*"] }],
    ["an account", { account_id: nobody }],
    ["another class", { class: "live" }],
    ["no time left", { expires_in_seconds: 0 }],
    ["more than ten years", { expires_in_seconds: 3_651 * 86_400 }],
    ["a life without end by null", { expires_in_seconds: null }],
  ])("is refused with %s", async (_, body) => {
    const refused = await create(body);
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
    expect(await keys()).toBe(KEYS);
  });
});

describe("no key makes one that can do more than itself", () => {
  test.each(accountScopes.filter((scope) => scope !== "keys:write"))("by the scope %s", async (scope) => {
    const key = await api.newKey(
      account.accountId,
      everyScope.filter((one) => one !== scope),
    );
    const refused = await create({ scopes: ["keys:write", scope] }, { key });
    expect([refused.status, refused.body.code]).toEqual([403, "exceeds_own_key"]);
    expect(refused.body.errors).toEqual([{ path: "body.scopes", message: expect.stringContaining(scope) }]);
    expect(await keys()).toBe(KEYS + 1);
  });

  test("in two steps either: what it makes has less", async () => {
    const key = await api.newKey(account.accountId, ["keys:write", "webhooks:read"]);
    const child = (await create({ scopes: ["keys:write"] }, { key })).body.api_key as string;
    expect((await create({ scopes: ["webhooks:read"] }, { key: child })).status).toBe(403);
    expect((await create({ scopes: ["keys:write"] }, { key: child })).status).toBe(201);
  });

  test("by a longer life: at most as long as its own, which is what it gets unless asked", async () => {
    const key = await api.newKey(account.accountId);
    const expires_at = new Date(Date.now() + 3_600_000);
    await changeRows(database.pool, "api_keys", { id: await idOf(key) }, { expires_at });
    expect((await create({}, { key })).body.expires_at).toBe(expires_at.toISOString());
    const short = (await create({ expires_in_seconds: 60 }, { key })).body;
    expect(Date.parse(String(short.expires_at)) - Date.parse(String(short.created_at))).toBe(60_000);
    const refused = await create({ expires_in_seconds: 7_200, scopes: ["webhooks:read"] }, { key });
    expect(refused).toMatchObject({ status: 403, body: { code: "exceeds_own_key" } });
    expect(refused.body.errors).toMatchObject([{ path: "body.expires_in_seconds" }]);
  });

  test("by making one for another account, or for staff", async () => {
    const other = await api.newAccount();
    const headers = { "x-account-id": other.accountId };
    expect((await create({}, { headers })).status).toBe(403);
    expect(await countRows(database.pool, "api_keys", { account_id: other.accountId })).toBe(KEYS);
  });

  test("nor a staff key, which makes keys of the account that it names", async () => {
    const staff = await api.newKey(null, ["keys:write", "webhooks:read"]);
    const asStaff = { key: staff, headers: { "x-account-id": account.accountId } };
    expect((await create({ scopes: ["webhooks:write"] }, asStaff)).status).toBe(403);
    const { status, body } = await create({}, asStaff);
    expect(status).toBe(201);
    expect(await rowOfKey(String(body.api_key))).toMatchObject({ account_id: account.accountId });
    expect((await list("", asStaff)).body.total).toBe(KEYS + 1);
    expect((await revoke(body.id, asStaff)).status).toBe(204);
    expect((await revoke(await idOf(staff), asStaff)).status).toBe(404);
  });
});

describe("revoking", () => {
  test("ends a key at once, and again changes nothing", async () => {
    const { id, api_key } = (await create()).body;
    const ask = () => api.ask("GET", "/v1/webhooks/deliveries", { key: String(api_key) });
    expect((await ask()).status).toBe(200);
    expect((await revoke(id)).status).toBe(204);
    expect((await ask()).status).toBe(401);
    const { revoked_at } = await rowOf(database.pool, "api_keys", { id });
    expect((await revoke(id)).status).toBe(204);
    expect((await list("?limit=1")).body.items).toMatchObject([{ id, revoked_at: revoked_at.toISOString() }]);
  });

  test("is for one's own key, too: its last request", async () => {
    expect((await revoke(await idOf(account.ownKey))).status).toBe(204);
    expect((await list()).status).toBe(401);
  });

  test("is not for a key with scopes that one's own lacks", async () => {
    const key = await api.newKey(account.accountId, ["keys:write", "webhooks:read"]);
    const refused = await revoke(await idOf(account.ownKey), { key });
    expect([refused.status, refused.body.code]).toEqual([403, "exceeds_own_key"]);
    expect(refused.body.errors).toContainEqual({
      path: "params.key_id",
      message: "Your own key lacks the scope webhooks:secrets.",
    });
    expect((await list()).status).toBe(200);
  });

  test("finds no other account's key, no staff key, and none that there is not", async () => {
    const other = await api.newAccount();
    const staff = await api.newKey(null);
    for (const id of [await idOf(other.key), await idOf(staff), nobody]) {
      expect(await revoke(id)).toMatchObject({ status: 404, body: { code: "not_found" } });
    }
    expect((await rowsOf(database.pool, "api_keys", { revoked_at: null })).map(({ id }) => id)).toEqual(
      expect.arrayContaining([await idOf(other.key), await idOf(staff)]),
    );
  });
});

describe("a key that acts for a user", () => {
  test("lists this user's keys alone, and counts no others", async () => {
    const { key } = account;
    const second = (await create({}, { key })).body;
    await api.newUser(account.accountId);
    const { body } = await list("", { key });
    expect(body).toMatchObject({ total: 2, next_cursor: null });
    expect((body.items as Json[]).map(({ id }) => id)).toEqual([second.id, await idOf(key)]);
    const page = (await list("?limit=1", { key })).body;
    expect(page.items).toMatchObject([{ id: second.id }]);
    const next = (await list(`?limit=1&cursor=${page.next_cursor}`, { key })).body;
    expect(next).toMatchObject({ items: [{ id: await idOf(key) }], next_cursor: null, total: 2 });
  });

  test("revokes no key of another user, nor the account's, and hears what it hears of none", async () => {
    const key = account.key;
    const colleague = await api.newUser(account.accountId);
    const less = { accountId: account.accountId, scopes: ["keys:write"] };
    const victims = [colleague.key, account.ownKey, await api.newKey(less.accountId, less.scopes)];
    const headers = { "x-request-id": "the-same" };
    const unknown = await revoke(nobody, { key, headers });
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
    for (const victim of victims) {
      const answer = await revoke(await idOf(victim), { key, headers });
      expect([answer.status, answer.bytes.toString()]).toEqual([404, unknown.bytes.toString()]);
      expect(await rowOfKey(victim)).toMatchObject({ revoked_at: null });
    }
    const own = (await create({}, { key })).body;
    expect((await revoke(own.id, { key })).status).toBe(204);
    // Whoever manages the account's keys manages those of its users.
    expect((await revoke(await idOf(key))).status).toBe(204);
  });

  test("takes none of the account's places, nor another user's", async () => {
    await database.pool.query(
      `insert into sealpost.api_keys (account_id, user_id, digest, class, scopes)
       select $1::uuid, $2::uuid, sha256(($2::text || ' ' || n)::bytea), 'test', '{}'
       from generate_series(2, $3::integer) as n`,
      [account.accountId, account.userId, ACCOUNT_KEYS_MAX],
    );
    const full = await create({}, { key: account.key });
    expect([full.status, full.body.code, full.body.title]).toEqual([
      409,
      "too_many_api_keys",
      "Too many API keys",
    ]);
    expect((await create()).status).toBe(201);
    const colleague = await api.newUser(account.accountId);
    expect((await create({}, { key: colleague.key })).status).toBe(201);
  });

  test.each(accountScopes.filter((scope) => !userScopes.includes(scope)))(
    "cannot have the scope %s, which is for what is the account's",
    async (scope) => {
      const refused = await create({ scopes: [scope] }, { key: account.key });
      expect([refused.status, refused.body.code]).toEqual([403, "exceeds_own_key"]);
      const scopes = [scope, "keys:write"];
      await expect(
        changeRows(database.pool, "api_keys", { user_id: account.userId }, { scopes }),
      ).rejects.toThrow("api_keys_user_scopes");
    },
  );

  test("can have every other scope", async () => {
    const { status } = await create({ scopes: userScopes }, { key: account.key });
    expect(status).toBe(201);
  });
});

describe("at the same time", () => {
  test("a key that is revoked meanwhile makes none and revokes none", async () => {
    const victim = (await create()).body.id;
    for (const work of [() => create(), () => revoke(victim)]) {
      const before = await keys();
      const id = await idOf(account.ownKey);
      const revoking = await begin(database.pool);
      await changeRows(revoking.client, "api_keys", { id }, { revoked_at: new Date() });
      const asked = work();
      // It was let in, and finds the key locked; if it did not wait, what follows fails.
      await Promise.race([asked, untilSomebodyWaits(database.pool)]);
      await revoking.commit();
      expect(await asked).toMatchObject({ status: 401, body: { code: "unauthorized" } });
      expect(await keys()).toBe(before);
      expect(await rowOf(database.pool, "api_keys", { id: victim })).toMatchObject({ revoked_at: null });
      await changeRows(database.pool, "api_keys", { id }, { revoked_at: null });
    }
  });

  test("two that revoke each other: one is left", async () => {
    const other = await api.newKey(account.accountId);
    const [id, otherId] = [await idOf(account.ownKey), await idOf(other)];
    const done = await Promise.all([revoke(otherId), revoke(id, { key: other })]);
    expect(done.map(({ status }) => status).sort()).toEqual([204, 401]);
    const left = await rowsOf(database.pool, "api_keys", { account_id: account.accountId, revoked_at: null });
    expect(left).toHaveLength(KEYS);
  });

  test(`two for the last place among ${ACCOUNT_KEYS_MAX}: one has it`, async () => {
    const fill = (count: number) =>
      database.pool.query(
        `insert into sealpost.api_keys (account_id, digest, class, scopes)
         select $1::uuid, sha256(($1::text || ' ' || n)::bytea), 'test', '{}'
         from generate_series(1, $2::integer) as n`,
        [account.accountId, count],
      );
    await fill(ACCOUNT_KEYS_MAX - 2);
    // Places are the account's, and each user's.
    const both = await Promise.all([create(), create()]);
    expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
    expect(both.map(({ body }) => body.code)).toContain("too_many_api_keys");
    expect(await keys()).toBe(ACCOUNT_KEYS_MAX + 1);
    expect((await create({}, { key: account.key })).status).toBe(201);
    // Revoking one makes room, but not for whoever makes and revokes them in a loop: a day has to pass.
    await database.pool.query(
      "update sealpost.api_keys set revoked_at = now() where account_id = $1 and scopes = '{}'",
      [account.accountId],
    );
    expect((await create()).status).toBe(409);
    await database.pool.query(
      "update sealpost.api_keys set created_at = now() - interval '1 day' where account_id = $1",
      [account.accountId],
    );
    expect((await create()).status).toBe(201);
  });
});
