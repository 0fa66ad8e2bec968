import { beforeEach, describe, expect, test } from "vitest";
import { scopes as everyScope } from "../../src/base/model/api-keys.ts";
import { enter } from "../support/console.ts";
import { countRows, deleteRows, rowsOf, tablesWith } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { AskOptions, Json, TestAccount } from "../support/sealpost-api.ts";

const PATH = "/v1/users";
const ADA = { idp_user_id: "auth|ada", email: "ada@Example.com", name: "Ada" };
const UNKNOWN = "0199a1f0-7d2c-7c3a-9b1e-000000000000";

const { database, api } = await openApi();
let account: TestAccount;
beforeEach(async () => {
  account = await api.newAccount();
});

const add = (body: Json = {}, options: AskOptions = {}) =>
  api.ask("POST", PATH, { key: account.ownKey, body: { ...ADA, ...body }, ...options });
const disable = (id: unknown, options: AskOptions = {}) =>
  api.ask("DELETE", `${PATH}/${id}`, { key: account.ownKey, ...options });
const makeKey = (body: Json, key = account.ownKey) =>
  api.ask("POST", "/v1/api-keys", { key, body: { name: "hers", scopes: ["webhooks:read"], ...body } });
const read = async (key: unknown) =>
  (await api.ask("GET", "/v1/webhooks/deliveries", { key: String(key) })).status;

describe("a user", () => {
  test("is added, listed with those there are, the newest first, and known by one id", async () => {
    const { status, body } = await add({ image_url: "https://img.example.com/a.png" });
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.any(String),
      ...ADA,
      email: "ada@example.com",
      image_url: "https://img.example.com/a.png",
      created_at: expect.any(String),
      disabled_at: null,
    });
    const again = await add();
    expect([again.status, again.body.code]).toEqual([409, "user_exists"]);
    const page = (await api.ask("GET", `${PATH}?limit=1`, { key: account.ownKey })).body;
    expect(page).toMatchObject({ items: [body], total: 2 });
    const next = await api.ask("GET", `${PATH}?limit=1&cursor=${page.next_cursor}`, { key: account.ownKey });
    expect(next.body).toMatchObject({ items: [{ id: account.userId }], next_cursor: null, total: 2 });
    // Another account has an own one of the same id, and does not see this one.
    const other = await api.newAccount();
    expect((await add({}, { key: other.ownKey })).status).toBe(201);
    expect((await disable(body.id, { key: other.ownKey })).status).toBe(404);
  });

  test("has no address in the audit log, which is kept longer than people stay", async () => {
    const { body } = await add();
    const told = await rowsOf(database.pool, "audit_log", { account_id: account.accountId });
    expect(told).toMatchObject([{ details: { user_id: body.id, idp_user_id: "auth|ada" } }]);
    expect(JSON.stringify(told)).not.toContain("example.com");
  });

  test("whose name and address are to be forgotten has others in their place, and is disabled again", async () => {
    const { id } = (await add({ name: "canary", email: "canary@example.com" })).body;
    const permissions = ["webhooks:read", "webhooks:replay"];
    const made = await makeKey({ user_id: id, scopes: [...permissions, "console:link"] });
    const viewer = { id: ADA.idp_user_id, label: "pseudonym" };
    const hand = await enter(api, { key: String(made.body.api_key), permissions, viewer });
    const form = { _key: "all", status: "abandoned", _counted: "?status=abandoned", _matched: "0" };
    const replay = await hand.post(`${hand.base}/replays`, form);
    expect(replay.headers.get("location")).toContain("?queued=1");
    await disable(id);
    await add({ name: "Forgotten", email: "forgotten@example.com" });
    expect((await disable(id)).body).toMatchObject({ id, idp_user_id: ADA.idp_user_id, name: "Forgotten" });
    // What requests were answered is kept for a day.
    await deleteRows(database.pool, "idempotency_keys", { account_id: account.accountId });
    expect(await tablesWith(database.pool, "canary")).toEqual([]);
    // But for what the link has called its viewer, as it says.
    expect(await tablesWith(database.pool, "pseudonym")).toEqual([
      "audit_log",
      "console_sessions",
      "replays",
    ]);
    const { bytes } = await api.ask("GET", "/v1/openapi.json", { key: null });
    expect(bytes.toString()).toContain("The audit log has it for 365 days");
  });

  test.each<[Json, string]>([
    [{ email: "ada" }, "body.email"],
    [{ email: "a@b.example\nBcc: x@y.example" }, "body.email"],
    [{ email: `${"a".repeat(260)}@b.example` }, "body.email"],
    [{ name: "" }, "body.name"],
    [{ idp_user_id: " " }, "body.idp_user_id"],
    [{ idp_user_id: undefined }, "body.idp_user_id"],
    [{ image_url: "http://img.example.com/" }, "body.image_url"],
    [{ image_url: "javascript:alert(1)" }, "body.image_url"],
    [{ account_id: UNKNOWN }, "body.account_id"],
  ])("is refused with %j", async (wrong, path) => {
    const { status, body } = await add(wrong);
    expect([status, (body.errors as Json[])[0]?.path]).toEqual([400, path]);
    expect(await countRows(database.pool, "users", { account_id: account.accountId })).toBe(1);
  });
});

describe("a key that acts for a user", () => {
  test("takes users:write, and no scope that is the account's", async () => {
    const { id } = (await add()).body;
    const made = await makeKey({ user_id: id });
    expect(made).toMatchObject({ status: 201, body: { user_id: id } });
    expect(await read(made.body.api_key)).toBe(200);
    const less = await api.newKey(
      account.accountId,
      everyScope.filter((scope) => scope !== "users:write"),
    );
    const refused = await makeKey({ user_id: id }, less);
    expect([refused.status, refused.body.code]).toEqual([403, "exceeds_own_key"]);
    expect(JSON.stringify(refused.body.errors)).toContain("users:write");
    const tooMuch = await makeKey({ user_id: id, scopes: ["webhooks:read", "webhooks:write"] });
    expect(tooMuch).toMatchObject({ status: 400, body: { errors: [{ path: "body.scopes" }] } });
    for (const user_id of [UNKNOWN, (await api.newUser((await api.newAccount()).accountId)).userId]) {
      expect(await makeKey({ user_id })).toMatchObject({
        status: 400,
        body: { errors: [{ path: "body.user_id" }] },
      });
    }
    // One more for its own user is what it may have, for nobody else.
    expect((await makeKey({ user_id: account.userId }, account.key)).body.user_id).toBe(account.userId);
    expect((await makeKey({ user_id: id }, account.key)).status).toBe(400);
  });

  test("sees, adds and disables no users", async () => {
    const { key } = account;
    expect((await api.ask("GET", PATH, { key })).status).toBe(403);
    expect((await add({}, { key })).status).toBe(403);
    expect((await disable(account.userId, { key })).status).toBe(403);
    expect(await read(key)).toBe(200);
  });

  test("opens nothing once the user is disabled, who acts for nobody any more until enabled again", async () => {
    const { id } = (await add()).body;
    const keys = [(await makeKey({ user_id: id })).body, (await makeKey({ user_id: id })).body];
    const first = await disable(id);
    expect(first).toMatchObject({ status: 200, body: { id, disabled_at: expect.any(String) } });
    expect((await disable(id)).body.disabled_at).toBe(first.body.disabled_at);
    for (const { api_key } of keys) expect(await read(api_key)).toBe(401);
    expect((await makeKey({ user_id: id })).status).toBe(400);
    expect(await read(account.key), "another user's").toBe(200);
    const enabled = await add({ name: "Ada King" });
    expect(enabled).toMatchObject({ status: 201, body: { id, name: "Ada King", disabled_at: null } });
    for (const { api_key } of keys) expect(await read(api_key)).toBe(401);
    expect(await read((await makeKey({ user_id: id })).body.api_key)).toBe(200);
  });

  test("is not ended by whoever could not have made it", async () => {
    const { id } = (await add()).body;
    await makeKey({ user_id: id, scopes: ["webhooks:read", "webhooks:replay"] });
    const less = await api.newKey(account.accountId, ["users:write", "webhooks:read"]);
    const refused = await disable(id, { key: less });
    expect([refused.status, refused.body.code]).toEqual([403, "exceeds_own_key"]);
    expect(JSON.stringify(refused.body.errors)).toContain("webhooks:replay");
    expect((await rowsOf(database.pool, "users", { id }))[0]?.disabled_at).toBeNull();
    expect((await disable(UNKNOWN)).status).toBe(404);
  });
});
