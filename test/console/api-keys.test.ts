import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openConsole } from "../../src/app/console-sessions.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { enter, type Got, type Hand, postForm, request, tokenOf } from "../support/console.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { rowOf, rowsOf } from "../support/installation.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { enterAsStaff } from "../support/staff.ts";

const PERMISSIONS = ["keys:write", "webhooks:read", "audit:read"];

let database: TestDatabase;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

type Visit = Hand & { readonly account: TestAccount };

async function visit(permissions: readonly string[] = PERMISSIONS, account?: TestAccount): Promise<Visit> {
  const of = account ?? (await api.newAccount());
  return { ...(await enter(api, { key: of.ownKey, permissions })), account: of };
}

const FORM = { _key: "k-1", name: "CI", scopes: "webhooks:read", expires_in_seconds: "2592000" };
const make = (hand: Hand, form: Record<string, string> = {}) =>
  hand.post(`${hand.base}/keys/new`, { ...FORM, ...form });
const keyIn = ({ text }: Got) => /<pre id="api-key">([^<]+)<\/pre>/.exec(text)?.[1] ?? "";
const keysOf = ({ account }: Visit) =>
  rowsOf(database.pool, "api_keys", { account_id: account.accountId, name: "CI" });
const idOf = async (key: string): Promise<string> =>
  (await rowOf(database.pool, "api_keys", { digest: digestSecret(key) })).id;

describe("a new key", () => {
  test("is made once for each form, shown in its answer alone, and works", async () => {
    const hand = await visit();
    const [made, again] = [await make(hand), await make(hand)];
    expect([made.status, made.headers.get("cache-control")]).toEqual([200, "no-store"]);
    const key = keyIn(made);
    expect(made.text).toContain(`data-copy="${key}"`);
    expect(made.text).not.toContain("data-morph");
    expect(keyIn(again)).toBe(key);
    expect(await keysOf(hand)).toMatchObject([{ scopes: ["webhooks:read"], user_id: null }]);
    expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).status).toBe(200);
    expect((await api.ask("GET", "/v1/audit", { key })).status).toBe(403);
    // Sent again with something else in it.
    const other = await make(hand, { name: "CD" });
    expect([other.status, keyIn(other), other.text.includes("send it again")]).toEqual([422, "", true]);
    expect(other.text).toContain('value="CD"');
    expect(await keysOf(hand)).toHaveLength(1);
  });

  test("is in no other page, log line, audit row or stored answer", async () => {
    const hand = await visit();
    const key = keyIn(await make(hand));
    expect(key).toMatch(/^svc_/);
    for (const path of ["/keys", "/keys/new", "/audit", `/keys/${await idOf(key)}/revoke`]) {
      const { status, text } = await hand.get(hand.base + path);
      expect([path, status, text.includes(key)]).toEqual([path, 200, false]);
    }
    const { rows } = await database.pool.query(
      `select to_jsonb(a)::text as text from sealpost.audit_log a union all
       select to_jsonb(i)::text from sealpost.idempotency_keys i union all
       select to_jsonb(k)::text from sealpost.api_keys k union all
       select to_jsonb(s)::text from sealpost.console_sessions s`,
    );
    const everywhere = JSON.stringify([rows, api.log]);
    expect(rows.length).toBeGreaterThan(3);
    for (const text of [key, Buffer.from(key).toString("hex"), Buffer.from(key).toString("base64")]) {
      expect(everywhere).not.toContain(text);
    }
  });

  test("is told of in the changes, with a way to it", async () => {
    const hand = await visit();
    const id = await idOf(keyIn(await make(hand)));
    const { text } = await hand.get(`${hand.base}/audit`);
    expect(text).toContain(`made the API key <a href="${hand.base}/keys#k-${id}">“CI”</a>`);
    expect((await hand.get(`${hand.base}/keys`)).text).toContain(`<tr id="k-${id}">`);
  });

  test("may do no more than the session, whatever is posted, and is offered no more", async () => {
    const hand = await visit();
    const { text } = await hand.get(`${hand.base}/keys/new`);
    const offered = [...text.matchAll(/name="scopes" value="([^"]*)"/g)].map(([, scope]) => scope);
    expect(offered.sort()).toEqual([...PERMISSIONS].sort());
    const refused = await make(hand, { scopes: "webhooks:secrets" });
    expect([refused.status, keyIn(refused)]).toEqual([422, ""]);
    expect(refused.text).toMatch(/<fieldset aria-invalid="true" aria-describedby="scopes-refusal">/);
    expect(await keysOf(hand)).toEqual([]);
  });

  test.each([
    [{ name: "" }, "name", "Must have 1 to 200 characters"],
    [{ name: "a\u0007b" }, "name", "no control characters"],
    [{ scopes: "nothing" }, "scopes", "Must be one of"],
    [{ expires_in_seconds: "0" }, "expires_in_seconds", "at least 1"],
    [{ expires_in_seconds: "soon" }, "expires_in_seconds", "Must be"],
    [{ expires_in_seconds: "99999999999" }, "expires_in_seconds", "at most"],
  ])("with %j is refused at that field, and the rest is kept", async (wrong, field, why) => {
    const hand = await visit();
    const { status, text } = await make(hand, wrong);
    expect(status).toBe(422);
    expect(text).toMatch(new RegExp(`id="${field}-refusal">.*${why}`));
    expect(text.match(/aria-invalid/g)).toHaveLength(1);
    if (field !== "name") expect(text).toContain('value="CI"');
    if (field !== "scopes") expect(text).toContain('value="webhooks:read" checked');
    if (field !== "expires_in_seconds") expect(text).toContain('value="2592000" selected');
    expect(await keysOf(hand)).toEqual([]);
  });

  test("without any scope is refused in words", async () => {
    const hand = await visit();
    const { scopes: _, ...form } = FORM;
    const { status, text } = await hand.post(`${hand.base}/keys/new`, form);
    expect([status, text.includes("Choose at least one.")]).toEqual([422, true]);
  });

  test("cannot outlive the key behind the session, and says so where the time is chosen", async () => {
    const account = await api.newAccount();
    const body = { name: "short", scopes: ["keys:write", "console:link"], expires_in_seconds: 3_600 };
    const { api_key: ownKey } = (await api.ask("POST", "/v1/api-keys", { key: account.ownKey, body })).body;
    const hand = { ...(await enter(api, { key: String(ownKey), permissions: ["keys:write"] })), account };
    const refused = await make(hand, { scopes: "keys:write" });
    expect(refused.status).toBe(422);
    expect(refused.text).toMatch(/id="expires_in_seconds-refusal">.*expires before that/);
    expect((await make(hand, { _key: "b", scopes: "keys:write", expires_in_seconds: "" })).status).toBe(200);
    const [{ expires_at } = {}] = await keysOf(hand);
    expect((expires_at as Date).getTime()).toBe(
      (await rowOf(database.pool, "api_keys", { name: "short" })).expires_at.getTime(),
    );
  });

  test("of a user acts for that user, whose keys alone are listed", async () => {
    const account = await api.newAccount();
    const hand = {
      ...(await enter(api, { key: account.key, permissions: ["keys:write", "webhooks:read"] })),
      account,
    };
    const made = await make(hand);
    expect(made.text).toContain(`<code>${account.userId}</code>`);
    expect(await keysOf(hand)).toMatchObject([{ user_id: account.userId }]);
    const { text } = await hand.get(`${hand.base}/keys`);
    expect(text.match(/<tr id="k-/g)).toHaveLength(2);
    const whole = await visit(PERMISSIONS, account);
    const all = await whole.get(`${whole.base}/keys`);
    expect(all.text.match(/<tr id="k-/g)).toHaveLength(3);
    expect(all.text).toMatch(
      /data-label="Acts for">user <code title="[0-9a-f-]{36}">.*data-label="Acts for">the account/s,
    );
  });
});

describe("a key is revoked", () => {
  test("after a question, once, and is refused from then on", async () => {
    const hand = await visit();
    const key = keyIn(await make(hand));
    const path = `${hand.base}/keys/${await idOf(key)}/revoke`;
    expect((await hand.get(`${hand.base}/keys`)).text).toContain(`href="${path}"`);
    const asked = await hand.get(path);
    expect(asked.text).toMatch(/Revoke this key\?.*CI.*<dd>webhooks:read/s);
    expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).status).toBe(200);
    for (const _ of [1, 2]) {
      const revoked = await hand.post(path, { _key: "r" });
      expect([revoked.status, revoked.headers.get("location")]).toEqual([
        303,
        `${hand.base}/keys?done=revoked`,
      ]);
    }
    expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).status).toBe(401);
    const { text } = await hand.get(`${hand.base}/keys?done=revoked`);
    expect(text).toMatch(/Revoked: whatever uses that key.*revoked<\/span>/s);
    expect(text).not.toContain(`href="${path}"`);
    expect((await hand.get(path)).text).toContain("This key has ended");
    const told = await rowsOf(database.pool, "audit_log", {
      operation_key: "api_keys.revoke",
      account_id: hand.account.accountId,
    });
    expect(told).toHaveLength(1);
  });

  test("unless it may do more than the session", async () => {
    const hand = await visit();
    const path = `${hand.base}/keys/${await idOf(hand.account.ownKey)}/revoke`;
    expect((await hand.get(`${hand.base}/keys`)).text).not.toContain(path);
    const refused = await hand.post(path, { _key: "r" });
    expect([refused.status, refused.text.includes("It may do more than this session")]).toEqual([403, true]);
    expect((await api.ask("GET", "/v1/audit", { key: hand.account.ownKey })).status).toBe(200);
  });

  test("of this account only", async () => {
    const [hand, other] = [await visit(), await visit()];
    const id = await idOf(keyIn(await make(other)));
    for (const path of [`/keys/${id}/revoke`, "/keys/01900000-0000-7000-8000-000000000000/revoke"]) {
      expect(await hand.get(hand.base + path)).toMatchObject({ status: 404 });
      expect(await hand.post(hand.base + path, { _key: "r" })).toMatchObject({ status: 404 });
    }
    expect((await keysOf(other))[0]?.revoked_at).toBeNull();
  });

  test("however many have been made since", { tags: ["slow"] }, async () => {
    const hand = await visit();
    const id = await idOf(keyIn(await make(hand)));
    await database.pool.query(
      `insert into sealpost.api_keys (account_id, digest, class, name, scopes, revoked_at)
       select $1::uuid, sha256(convert_to($1::uuid::text || n, 'UTF8')), 'test', 'old ' || n, '{webhooks:read}', now()
       from generate_series(1, 230) n`,
      [hand.account.accountId],
    );
    expect((await hand.get(`${hand.base}/keys/${id}/revoke`)).text).toContain("<strong>CI</strong>");
    const first = await hand.get(`${hand.base}/keys`);
    const next = /rel="next" href="([^"]*)"/.exec(first.text)![1]!;
    expect((await hand.get(next)).text.match(/<tr id="k-/g)).toHaveLength(50);
  });
});

describe("who may not", () => {
  const PATHS = ["/keys", "/keys/new", "/keys/01900000-0000-7000-8000-000000000000/revoke"];

  test("has no tab, and is refused", async () => {
    const hand = await visit(["webhooks:read", "audit:read"]);
    expect((await hand.get(`${hand.base}/deliveries`)).text).not.toContain(`href="${hand.base}/keys"`);
    for (const path of PATHS) expect([path, (await hand.get(hand.base + path)).status]).toEqual([path, 403]);
    for (const path of PATHS.slice(1))
      expect([path, (await hand.post(hand.base + path, FORM)).status]).toEqual([path, 403]);
    expect(await keysOf(hand)).toEqual([]);
    const keeper = await visit(["webhooks:read", "keys:write"]);
    expect((await keeper.get(`${keeper.base}/deliveries`)).text).toContain(`href="${keeper.base}/keys"`);
  });

  test("comes from elsewhere is refused, and makes none", async () => {
    const hand = await visit();
    for (const site of ["cross-site", "same-site", "none"]) {
      const posted = await hand.post(`${hand.base}/keys/new`, FORM, { "sec-fetch-site": site });
      expect([site, posted.status, keyIn(posted)]).toEqual([site, 403, ""]);
    }
    expect(await keysOf(hand)).toEqual([]);
  });

  test("has no key behind the session is told so, and offered nothing", async () => {
    const { accountId } = await api.newAccount();
    const { url } = await openConsole(database.pool, accountId, { publicUrl: api.url, linkSeconds: 60 });
    const entered = await postForm(api.url, "/console/enter", { t: tokenOf(new URL(url)) });
    const cookie = entered.headers.get("set-cookie")!.split(";")[0]!;
    const base = `/console/a/${accountId}/keys`;
    const { status, text } = await request(api.url, "GET", base, { cookie });
    expect([status, text.includes("No API key opened this session")]).toEqual([200, true]);
    expect(text).not.toMatch(/keys\/new|\/revoke/);
    const posted = await postForm(api.url, `${base}/new`, FORM, { cookie });
    expect([posted.status, keyIn(posted)]).toEqual([403, ""]);
    for (const path of PATHS.slice(1)) {
      expect((await request(api.url, "GET", `/console/a/${accountId}${path}`, { cookie })).status).toBe(403);
    }
  });

  test("is of staff makes keys in the account's name, if the staff key may", async () => {
    const account = await api.newAccount();
    const staff = await enterAsStaff(api, { key: await api.newKey(null) });
    const base = `/console/staff/a/${account.accountId}`;
    const made = await staff.post(`${base}/keys/new`, FORM);
    expect([made.status, keyIn(made)]).toEqual([200, expect.stringMatching(/^svc_/)]);
    expect((await staff.get(`${base}/keys`)).text).toContain("<strong>CI</strong>");
  });
});
