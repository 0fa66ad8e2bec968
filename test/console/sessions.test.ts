import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findSessions } from "../../src/accounts/console-sessions-sql.ts";
import { openConsole } from "../../src/app/console-sessions.ts";
import { SESSIONS_MAX } from "../../src/base/model/console.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { enter, newLink, postForm, request, tokenOf } from "../support/console.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;

beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, { CONSOLE_ANCESTORS: "https://app.example.com" });
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const agePast = (sql: string) => database.pool.query(`update sealpost.console_sessions set ${sql}`);

describe("a link", () => {
  test("opens the console once; looking at it uses nothing up", async () => {
    const link = await newLink(api);
    for (const _ of [1, 2])
      expect(await request(api.url, "GET", link.pathname, {})).toMatchObject({ status: 200 });
    const first = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    expect([first.status, first.headers.get("location")]).toEqual([
      303,
      `/console/a/${api.account.accountId}/deliveries`,
    ]);
    const second = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    expect(second.status).toBe(403);
    expect(second.text).toContain("This link has been used");
    expect(second.headers.get("set-cookie")).toBeNull();
  });

  test("that is used by many at once lets one of them in", async () => {
    const link = await newLink(api);
    const all = await Promise.all(
      Array.from({ length: 12 }, () => postForm(api.url, "/console/enter", { t: tokenOf(link) })),
    );
    expect(all.filter(({ status }) => status === 303)).toHaveLength(1);
  });

  test("is expired after a minute", async () => {
    const link = await newLink(api);
    await agePast("link_expires_at = now() - interval '1 second' where entered_at is null");
    const late = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    expect([late.status, late.text.includes("This link has expired")]).toEqual([403, true]);
  });

  test.each(["", "x", "A".repeat(43)])("that nobody made opens nothing: %j", async (t) => {
    const entered = await postForm(api.url, "/console/enter", { t });
    expect([entered.status, entered.text.includes("This link is not valid")]).toEqual([403, true]);
  });

  test("opens nothing once its key is revoked", async () => {
    const key = await api.newKey(api.account.accountId, ["console:link", "webhooks:read"]);
    const link = await newLink(api, { key });
    await database.pool.query("update sealpost.api_keys set revoked_at = now() where digest = $1", [
      digestSecret(key),
    ]);
    const entered = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    expect([entered.status, entered.headers.get("set-cookie")]).toEqual([403, null]);
  });

  test.each(["/", "//evil", "/deliveries/", "/../v1", "deliveries"])("leads to no %s", async (path) => {
    const viewer = { id: "u", label: "U" };
    const refused = await api.ask("POST", "/v1/console/links", { body: { viewer, path } });
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
  });

  test("gives no permission that its key lacks, and knows no origin that may not frame it", async () => {
    const key = await api.newKey(api.account.accountId, ["console:link", "webhooks:read"]);
    const viewer = { id: "u", label: "U" };
    const greedy = { viewer, permissions: ["webhooks:read", "webhooks:secrets"] };
    expect(await api.ask("POST", "/v1/console/links", { key, body: greedy })).toMatchObject({
      status: 400,
      body: {
        errors: [{ path: "body.permissions", message: "The key itself does not have webhooks:secrets." }],
      },
    });
    const framed = { viewer, embed_origin: "https://evil.example" };
    expect(await api.ask("POST", "/v1/console/links", { key, body: framed })).toMatchObject({ status: 400 });
  });

  test.each([
    { id: "u\r\nX: 1", label: "U" },
    { id: "u", label: "\u001b]0;U\u0007" },
  ])("is for no viewer whose name is not one line: %j", async (viewer) => {
    const refused = await api.ask("POST", "/v1/console/links", { body: { viewer } });
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
  });

  test("is framed by nobody any more whose origin the operator has removed", async () => {
    const origin = "https://app.example.com";
    const before = await startTestApi(database, { CONSOLE_ANCESTORS: origin });
    const after = await startTestApi(database);
    const hand = await enter(before, { embed_origin: origin });
    const policyOf = async (url: string) => {
      const { headers } = await request(url, "GET", `${hand.base}/deliveries`, { cookie: hand.cookie });
      return headers.get("content-security-policy");
    };
    expect(await policyOf(before.url)).toContain(`frame-ancestors ${origin};`);
    expect(await policyOf(after.url)).toContain("frame-ancestors 'none';");
    await before.close();
    await after.close();
  });

  test("is one too many for an account with 20,000 sessions; ended ones do not count", async () => {
    const { accountId } = api.account;
    const fill = (count: number, expiresIn: string) =>
      database.pool.query(
        `insert into sealpost.console_sessions (account_id, permissions, expires_at)
         select $1, '{}', now() + $3::interval from generate_series(1, $2::integer)`,
        [accountId, count, expiresIn],
      );
    await fill(SESSIONS_MAX, "-1 second");
    await newLink(api);
    await fill(SESSIONS_MAX - 1, "1 hour");
    const body = { viewer: { id: "u", label: "U" } };
    expect(await api.ask("POST", "/v1/console/links", { body })).toMatchObject({
      status: 409,
      body: { code: "too_many_sessions" },
    });
    await database.pool.query(
      "update sealpost.console_sessions set revoked_at = now() where permissions = '{}' and expires_at > now()",
    );
    await newLink(api);
    await database.pool.query("delete from sealpost.console_sessions where permissions = '{}'");
    await newLink(api);
  });

  test("is one too many for a user with half of what the account's others leave", async () => {
    const { accountId, key, ownKey } = await api.newAccount();
    const other = await api.newUser(accountId);
    await database.pool.query(
      `insert into sealpost.console_sessions (account_id, key_id, permissions, expires_at)
       select k.account_id, case when n > 1 then k.id end, '{}', now() + interval '1 hour'
       from sealpost.api_keys as k, generate_series(1, $2::integer) as n
       where k.account_id = $1 and k.user_id is not null and k.user_id <> $3`,
      [accountId, SESSIONS_MAX / 2, other.userId],
    );
    const body = { viewer: { id: "u", label: "U" } };
    const ask = (by: string) => api.ask("POST", "/v1/console/links", { key: by, body });
    expect((await ask(key)).status).toBe(201);
    expect(await ask(key)).toMatchObject({ status: 409, body: { code: "too_many_sessions" } });
    expect([(await ask(other.key)).status, (await ask(ownKey)).status]).toEqual([201, 201]);
    await database.pool.query("delete from sealpost.console_sessions where permissions = '{}'");
  });

  test("leaves its token, and the session's secret, in no log and no row", async () => {
    const link = await newLink(api);
    const entered = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    const secret = /=([A-Za-z0-9_-]{43});/.exec(entered.headers.get("set-cookie")!)![1]!;
    const { rows } = await database.pool.query(
      "select row_to_json(s)::text as row from sealpost.console_sessions s",
    );
    const kept = JSON.stringify([api.log, rows]);
    expect(kept).not.toContain(tokenOf(link));
    expect(kept).not.toContain(secret);
  });
});

describe("a session", () => {
  test("has a cookie that scripts and other sites do not get", async () => {
    const link = await newLink(api);
    const { headers } = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    const name = `__Host-sp-${api.account.accountId.slice(-12)}`;
    expect(headers.get("set-cookie")).toMatch(
      new RegExp(`^${name}=[A-Za-z0-9_-]{43}; Path=/; HttpOnly; Secure; SameSite=Strict$`),
    );
  });

  test("in a frame of another site has a cookie of that site's own", async () => {
    const link = await newLink(api, { embed_origin: "https://app.example.com" });
    const { headers } = await postForm(api.url, "/console/enter", { t: tokenOf(link) });
    expect(headers.get("set-cookie")).toMatch(
      /; HttpOnly; Secure; Partitioned; SameSite=None$|; HttpOnly; Secure; SameSite=None; Partitioned$/,
    );
    const hand = await enter(api, { embed_origin: "https://app.example.com" });
    const page = await hand.get(`${hand.base}/deliveries`);
    expect(page.headers.get("content-security-policy")).toContain("frame-ancestors https://app.example.com;");
  });

  test("shows its pages under a strict policy, framed by nobody", async () => {
    const hand = await enter(api);
    const { status, headers } = await hand.get(`${hand.base}/deliveries`);
    expect(status).toBe(200);
    expect(headers.get("content-security-policy")).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
        "trusted-types sealpost",
    );
    expect(headers.get("cache-control")).toBe("no-store");
    expect(headers.get("referrer-policy")).toBe("same-origin");
  });

  test("is for its account: another account's path answers as without one", async () => {
    const other = await api.newAccount();
    const hand = await enter(api);
    for (const id of [other.accountId, "x", `${"0".repeat(24)}${api.account.accountId.slice(-12)}`]) {
      expect(await hand.get(`/console/a/${id}/deliveries`)).toMatchObject({ status: 401 });
    }
    // Even under the other's name.
    const cookie = hand.cookie.replace(/^[^=]+/, `__Host-sp-${other.accountId.slice(-12)}`);
    expect(
      await request(api.url, "GET", `/console/a/${other.accountId}/deliveries`, { cookie }),
    ).toMatchObject({
      status: 401,
    });
  });

  test.each([
    ["its time is over", "expires_at = now()"],
    ["it is revoked", "revoked_at = now()"],
  ])("ends when %s", async (_, sql) => {
    const hand = await enter(api);
    await agePast(`${sql} where revoked_at is null`);
    const page = await hand.get(`${hand.base}/deliveries`);
    expect([page.status, page.text.includes("This session has ended")]).toEqual([401, true]);
  });

  test("ends when the key that opened it is revoked, and loses what that key loses", async () => {
    const key = await api.newKey(api.account.accountId);
    const viewer = { id: "revoked", label: "Sam" };
    const hand = await enter(api, { key, viewer, permissions: ["webhooks:read", "webhooks:replay"] });
    const id = await newestKeyId();
    await database.pool.query("update sealpost.api_keys set scopes = '{webhooks:replay}' where id = $1", [
      id,
    ]);
    expect(await hand.get(`${hand.base}/deliveries`)).toMatchObject({ status: 403 });
    await database.pool.query("update sealpost.api_keys set revoked_at = now() where id = $1", [id]);
    expect(await hand.get(`${hand.base}/deliveries`)).toMatchObject({ status: 401 });
    const listed = await api.ask("GET", "/v1/console/sessions?viewer_id=revoked");
    expect(listed.body).toMatchObject({ total: 0, items: [] });
  });

  test("ends by its holder, and by whoever opened it", async () => {
    const hand = await enter(api);
    expect(await hand.post(`${hand.base}/leave`)).toMatchObject({ status: 303 });
    expect(await hand.get(`${hand.base}/deliveries`)).toMatchObject({ status: 401 });
    const [one, other] = [
      await enter(api, { viewer: { id: "one", label: "One" } }),
      await enter(api, { viewer: { id: "other", label: "Other" } }),
    ];
    const revoked = await api.ask("POST", "/v1/console/sessions/revoke", { body: { viewer_id: "one" } });
    expect(revoked.status).toBe(204);
    expect(await one.get(`${one.base}/deliveries`)).toMatchObject({ status: 401 });
    expect(await other.get(`${other.base}/deliveries`)).toMatchObject({ status: 200 });
    const listed = await api.ask("GET", "/v1/console/sessions?viewer_id=other");
    expect(listed.body).toMatchObject({ total: 1, items: [{ viewer: { id: "other", label: "Other" } }] });
  });

  test("of a key that acts for a user is listed and ended by that user's keys, and by the account's", async () => {
    const other = await api.newUser(api.account.accountId);
    const { ownKey, key: userKey, accountId } = api.account;
    const path = "/v1/console/sessions";
    const keys = { ownKey, userKey, otherKey: other.key };
    const viewers = async (key: string) => {
      const { items } = (await api.ask("GET", path, { key })).body as { items: { viewer: { id: string } }[] };
      return items.map(({ viewer: { id } }) => id).filter((id) => id.endsWith("-of-users"));
    };
    const enterWith = (who: keyof typeof keys) =>
      enter(api, { key: keys[who], viewer: { id: `${who}-of-users`, label: "Ada" } });
    const [byOwn, byUser, byOther] = [
      await enterWith("ownKey"),
      await enterWith("userKey"),
      await enterWith("otherKey"),
    ];
    const all = ["otherKey", "userKey", "ownKey"].map((who) => `${who}-of-users`);
    expect(await viewers(ownKey)).toEqual(all);
    expect(await viewers(userKey)).toEqual(["userKey-of-users"]);
    const open = async () =>
      (await Promise.all([byOwn, byUser, byOther].map(({ get, base }) => get(`${base}/deliveries`)))).map(
        ({ status }) => status,
      );
    expect(await open()).toEqual([200, 200, 200]);
    const { rows } = await database.pool.query(
      "select id from sealpost.console_sessions where account_id = $1 and viewer_id = 'ownKey-of-users'",
      [accountId],
    );
    for (const body of [{ session_id: rows[0].id }, { viewer_id: "otherKey-of-users" }])
      expect((await api.ask("POST", `${path}/revoke`, { key: userKey, body })).status).toBe(204);
    expect(await open()).toEqual([200, 200, 200]);
    expect((await api.ask("POST", `${path}/revoke`, { key: userKey })).status).toBe(204);
    expect(await open()).toEqual([200, 401, 200]);
    expect((await api.ask("POST", `${path}/revoke`, { key: ownKey })).status).toBe(204);
    expect(await open()).toEqual([401, 401, 401]);
  });

  test("acts for the user of its key, and shows nothing of what is the account's", async () => {
    const { key, accountId, userId } = api.account;
    const { cookie, get, base } = await enter(api, { key, permissions: ["webhooks:read"] });
    const digest = digestSecret(cookie.split("=")[1]!).toString("hex");
    expect((await findSessions(database.pool, [digest])).get(digest)).toMatchObject({ accountId, userId });
    expect((await get(`${base}/audit`)).status).toBe(403);
    for (const permission of ["audit:read", "webhooks:write", "webhooks:secrets"]) {
      const asked = { key, body: { viewer: { id: "u", label: "U" }, permissions: [permission] } };
      expect((await api.ask("POST", "/v1/console/links", asked)).status).toBe(400);
    }
  });

  test("that the command line opened may do everything, and the audit log says who it was", async () => {
    const { url } = await openConsole(database.pool, api.account.accountId, {
      publicUrl: "https://api.sealpost.test",
      linkSeconds: 60,
    });
    const entered = await postForm(api.url, "/console/enter", { t: tokenOf(new URL(url)) });
    const cookie = entered.headers.get("set-cookie")!.split(";")[0]!;
    const base = `/console/a/${api.account.accountId}`;
    expect(await request(api.url, "GET", `${base}/deliveries`, { cookie })).toMatchObject({ status: 200 });
    const deliveryId = (
      await api.ask("POST", "/v1/analyses", { body: { analysis: { id: "cl", status: "failed" } } })
    ).body.delivery_id;
    const form = { _key: "k-1" };
    const replayed = await postForm(api.url, `${base}/deliveries/${deliveryId}/replay`, form, { cookie });
    expect(replayed.status).toBe(303);
    const { body } = await api.ask("GET", "/v1/audit?limit=1");
    expect(body.items).toMatchObject([
      {
        operation: "webhooks.deliveries.replay",
        actor: { kind: "command_line", key_id: null, viewer: "command line" },
      },
    ]);
  });

  test("opens nothing under /v1", async () => {
    const hand = await enter(api);
    expect(await hand.get("/v1/webhooks/deliveries")).toMatchObject({ status: 401 });
  });

  test("has a limit of its own", async () => {
    const limited = await startTestApi(database, { RATE_LIMIT_REQUESTS: "150" });
    const [hand, neighbour] = [await enter(limited), await enter(limited)];
    const statuses: number[] = [];
    for (let n = 0; n < 151; n++) statuses.push((await hand.get(`${hand.base}/deliveries`)).status);
    expect([statuses.indexOf(429), new Set(statuses.slice(0, 150))]).toEqual([150, new Set([200])]);
    expect(await neighbour.get(`${neighbour.base}/deliveries`)).toMatchObject({ status: 200 });
    await limited.close();
  });
});

describe("a POST", () => {
  test.each([
    ["another site", { "sec-fetch-site": "cross-site" }],
    ["a sibling origin", { "sec-fetch-site": "same-site" }],
    ["an address bar", { "sec-fetch-site": "none" }],
    ["an old browser at another site", { "sec-fetch-site": "", origin: "https://evil.example" }],
  ])("from %s is refused", async (_, headers) => {
    const hand = await enter(api);
    expect(await hand.post(`${hand.base}/leave`, {}, headers)).toMatchObject({ status: 403 });
    expect(await hand.get(`${hand.base}/deliveries`)).toMatchObject({ status: 200 });
  });

  test("of an old browser is known by its Origin", async () => {
    const hand = await enter(api);
    const headers = { cookie: hand.cookie, "content-type": "application/x-www-form-urlencoded" };
    const post = (origin: string) =>
      request(api.url, "POST", `${hand.base}/leave`, { ...headers, origin }, "");
    expect(await post("https://api.sealpost.test.evil.example")).toMatchObject({ status: 403 });
    expect(await post("https://api.sealpost.test")).toMatchObject({ status: 303 });
  });
});

async function newestKeyId(): Promise<string> {
  const { rows } = await database.pool.query("select id from sealpost.api_keys order by id desc limit 1");
  return rows[0].id;
}
