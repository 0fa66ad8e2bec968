import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { endTurn, takeTurn } from "../../src/delivery/receivers-sql.ts";
import type { ReceiverReport } from "../../src/receivers/receiver-check.ts";
import { readChallenge, SIGNATURE_HEADER, verifyWebhook } from "../../src/signing/index.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestDispatcher, targetsEnv } from "../support/dispatching.ts";
import {
  changeRows,
  deleteRows,
  lockTable,
  rowsOf,
  untilSomebodyWaits,
  withoutTable,
} from "../support/installation.ts";
import { type Receiver, type ReceiverHandler, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const TEST = "/v1/webhooks/endpoint/test";
const CHECK = "/v1/webhooks/endpoint/check";

let database: TestDatabase;
let api: TestApi;
let receiver: Receiver;
let account: TestAccount;

const right: ReceiverHandler = ({ body, headers }) => {
  try {
    const input = { rawBody: body, header: headers[SIGNATURE_HEADER], secret: account.secret };
    const challenge = readChallenge(input);
    return challenge === null ? verifyWebhook(input) && { status: 204 } : { body: challenge };
  } catch {
    return { status: 400 };
  }
};
let handler = right;

beforeAll(async () => {
  database = await createTestDatabase();
  receiver = await startReceiver({ handler: (request, response) => handler(request, response) });
  api = await startTestApi(database, targetsEnv([receiver]));
});

afterEach(() => {
  receiver.requests.length = 0;
  handler = right;
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
  test("of an account that is erased meanwhile sends nothing, and leaves no row", async () => {
    const { ownKey: key, accountId } = await newAccount();
    const other = await lockTable(database.pool, "signing_secrets");
    const checking = api.ask("POST", CHECK, { key });
    await untilSomebodyWaits(database.pool);
    await changeRows(database.pool, "accounts", { id: accountId }, { erased_at: new Date() });
    await other.commit();
    const { status, body } = await checking;
    expect([status, body.code]).toEqual([401, "unauthorized"]);
    expect(receiver.requests).toEqual([]);
    expect(await rowsOf(database.pool, "audit_log", { account_id: accountId })).toEqual([]);
  });

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

describe.each(["success", "challenge"])("the check of an unproven receiver, consent being %s", (consent) => {
  let strict: TestApi;
  beforeAll(async () => {
    strict = await startTestApi(database, { ...targetsEnv([receiver]), TARGET_CONSENT: consent });
  });
  afterAll(() => strict.close());
  // Nobody else waits at that address.
  afterEach(async () => {
    for (const table of ["receivers", "receiver_addresses"]) await deleteRows(database.pool, table);
  });
  const check = async () => {
    const { status, body } = await strict.ask("POST", CHECK, { key: (await newAccount()).ownKey });
    return { status, report: body as ReceiverReport };
  };
  const events = () => receiver.requests.filter(({ body }) => body.includes('"event":'));

  test("is one POST if it answers 404, and the report says so", async () => {
    handler = () => ({ status: 404 });
    const { status, report: body } = await check();
    expect([status, receiver.requests.length, events().length]).toEqual([
      200,
      1,
      consent === "success" ? 1 : 0,
    ]);
    const codes = body.faults.map(({ code }) => code);
    expect(codes).toEqual([consent === "success" ? "refuses_everything" : "ignores_challenge", "unproven"]);
    expect(body.faults[0]?.message).toContain("404");
    expect([body.verdict, body.probes.length]).toEqual(["faulty", events().length]);
    expect(await provenOf()).toEqual([false]);
  });

  test("goes on with all probes once it is proven", async () => {
    const { status, report: body } = await check();
    expect([status, body.verdict, body.probes.length]).toEqual([200, "right", 14]);
    expect(receiver.requests).toHaveLength(17);
    expect(body.answers_challenge).toBe(true);
    expect(await provenOf()).toEqual([true]);
  });

  test("waits for its turn if that comes soon", async () => {
    const { accountId } = await newAccount();
    await deliveryTurn(accountId);
    await endTurn(database.pool, accountId, receiver.url().origin, false);
    const { status } = await strict.ask("POST", CHECK, { key: account.ownKey });
    expect(status).toBe(200);
    expect(receiver.requests).toHaveLength(17);
  });

  test("sends nothing and says when to come again if a delivery's turn is first", async () => {
    const { accountId } = await newAccount();
    await deliveryTurn(accountId);
    const refused = await strict.ask("POST", CHECK, { key: account.ownKey });
    expect(refused).toMatchObject({ status: 409, body: { code: "receiver_not_proven" } });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(receiver.requests).toEqual([]);
  });

  test("of a host that answers 200 to anything shows whether that is enough", async () => {
    handler = () => ({ status: 200 });
    const { report: body } = await check();
    expect(events()).toHaveLength(consent === "success" ? 16 : 0);
    expect(body.verdict).toBe(consent === "success" ? "dangerous" : "faulty");
    expect(await provenOf()).toEqual([consent === "success"]);
  });

  async function deliveryTurn(accountId: string) {
    const turn = { accountId, origin: receiver.url().origin, address: "127.0.0.1", leaseMs: 60_000 };
    await takeTurn(database.pool, { ...turn, isFirst: true, isFurther: false });
  }
  async function provenOf() {
    const rows = await rowsOf(database.pool, "receivers", { account_id: account.accountId });
    return rows.map(({ proven_at }) => proven_at !== null);
  }
});
