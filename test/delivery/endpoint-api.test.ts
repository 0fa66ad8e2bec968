import { beforeEach, describe, expect, test } from "vitest";
import { noteCertificates } from "../../src/delivery/endpoint-health-sql.ts";
import { changeRows, insertRow, publish } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/endpoint";
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

const { database, api } = await openApi();
let account: TestAccount;
beforeEach(async () => {
  const made = await api.newAccount();
  // What is the account's is not for its users.
  account = { ...made, key: made.ownKey };
});

const set = (url: unknown) => api.ask("PUT", path, { ...account, body: { url } });

describe("the endpoint", () => {
  test("is not found until it is set, and again when it is removed", async () => {
    expect((await api.ask("GET", path, account)).status).toBe(404);
    const { status, body } = await set("https://Hooks.Example.com/in");
    expect(status).toBe(200);
    expect(body).toEqual({
      url: "https://hooks.example.com/in",
      created_at: expect.stringMatching(TIME),
      updated_at: expect.stringMatching(TIME),
      paused_at: null,
      held: 0,
      payload: "full",
      forget_after_success: false,
      signature_schemes: ["extract"],
      headers: [],
      certificate_expires_at: null,
      certificate_first_seen_at: null,
    });
    expect(await api.ask("GET", path, account)).toMatchObject({ status: 200, body });

    const removed = await api.ask("DELETE", path, account);
    expect([removed.status, removed.bytes.length]).toEqual([204, 0]);
    expect((await api.ask("GET", path, account)).status).toBe(404);
    expect((await api.ask("DELETE", path, account)).status).toBe(404);
  });

  test("is changed only if it is as it was expected to be, where somebody says so", async () => {
    const url = "https://hooks.example.com/";
    const change = async (expected_updated_at: unknown, more = {}) => {
      const body = { url, expected_updated_at, ...more };
      const answer = await api.ask("PUT", path, { ...account, body });
      return answer.status === 200 ? answer.body.updated_at : [answer.status, answer.body.code];
    };
    const REFUSED = [409, "endpoint_changed"];
    expect(await change("2026-11-22T10:00:00.000Z")).toEqual(REFUSED);
    const first = (await set(url)).body.updated_at;
    const headers = (name: string) => ({ headers: [{ name, value: "one", secret: false }] });
    const second = await change(first, headers("x-one"));
    expect(await change(first, headers("x-two"))).toEqual(REFUSED);
    expect((await api.ask("GET", path, account)).body.headers).toMatchObject([{ name: "x-one" }]);
    // Two within a millisecond, or a clock that was set back: it is another one all the same.
    await changeRows(
      database.pool,
      "endpoints",
      { account_id: account.accountId },
      { updated_at: "2999-01-01" },
    );
    const third = await change("2999-01-01T00:00:00.000Z");
    expect(third).toBe("2999-01-01T00:00:00.001Z");
    expect([second, third].every((text) => TIME.test(String(text)))).toBe(true);
  });

  test("tells of the certificate that deliveries have seen there, not of that of a host before", async () => {
    await set("https://hooks.example.com:8443/in");
    const [expires, firstSeen] = ["2026-12-01T00:00:00.000Z", "2020-09-02T10:00:00.000Z"];
    await insertRow(database.pool, "endpoint_certificates", {
      account_id: account.accountId,
      host: "hooks.example.com",
      ends_at: expires,
      seen_at: firstSeen,
    });
    const told = async () => {
      const { body } = await api.ask("GET", path, account);
      return [body.certificate_expires_at, body.certificate_first_seen_at];
    };
    expect(await told()).toEqual([null, null]);
    await set("https://hooks.example.com/in");
    expect(await told()).toEqual([expires, firstSeen]);
    const see = (expiresAtMs: number) =>
      noteCertificates(database.pool, [
        { accountId: account.accountId, host: "hooks.example.com", expiresAtMs },
      ]);
    await see(Date.parse(expires));
    expect(await told()).toEqual([expires, firstSeen]);
    await see(Date.parse("2027-03-01"));
    const [renewed, seenNow] = await told();
    expect(renewed).toBe("2027-03-01T00:00:00.000Z");
    expect(Date.parse(String(seenNow))).toBeGreaterThan(Date.parse(firstSeen));
  });

  test("is changed in place", async () => {
    const first = await set("https://hooks.example.com/1");
    // Both may be of one millisecond.
    const before = new Date(Date.parse(String(first.body.updated_at)) - 1);
    await changeRows(database.pool, "endpoints", { account_id: account.accountId }, { updated_at: before });
    const second = await set("https://hooks.example.com/2");
    expect(second.body).toMatchObject({
      url: "https://hooks.example.com/2",
      created_at: first.body.created_at,
    });
    expect(Date.parse(String(second.body.updated_at))).toBeGreaterThan(before.getTime());
  });

  test.each([
    ["http://hooks.example.com/", /https/],
    ["https://localhost/", /./],
    ["https://10.0.0.1/", /public/],
    ["https://hooks.example.com:22/", /port/i],
    ["", /./],
  ])("cannot be %s", async (url, message) => {
    const refused = await set(url);
    expect([refused.status, refused.body.code]).toEqual([422, "target_refused"]);
    expect(refused.body.errors).toEqual([{ path: "body.url", message: expect.stringMatching(message) }]);
    expect((await api.ask("GET", path, account)).status).toBe(404);
  });

  test.each([[7], [null], [undefined]])("cannot be %s either", async (url) => {
    const refused = await set(url);
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
    expect(refused.body.errors).toMatchObject([{ path: "body.url" }]);
  });

  test("is where analyses without a URL go", async () => {
    await set("https://hooks.example.com/in");
    const body = { analysis: { id: "e-1", status: "failed" } };
    const published = await api.ask("POST", "/v1/analyses", { ...account, body });
    const delivery = await api.ask("GET", `/v1/webhooks/deliveries/${published.body.delivery_id}`, account);
    expect(delivery.body).toMatchObject({ status: "pending", target_source: null });
  });
});

describe("pausing the endpoint", () => {
  const post = (what: "pause" | "resume") => api.ask("POST", `${path}/${what}`, account);
  const publishOne = (id: string) =>
    publish(database.pool, account.accountId, `{"id":"${id}","status":"succeeded"}`);
  const read = async (id: string) => (await api.ask("GET", `/v1/webhooks/deliveries/${id}`, account)).body;

  test("is not found without one", async () => {
    expect([(await post("pause")).status, (await post("resume")).status]).toEqual([404, 404]);
  });

  test("shows since when, and how many are held; the log says so of each", async () => {
    await set("https://hooks.example.com/in");
    const before = await publishOne("p-1");
    const paused = await post("pause");
    expect(paused).toMatchObject({
      status: 200,
      body: { url: "https://hooks.example.com/in", paused_at: expect.stringMatching(TIME), held: 1 },
    });
    const during = await publishOne("p-2");
    expect((await post("pause")).body).toEqual({ ...paused.body, held: 2 });
    expect((await api.ask("GET", path, account)).body).toEqual({ ...paused.body, held: 2 });
    for (const id of [before, during]) {
      expect(await read(id)).toMatchObject({
        status: "pending",
        reason: null,
        held: true,
        next_attempt_at: null,
        explanation: expect.stringMatching(
          /^The event has not been delivered yet\. It is held because the endpoint/,
        ),
      });
    }
    const { body } = await api.ask("GET", "/v1/webhooks/deliveries", account);
    expect((body.items as { held: boolean }[]).map(({ held }) => held)).toEqual([true, true]);

    expect((await set("https://hooks.example.com/2")).body).toMatchObject({
      url: "https://hooks.example.com/2",
      paused_at: paused.body.paused_at,
    });
    const resumed = await post("resume");
    expect(resumed).toMatchObject({ status: 200, body: { paused_at: null, held: 2 } });
    expect((await post("resume")).body).toEqual(resumed.body);
    expect(await read(await publishOne("p-3"))).toMatchObject({ held: false });
  });

  test("a delivery that failed says what failed, and that it is held", async () => {
    await set("https://hooks.example.com/in");
    const id = await publishOne("p-4");
    await changeRows(
      database.pool,
      "deliveries",
      { id },
      { status: "failed", last_error_code: "status_503", last_status_code: 503, attempts_count: 1 },
    );
    await post("pause");
    expect((await read(id)).explanation).toMatch(
      /^The receiver returned 503.* It is held because(?!.*To retry)/,
    );
    const replayed = await api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`, account);
    expect(replayed).toMatchObject({ status: 202, body: { status: "pending", run: 2, held: true } });
  });
});

describe("a refusal", () => {
  const url = "https://hooks.example.com/in";
  const lift = (more = {}) =>
    api.ask("POST", "/v1/webhooks/refusals/lift", { ...account, body: { url }, ...more });
  const refuse = (refused_at: Date, lifted_at: Date | null) =>
    insertRow(database.pool, "refusals", { account_id: account.accountId, url, refused_at, lifted_at });

  test("is lifted by the account once a day, and keeps checks away until then", async () => {
    expect((await lift()).status).toBe(404);
    await set(url);
    await refuse(new Date(), null);
    const checked = await api.ask("POST", `${path}/check`, account);
    expect([checked.status, checked.body.code]).toEqual([409, "refused_by_receiver"]);
    expect((await lift()).status).toBe(204);
    expect((await lift()).status, "it is lifted").toBe(404);
    const inAMinute = { refused_at: new Date(Date.now() + 60_000) };
    await changeRows(database.pool, "refusals", { account_id: account.accountId }, inAMinute);
    expect((await lift()).body.code).toBe("refused_by_receiver");
    const aDayAgo = { lifted_at: new Date(Date.now() - 86_401_000) };
    await changeRows(database.pool, "refusals", { account_id: account.accountId }, aDayAgo);
    expect((await lift()).status).toBe(204);
  });
});

test("the endpoint is signed as it was said, and always with the service's own header", async () => {
  const url = "https://hooks.example.com/in";
  const put = (signature_schemes?: unknown) =>
    api.ask("PUT", path, { ...account, body: { url, signature_schemes } });
  for (const [schemes, then] of [
    [
      ["extract", "standard"],
      ["extract", "standard"],
    ],
    [undefined, ["extract", "standard"]],
    [["extract"], ["extract"]],
    [
      ["standard", "extract"],
      ["extract", "standard"],
    ],
  ])
    expect((await put(schemes)).body.signature_schemes).toEqual(then);
  for (const wrong of [[], ["standard"], ["extract", "extract"], ["v1"], "extract", null])
    expect((await put(wrong)).body.code, JSON.stringify(wrong)).toBe("invalid_request");
});
