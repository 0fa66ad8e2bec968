import { expect, test } from "vitest";
import { digestSecret } from "../../src/http/api-keys.ts";
import { enter, type Hand } from "../support/console.ts";
import { rowOf, rowsOf } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const { database, api } = await openApi();
const PERMISSIONS = ["keys:write", "users:write", "webhooks:read", "audit:read"];
const ADA = { name: "Ada <b>", email: "ada@example.com", idp_user_id: "auth|ada" };

async function visit(permissions: readonly string[] = PERMISSIONS) {
  const account = await api.newAccount();
  return { ...(await enter(api, { key: account.ownKey, permissions })), account };
}

const add = (hand: Hand, form: Record<string, string> = {}) =>
  hand.post(`${hand.base}/keys/users/new`, { _key: "u-1", ...ADA, ...form });
const adaOf = ({ accountId }: TestAccount) =>
  rowOf(database.pool, "users", { account_id: accountId, idp_user_id: ADA.idp_user_id });

test("a user is added once for each form, gets a key of their own, and is disabled after a question", async () => {
  const hand = await visit();
  const { base, account } = hand;
  for (const _ of [1, 2]) {
    const added = await add(hand);
    expect([added.status, added.headers.get("location")]).toEqual([303, `${base}/keys/users?done=added`]);
  }
  const { id } = await adaOf(account);
  const list = await hand.get(`${base}/keys/users?done=added`);
  expect(list.text).toContain("Nobody acts for them yet");
  expect(list.text).toMatch(
    new RegExp(`<tr id="u-${id}">.*Ada &#60;b&#62;.*ada@example\\.com.*auth\\|ada`, "s"),
  );
  expect(list.text).toContain(`href="${base}/keys/new?user=${id}"`);
  expect((await hand.get(`${base}/keys`)).text).toContain(`href="${base}/keys/users"`);
  expect((await hand.get(`${base}/audit`)).text).toContain("added the user <code>auth|ada</code>");

  const form = await hand.get(`${base}/keys/new?user=${id}`);
  expect(form.text).toContain("New API key for Ada &#60;b&#62;");
  const offered = [...form.text.matchAll(/name="scopes" value="([^"]*)"/g)].map(([, scope]) => scope);
  expect(offered.sort()).toEqual(["keys:write", "webhooks:read"]);
  const wrong = { _key: "k-0", name: "hers", scopes: "audit:read", user_id: id };
  const refused = await hand.post(`${base}/keys/new`, wrong);
  expect([refused.status, refused.text.includes("No key that acts for a user has audit:read")]).toEqual([
    422,
    true,
  ]);
  expect(refused.text).toContain("New API key for Ada");
  const made = await hand.post(`${base}/keys/new`, { ...wrong, _key: "k-1", scopes: "webhooks:read" });
  const key = /<pre id="api-key">([^<]+)<\/pre>/.exec(made.text)![1]!;
  expect(await rowOf(database.pool, "api_keys", { digest: digestSecret(key) })).toMatchObject({
    user_id: id,
  });

  const path = `${base}/keys/users/${id}/disable`;
  expect((await hand.get(path)).text).toMatch(/Disable this user\?.*Every key that acts for them/s);
  expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).status).toBe(200);
  const disabled = await hand.post(path, { _key: "d-1" });
  expect(disabled.headers.get("location")).toBe(`${base}/keys/users?done=disabled`);
  expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).status).toBe(401);
  const after = await hand.get(`${base}/keys/users`);
  expect(after.text).toContain("disabled</span>");
  expect(after.text).not.toContain(path);
  expect((await hand.get(path)).text).toContain("This user is disabled");
});

test.each([
  [{ name: "" }, "name", "Must have 1 to 200 characters"],
  [{ email: "ada" }, "email", "expected name@example.com"],
  [{ idp_user_id: "" }, "idp_user_id", "Must have 1 to 200 characters"],
  [{ idp_user_id: "taken" }, "form", "already"],
])("with %j nobody is added, and the form says where it is wrong", async (wrong, field, why) => {
  const hand = await visit();
  expect((await add(hand, { _key: "first", idp_user_id: "taken" })).status).toBe(303);
  const { status, text } = await add(hand, wrong);
  expect(status).toBe(422);
  expect(text).toMatch(new RegExp(`id="${field}-refusal">.*${why}`));
  if (field !== "name") expect(text).toContain('value="Ada &#60;b&#62;"');
  expect(await rowsOf(database.pool, "users", { account_id: hand.account.accountId })).toHaveLength(2);
});

test("who may not act for all users sees none, and adds and disables none", async () => {
  const hand = await visit(["keys:write", "webhooks:read"]);
  const { base, account } = hand;
  expect((await hand.get(`${base}/keys`)).text).not.toContain("/keys/users");
  for (const path of ["/keys/users", "/keys/users/new", `/keys/users/${account.userId}/disable`]) {
    expect([path, (await hand.get(base + path)).status]).toEqual([path, 403]);
  }
  expect((await add(hand)).status).toBe(403);
  expect((await hand.post(`${base}/keys/users/${account.userId}/disable`, { _key: "d" })).status).toBe(403);
  expect((await hand.get(`${base}/keys/new?user=${account.userId}`)).status).toBe(403);
  expect(
    (
      await hand.post(`${base}/keys/new`, {
        _key: "k",
        name: "theirs",
        scopes: "webhooks:read",
        user_id: account.userId,
      })
    ).status,
  ).toBe(403);
  // A key of another account's user is found by nobody here.
  const other = await visit();
  expect((await other.get(`${other.base}/keys/new?user=${account.userId}`)).status).toBe(404);
  expect((await other.get(`${other.base}/keys/users/${account.userId}/disable`)).status).toBe(404);
});
