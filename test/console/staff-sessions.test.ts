import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { digestSecret } from "../../src/http/api-keys.ts";
import { enter, postForm, request } from "../support/console.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import {
  ASSERTION_HEADER,
  enterAsStaff,
  type StaffProxy,
  signIn,
  startStaffProxy,
} from "../support/staff.ts";

const FRONT = "/console/staff";

let database: TestDatabase;
let proxy: StaffProxy;
let api: TestApi;
let key: string;
let acme: TestAccount;
beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startStaffProxy();
  api = await startTestApi(database, { ...proxy.env, CONSOLE_ANCESTORS: "https://app.example.com" });
  key = await api.newKey(null);
  acme = await api.newAccount();
  await layDeliveries(database, acme.accountId, { abandoned: 2, failed: 0, succeeded: 0, pending: 0 });
});
afterAll(async () => {
  await api.close();
  await proxy.close();
  await database.drop();
});

const agePast = (sql: string) => database.pool.query(`update sealpost.console_sessions set ${sql}`);
const accountPath = () => `${FRONT}/a/${acme.accountId}`;
const assertion = async (text: Promise<string>) => ({ [ASSERTION_HEADER]: await text });

describe("a staff key", () => {
  test("opens a session that no page can frame, whose cookie no script and no other site gets", async () => {
    const entered = await signIn(api, { key });
    expect([entered.status, entered.headers.get("location")]).toEqual([303, FRONT]);
    expect(entered.headers.get("set-cookie")).toMatch(
      /^__Host-sp-staff=[\w-]{43}; Path=\/; HttpOnly; Secure; SameSite=Strict$/,
    );
    const { cookie } = entered;
    for (const path of [FRONT, `${accountPath()}/deliveries`, `${FRONT}/audit`]) {
      const page = await request(api.url, "GET", path, { cookie });
      expect([path, page.status]).toEqual([path, 200]);
      expect(page.headers.get("content-security-policy")).toContain("frame-ancestors 'none'");
      expect(page.headers.get("cache-control")).toBe("no-store");
      expect(page.text).not.toContain(key);
    }
    expect(JSON.stringify(api.log)).not.toContain(key);
  });

  test("that is none, not staff's, revoked, or may not read across accounts, opens nothing, all alike", async () => {
    const revoked = await api.newKey(null);
    await database.pool.query("update sealpost.api_keys set revoked_at = now() where digest = $1", [
      digestSecret(revoked),
    ]);
    const noScope = await api.newKey(null, ["webhooks:read", "audit:read"]);
    const keys = [
      "",
      "x",
      `svc_test_${"A".repeat(43)}`,
      acme.key,
      revoked,
      noScope,
      `${key} x`,
      "y".repeat(10_000),
    ];
    const refused = await Promise.all(keys.map((one) => signIn(api, { key: one })));
    for (const [index, { status, text, cookie }] of refused.entries()) {
      expect([index, status, cookie, text]).toEqual([index, 403, "", refused[0]!.text]);
    }
    expect(refused[0]!.text).toContain("This key does not open the support pages.");
  });

  test("is tried no more often than an API key that is not valid", async () => {
    const limited = await startTestApi(database, { RATE_LIMIT_REQUESTS: "5" });
    await database.pool.query("delete from sealpost.rate_limits");
    const statuses: number[] = [];
    for (let n = 0; n < 7; n++) statuses.push((await signIn(limited, { key: "wrong" })).status);
    expect(statuses).toEqual([403, 403, 403, 403, 403, 429, 429]);
    expect(await limited.ask("GET", "/v1/operations", { key: "wrong" })).toMatchObject({ status: 429 });
    await limited.close();
  });

  test("ends its sessions when it is revoked", async () => {
    const mine = await api.newKey(null);
    const hand = await enterAsStaff(api, { key: mine });
    expect(await hand.get(FRONT)).toMatchObject({ status: 200 });
    await database.pool.query("update sealpost.api_keys set revoked_at = now() where digest = $1", [
      digestSecret(mine),
    ]);
    const ended = await hand.get(`${accountPath()}/deliveries`);
    expect(ended.status).toBe(401);
    expect(ended.text).toContain("Sign in to support");
    expect(ended.text).toContain(`value="${accountPath()}/deliveries"`);
  });
});

describe("a session of staff", () => {
  test("is idle after 30 minutes, which refreshing does not put off, and over after 8 hours", async () => {
    const hand = await enterAsStaff(api, { key });
    const refresh = { "x-refresh": "1" };
    await agePast("last_active_at = now() - interval '29 minutes'");
    expect(await hand.get(FRONT, refresh)).toMatchObject({ status: 200 });
    await agePast("last_active_at = last_active_at - interval '2 minutes'");
    expect(await hand.get(FRONT, refresh)).toMatchObject({ status: 401 });
    const busy = await enterAsStaff(api, { key });
    const { rows } = await database.pool.query(
      "select max(expires_at - entered_at) = interval '8 hours' as is_day from sealpost.console_sessions",
    );
    expect(rows).toEqual([{ is_day: true }]);
    await agePast("expires_at = now()");
    expect(await busy.get(FRONT)).toMatchObject({ status: 401 });
  });

  test("is put off by use", async () => {
    const hand = await enterAsStaff(api, { key });
    await agePast("last_active_at = now() - interval '29 minutes'");
    expect(await hand.get(FRONT)).toMatchObject({ status: 200 });
    await expect
      .poll(async () => {
        const { rows } = await database.pool.query(
          "select max(last_active_at) > now() - interval '1 minute' as is_fresh from sealpost.console_sessions",
        );
        return rows[0].is_fresh;
      })
      .toBe(true);
  });

  test("knows accounts by their ids, opens no account's console, and nothing under /v1", async () => {
    const hand = await enterAsStaff(api, { key });
    const nobody = "01900000-0000-7000-8000-000000000000";
    for (const id of [nobody, "x", `${acme.accountId}x`, "%00"]) {
      const page = await hand.get(`${FRONT}/a/${id}/deliveries`);
      expect([id, page.status, page.text.includes("Sign out")]).toEqual([id, 404, true]);
    }
    expect(await hand.get(`/console/a/${acme.accountId}/deliveries`)).toMatchObject({ status: 401 });
    expect(await hand.get("/v1/accounts")).toMatchObject({ status: 401 });
  });

  test("does what its key may, and nothing else; a forged form is refused", async () => {
    const reader = await api.newKey(null, ["staff:read", "webhooks:read"]);
    const hand = await enterAsStaff(api, { key: reader });
    const page = await hand.get(FRONT);
    expect([page.text.includes("Replay…"), page.text.includes("Recent actions")]).toEqual([false, false]);
    expect(await hand.get(`${FRONT}/audit`)).toMatchObject({ status: 403 });
    const form = { _key: "k", _matched: "2", status: "abandoned" };
    expect(await hand.post(`${accountPath()}/replays`, form)).toMatchObject({ status: 403 });
    const sibling = { "sec-fetch-site": "same-site" };
    expect(await hand.post(`${FRONT}/leave`, {}, sibling)).toMatchObject({ status: 403 });
    expect(await signIn(api, { key }, sibling)).toMatchObject({ status: 403, cookie: "" });
  });

  test("ends when somebody signs out", async () => {
    const hand = await enterAsStaff(api, { key });
    expect((await hand.post(`${FRONT}/leave`)).headers.get("location")).toBe(FRONT);
    expect(await hand.get(FRONT)).toMatchObject({ status: 401 });
  });

  test("is nobody else's, whatever the cookie is called", async () => {
    const [viewer, hand] = [await enter(api, { key: acme.ownKey }), await enterAsStaff(api, { key })];
    const renamed = (cookie: string, name: string) => `${name}=${cookie.split("=")[1]}`;
    const get = (path: string, cookie: string) => request(api.url, "GET", path, { cookie });
    expect(await get(FRONT, renamed(viewer.cookie, "__Host-sp-staff"))).toMatchObject({ status: 401 });
    expect(await get(FRONT, viewer.cookie)).toMatchObject({ status: 401 });
    for (const id of [acme.accountId, "staff"]) {
      const cookie = renamed(hand.cookie, `__Host-sp-${id.slice(-12)}`);
      expect(await get(`/console/a/${id}/deliveries`, cookie)).toMatchObject({ status: 401 });
    }
  });

  test("goes on where somebody wanted to go, and nowhere else", async () => {
    const to = `${FRONT}/audit?actor=staff`;
    expect((await signIn(api, { key, to })).headers.get("location")).toBe(to);
    for (const away of [
      "//evil.example",
      "https://evil.example/console/staff",
      "/console/staff.evil",
      "/v1/x",
    ])
      expect((await signIn(api, { key, to: away })).headers.get("location")).toBe(FRONT);
  });
});

describe("an assertion of the proxy in front", () => {
  afterEach(() => proxy.answerWith(null));

  test("opens a session of that person, who stands in the audit log", async () => {
    const headers = await assertion(proxy.assert());
    const asked = await request(api.url, "GET", FRONT, headers);
    expect([asked.status, asked.text.includes("Continue as Sam Support")]).toEqual([401, true]);
    const hand = await enterAsStaff(api, {}, headers);
    expect((await hand.get(FRONT)).text).toContain("Sam Support");
    const signedIn = await api.ask("GET", "/v1/accounts/audit?operation=console.staff.sign_in&limit=1", {
      key,
    });
    const sam = { kind: "staff", key_id: null, viewer: "Sam Support" };
    expect(signedIn.body.items).toMatchObject([{ account: null, actor: sam }]);
    const form = {
      _key: "p-1",
      _matched: "2",
      _counted: "?status=abandoned",
      status: "abandoned",
      note: "INC-7",
    };
    const made = await hand.post(`${accountPath()}/replays`, { ...form, rate_per_second: "10" });
    expect([made.status, made.headers.get("location")]).toEqual([303, expect.stringContaining("queued=1")]);
    const { body } = await api.ask("GET", "/v1/accounts/audit?limit=1", { key });
    expect(body.items).toMatchObject([
      {
        operation: "webhooks.replays.create",
        actor: { kind: "staff", key_id: null, viewer: "Sam Support" },
        details: { note: "INC-7" },
      },
    ]);
    const replays = await api.ask("GET", "/v1/webhooks/replays", { key: acme.ownKey });
    expect(replays.body.items).toMatchObject([
      { created_by: { staff: true, key_id: null, name: null, viewer: null } },
    ]);
    expect((await hand.get(FRONT)).text).toContain("Sam Support");
  });

  test("is needed for every request, of the same person, who may do what it says", async () => {
    const headers = await assertion(proxy.assert());
    const hand = await enterAsStaff(api, {}, headers);
    const { cookie } = hand;
    const get = async (members: Record<string, unknown>) =>
      await request(api.url, "GET", `${FRONT}/audit`, {
        cookie,
        ...(await assertion(proxy.assert(members))),
      });
    expect(await request(api.url, "GET", FRONT, { cookie })).toMatchObject({ status: 401 });
    expect(await get({ sub: "u-8" })).toMatchObject({ status: 401 });
    expect(await get({ groups: ["leads"] })).toMatchObject({ status: 403 });
    expect(await get({ groups: [] })).toMatchObject({ status: 401 });
    expect(await get({})).toMatchObject({ status: 200 });
  });

  const soon = () => Math.floor(Date.now() / 1_000);
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  test.each<[string, () => Promise<string> | string]>([
    ["signed by another key", () => proxy.forge()],
    ["of another issuer", () => proxy.assert({ iss: "https://evil.example" })],
    ["for another audience", () => proxy.assert({ aud: "other.example.com" })],
    ["that has expired", () => proxy.assert({ exp: soon() - 60 })],
    ["that never expires", () => proxy.assert({ exp: undefined })],
    ["that is not valid yet", () => proxy.assert({ nbf: soon() + 120 })],
    ["of nobody", () => proxy.assert({ sub: "" })],
    ["of a thing", () => proxy.assert({ sub: { a: 1 } as unknown as string })],
    ["of a group that may not", () => proxy.assert({ groups: ["readers"] })],
    ["of no group", () => proxy.assert({ groups: "nobody" })],
    ["without a signature", async () => `${part({ alg: "none" })}.${(await proxy.assert()).split(".")[1]}.`],
    [
      "signed with the public key as a shared one",
      async () => `${part({ alg: "HS256", kid: "k-1" })}.${(await proxy.assert()).split(".")[1]}.AAAA`,
    ],
    ["that is a name", () => "sam@example.com"],
  ])("%s opens nothing", async (_, text) => {
    const headers = { [ASSERTION_HEADER]: await text() };
    expect(await signIn(api, {}, headers)).toMatchObject({ status: 403, cookie: "" });
    const page = await request(api.url, "GET", FRONT, headers);
    expect([page.status, page.text.includes("Continue as")]).toEqual([401, false]);
  });

  test("is not what a header with a name is, signed or not", async () => {
    for (const name of [
      "x-forwarded-user",
      "x-forwarded-email",
      "remote-user",
      "x-goog-authenticated-user-email",
    ]) {
      const headers = { [name]: "sam@example.com" };
      expect(await signIn(api, {}, headers)).toMatchObject({ status: 403, cookie: "" });
    }
  });

  test("is checked with keys that are asked for once", async () => {
    const before = proxy.asked();
    for (let n = 0; n < 5; n++) await request(api.url, "GET", FRONT, await assertion(proxy.assert()));
    expect(proxy.asked()).toBe(before);
  });

  test.each([
    ["do not come", "nothing"],
    ["are no JSON", "<html>"],
    ["are no key set", "{}"],
    ["are too large", `{"keys":[],"more":"${"x".repeat(70_000)}"}`],
  ])("whose keys %s is a 503, and nothing opens", async (_, answer) => {
    const fresh = await startTestApi(database, proxy.env);
    const before = proxy.asked();
    proxy.answerWith(answer);
    const headers = await assertion(proxy.assert());
    const page = await request(fresh.url, "GET", FRONT, headers);
    expect([page.status, page.text.includes("Not available at the moment")]).toEqual([503, true]);
    expect(await signIn(fresh, {}, headers)).toMatchObject({ status: 503, cookie: "" });
    // Whoever comes, however often, causes no more questions and lines for a while.
    const told = () => fresh.log.filter(({ msg }) => msg === "the staff key set cannot be fetched").length;
    expect([proxy.asked() - before, told()]).toEqual([1, 1]);
    proxy.answerWith(null);
    await fresh.close();
  });

  test("of whomever the proxy lets through is enough where that is said", async () => {
    const open = await startTestApi(database, {
      STAFF_JWT: JSON.stringify({ ...JSON.parse(proxy.env.STAFF_JWT!), scopes: { "*": ["staff:read"] } }),
    });
    const headers = await assertion(
      proxy.assert({ groups: undefined, name: undefined, email: "sam@example.com" }),
    );
    const hand = await enterAsStaff(open, {}, headers);
    expect((await hand.get(FRONT)).text).toContain("sam@example.com");
    await open.close();
  });

  test("means nothing where no proxy is configured", async () => {
    const plain = await startTestApi(database);
    expect(await signIn(plain, {}, await assertion(proxy.assert()))).toMatchObject({ status: 403 });
    await plain.close();
  });
});

describe("the file of changes", () => {
  const noteChange = (note: string) =>
    database.pool.query(
      `insert into sealpost.audit_log (account_id, actor, operation_key, details)
       values ($1, 'command_line', 'webhooks.replays.create', jsonb_build_object('note', $2::text, 'matched', 3))`,
      [acme.accountId, note],
    );

  test.each(["=1", "  =1", "\uff1d1", "@sum", "\t=1"])("has no formula of %j", async (note) => {
    await noteChange(note);
    const { text } = await (await enterAsStaff(api, { key })).get(`${FRONT}/audit.csv`);
    expect(text).toContain(`"'${note}"`);
  });

  test.each([
    ["stopped;=1;", "stopped;'=1;"],
    ['stopped; "=1";', `stopped;' ""=1"";`],
    ["stopped\r\n@sum", "stopped\r\n'@sum"],
    ["a-b; c=1, -2", "a-b; c=1, -2"],
  ])("has no formula where semicolons part cells: %j", async (note, safe) => {
    await noteChange(note);
    const { text } = await (await enterAsStaff(api, { key })).get(`${FRONT}/audit.csv`);
    expect(text).toContain(`"${safe}"`);
  });

  test("has who, what, when, whose and why, and no formula", async () => {
    const hand = await enterAsStaff(api, { key });
    await noteChange('=HYPERLINK("x")');
    const file = await hand.get(`${FRONT}/audit.csv`);
    expect(file.headers.get("content-disposition")).toBe('attachment; filename="audit.csv"');
    const [head, newest] = file.text.split("\r\n");
    expect(head).toBe(
      '"at","who","what","account","account_id","note","details","key_id","user_id","request_id"',
    );
    expect(newest).toContain(`"command line","webhooks.replays.create","test","${acme.accountId}"`);
    expect(newest).toContain(`"'=HYPERLINK(""x"")","matched 3"`);
    expect(await postForm(api.url, `${FRONT}/audit.csv`, {})).toMatchObject({ status: 405 });
  });
});
