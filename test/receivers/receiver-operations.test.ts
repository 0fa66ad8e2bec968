import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { SIGNATURE_HEADER, verifyWebhook } from "../../src/signing/index.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestDispatcher, targetsEnv } from "../support/dispatching.ts";
import { rowsOf, withoutTable } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const TEST = "/v1/webhooks/endpoint/test";
const CHECK = "/v1/webhooks/endpoint/check";

let database: TestDatabase;
let api: TestApi;
let receiver: Receiver;
let account: TestAccount;

beforeAll(async () => {
  database = await createTestDatabase();
  receiver = await startReceiver({
    handler: ({ body, headers }) => {
      try {
        verifyWebhook({ rawBody: body, header: headers[SIGNATURE_HEADER], secret: account.secret });
        return { status: 204 };
      } catch {
        return { status: 400 };
      }
    },
  });
  api = await startTestApi(database, targetsEnv([receiver]));
});

afterEach(() => {
  receiver.requests.length = 0;
});

afterAll(async () => {
  await api.close();
  await receiver.close();
  await database.drop();
});

/** A new account, so that no test's check is the second within a minute. */
async function newAccount(url: string | null = receiver.url("/webhooks").href): Promise<TestAccount> {
  account = await api.newAccount();
  if (url !== null) await setEndpoint(database.pool, account.accountId, url);
  return account;
}

describe("a test event", () => {
  test.each(["analysis.succeeded", "analysis.failed"])(
    "of %s arrives, marked as an example",
    async (event) => {
      const { ownKey: key, accountId } = await newAccount();
      const { status, body } = await api.ask("POST", TEST, { key, body: { event } });
      expect(status).toBe(202);
      const dispatcher = startTestDispatcher(database, [receiver]);
      const [request] = await receiver.waitForRequests(1);
      await dispatcher.waitForAttempts(1);
      await dispatcher.stop();
      const arrived = JSON.parse(request!.body.toString());
      expect(arrived).toMatchObject({
        id: body.delivery_id,
        event,
        data: { id: body.analysis_id, example: true },
      });

      const delivery = await api.ask("GET", `/v1/webhooks/deliveries/${body.delivery_id}`, { key });
      expect(delivery.body).toMatchObject({ status: "succeeded", event, analysis_id: body.analysis_id });
      expect(delivery.body.explanation).toMatch(/^This is a test event/);
      const analysis = await api.ask("GET", `/v1/analyses/${body.analysis_id}`, { key });
      expect(analysis.body).toEqual(arrived.data);
      expect(await rowsOf(database.pool, "deliveries", { account_id: accountId })).toMatchObject([
        { is_example: true },
      ]);
    },
  );

  test("is of a success unless another is asked for, and each is a new one", async () => {
    const { ownKey: key } = await newAccount();
    const [one, other] = [
      await api.ask("POST", TEST, { key }),
      await api.ask("POST", TEST, { key, body: {} }),
    ];
    expect([one.status, other.status]).toEqual([202, 202]);
    expect(one.body.analysis_id).not.toBe(other.body.analysis_id);
    const analysis = await api.ask("GET", `/v1/analyses/${one.body.analysis_id}`, { key });
    expect(analysis.body).toMatchObject({ status: "succeeded", example: true });
  });

  test("needs an endpoint, and an event that there is", async () => {
    const { ownKey: key } = await newAccount(null);
    expect(await api.ask("POST", TEST, { key })).toMatchObject({ status: 404 });
    const wrong = await api.ask("POST", TEST, { key, body: { event: "analysis.begun" } });
    expect(wrong.body).toMatchObject({ code: "invalid_request", errors: [{ path: "body.event" }] });
  });
});

describe("the receiver check", () => {
  test("reports on the account's endpoint, and leaves an audit row and nothing in the log", async () => {
    const { ownKey: key, accountId } = await newAccount();
    const { status, body } = await api.ask("POST", CHECK, { key });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      url: receiver.url("/webhooks").href,
      verdict: "right",
      faults: [],
      connection: { protocol: "HTTP/1.1", tls_version: "TLSv1.3", certificate_days_left: 364 },
    });
    expect(body.probes).toHaveLength(14);
    expect(JSON.stringify(body)).not.toContain(account.secret);
    const audit = await rowsOf(database.pool, "audit_log", { account_id: accountId });
    const details = { url: receiver.url("/webhooks").href };
    expect(audit).toMatchObject([{ operation_key: "webhooks.endpoint.check", details }]);
    expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).body.total).toBe(0);
  });

  test("is had once a minute for each account, and a repeat of the request is no second one", async () => {
    const { ownKey: key } = await newAccount();
    const idempotencyKey = "check-once";
    const first = await api.ask("POST", CHECK, { key, idempotencyKey });
    const sent = receiver.requests.length;
    const repeated = await api.ask("POST", CHECK, { key, idempotencyKey });
    expect(repeated.bytes.equals(first.bytes)).toBe(true);
    const second = await api.ask("POST", CHECK, { key });
    expect(second).toMatchObject({ status: 429, body: { code: "rate_limited" } });
    const retryAfter = Number(second.headers.get("retry-after"));
    expect(retryAfter).toBeGreaterThan(0);
    expect(retryAfter).toBeLessThanOrEqual(60);
    expect(second.headers.get("ratelimit")).toBe(`"check";r=0;t=${retryAfter}`);
    expect(second.headers.get("ratelimit-policy")).toBe('"check";q=1;w=60');
    expect(receiver.requests).toHaveLength(sent);
    const other = await newAccount();
    expect((await api.ask("POST", CHECK, { key: other.ownKey })).status).toBe(200);
  });

  test("sends nothing where it cannot be counted", async () => {
    const { ownKey: key } = await newAccount();
    const refused = await withoutTable(database.pool, "rate_limits", () => api.ask("POST", CHECK, { key }));
    expect(refused).toMatchObject({ status: 503, body: { code: "temporarily_unavailable" } });
    expect(receiver.requests).toEqual([]);
  });

  test("sends nothing without an endpoint, or to one that is no longer allowed", async () => {
    const { ownKey: key, accountId } = await newAccount(null);
    expect(await api.ask("POST", CHECK, { key })).toMatchObject({ status: 404 });
    await setEndpoint(database.pool, accountId, "https://10.0.0.1/webhooks");
    const refused = await api.ask("POST", CHECK, { key });
    expect(refused).toMatchObject({ status: 422, body: { code: "target_refused" } });
    expect(receiver.requests).toEqual([]);
  });
});
