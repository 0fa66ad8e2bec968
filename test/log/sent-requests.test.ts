// What the log says was sent, against what a receiver got.
import { createHmac, randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { challengeBody } from "../../src/delivery/webhook.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { claim, openDispatchPool } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher, unsafeAllowed } from "../support/dispatching.ts";
import { allowTargets, deleteRows, insertRow, publish, rotateSecret } from "../support/installation.ts";
import { type ReceivedRequest, type Receiver, startReceiver } from "../support/receiver.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const UNKNOWN = "01900000-0000-7000-8000-000000000000";
const WEEK_MS = 7 * 86_400_000;
const TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

let database: TestDatabase;
let receiver: Receiver;
let api: TestApi;
let account: TestAccount;
let dispatcher: TestDispatcher;
let clock = () => Date.now();
beforeAll(async () => {
  [database, receiver] = await Promise.all([createTestDatabase(), startReceiver()]);
  const env = { UNSAFE_ALLOWED_TARGETS: unsafeAllowed([receiver]).join(",") };
  await allowTargets(database.pool, unsafeAllowed([receiver]));
  api = await startTestApi(database, env, { now: () => clock() });
  account = api.account;
  dispatcher = startTestDispatcher(database, [receiver], env);
  await api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: receiver.url("/in?x=1").href } });
});
afterAll(async () => {
  await api.close();
  await receiver.close();
  await database.drop();
});

const get = (id: string, more = "", options = {}) =>
  api.ask("GET", `/v1/webhooks/deliveries/${id}${more}`, options);

/** What the receiver got of a new delivery, and what the log says of it. */
async function send(analysis: string, traceparent?: string) {
  const count = receiver.requests.length;
  const attempts = dispatcher.attempts.length;
  const published = await api.ask("POST", "/v1/analyses", {
    body: `{"analysis":${analysis}}`,
    headers: traceparent === undefined ? {} : { traceparent },
  });
  const id = published.body.delivery_id as string;
  await dispatcher.waitForAttempts(attempts + 1);
  const [attempt] = (await get(id)).body.attempts as Json[];
  return {
    id,
    received: receiver.requests[count]!,
    sent: attempt!.request_headers as Record<string, string>,
  };
}

const signatureOf = ({ headers }: ReceivedRequest) => headers["extract-signature"] as string;
const withoutSignatures = (header: string) => header.replaceAll(/v1=[0-9a-f]{64}/g, "v1=…");

describe("the request of an attempt", () => {
  test("has the headers that the receiver got, signatures left out", async () => {
    const { received, sent } = await send('{"id":"s-1","status":"succeeded","é":"\\u00e9 é"}', TRACE);
    expect(sent).toEqual({
      ...received.headers,
      "extract-signature": withoutSignatures(signatureOf(received)),
    });
    expect(sent.traceparent).toMatch(TRACE.slice(0, 35));
    expect(sent["extract-signature"]).toMatch(/^t=\d{10},v1=…$/);
  });

  test("has the signature's time to the second, however often", async () => {
    for (let n = 0; n < 20; n++) {
      const { received, sent } = await send(`{"id":"s-t-${n}","status":"succeeded"}`);
      expect(sent["extract-signature"]).toBe(withoutSignatures(signatureOf(received)));
    }
  });

  test("has two signatures while a rotation's overlap lasts, and its v1 can be computed", async () => {
    const before = await send('{"id":"s-r-1","status":"succeeded"}');
    await rotateSecret(database.pool, account.accountId);
    const { id, received, sent } = await send('{"id":"s-r-2","status":"succeeded"}');
    expect(sent["extract-signature"]).toMatch(/^t=\d{10},v1=…,v1=…$/);
    const old = ((await get(before.id)).body.attempts as Json[])[0]!.request_headers;
    expect(old).toMatchObject({ "extract-signature": expect.stringMatching(/^t=\d{10},v1=…$/) });

    const t = /^t=(\d+)/.exec(sent["extract-signature"]!)![1]!;
    const { bytes } = await get(id, "/body");
    const hmac = createHmac("sha256", account.secret).update(`${t}.`).update(bytes).digest("hex");
    expect(signatureOf(received)).toContain(`,v1=${hmac}`);
  });
});

test("a challenge has its own length, and where it or the body may have been sent, none is told", async () => {
  const { id, sent } = await send('{"id":"s-c","status":"succeeded"}');
  const now = new Date();
  const codes = ["target_not_confirmed", "response_timeout", "status_500"];
  for (const [n, error_code] of codes.entries())
    await insertRow(database.pool, "attempts", {
      delivery_id: id,
      account_id: account.accountId,
      run: 1,
      number: n + 2,
      started_at: now,
      ended_at: now,
      outcome: "rejected",
      error_code,
      status_code: error_code === "response_timeout" ? null : 500,
      target_url: receiver.url("/in").href,
    });
  const strict = await startTestApi(database, { TARGET_CONSENT: "challenge" });
  const lengths = async ({ ask }: TestApi) => {
    const { body } = await ask("GET", `/v1/webhooks/deliveries/${id}`, { key: account.ownKey });
    return (body.attempts as Json[]).map(
      ({ request_headers }) => (request_headers as Json)["content-length"],
    );
  };
  const whole = sent["content-length"];
  const challenge = String(challengeBody(randomUUID()).length);
  expect(await lengths(strict)).toEqual([whole, challenge, undefined, whole]);
  expect(await lengths(api)).toEqual([whole, challenge, whole, whole]);
  await strict.close();
});

describe("the body of a delivery", () => {
  test("is what the receiver got, byte for byte", async () => {
    const text = '{ "id":"s-2", "status" : "failed", "n":9007199254740993, "n":1e400, "z":"\\u0000é" }';
    const { id, received } = await send(text);
    const { status, bytes, headers } = await get(id, "/body");
    expect([status, headers.get("content-type")]).toEqual([200, "application/json"]);
    expect(bytes.equals(received.body)).toBe(true);
    expect((await get(id.toUpperCase(), "/body")).bytes.equals(received.body)).toBe(true);
  });

  test("is for keys that may read analyses, of the same account", async () => {
    const { id } = await send('{"id":"s-3","status":"succeeded"}');
    const logReader = await api.newKey(account.accountId, ["webhooks:read"]);
    expect((await get(id, "/body", { key: logReader })).status).toBe(403);
    expect((await get(id, "/body", await api.newAccount())).status).toBe(404);
    expect((await get(UNKNOWN, "/body")).status).toBe(404);
  });

  test("is gone with the analysis, and so is what the log knew from it", async () => {
    const { id } = await send('{"id":"s-4","status":"succeeded"}', TRACE);
    clock = () => Date.now() + WEEK_MS;
    const expired = await get(id, "/body");
    clock = () => Date.now();
    expect([expired.status, expired.body.code]).toEqual([410, "analysis_expired"]);
    await deleteRows(database.pool, "bodies", { delivery_id: id });
    expect((await get(id, "/body")).status).toBe(410);
    const [attempt] = (await get(id)).body.attempts as Json[];
    expect(Object.keys(attempt!.request_headers as object).sort()).toEqual([
      "connection",
      "content-type",
      "extract-signature",
      "host",
      "user-agent",
    ]);
  });
});

describe("an interrupted attempt", () => {
  // Nobody else claims what is cut here.
  beforeAll(() => dispatcher.stop());

  test.each([
    ["the endpoint", null],
    ["its own URL", "https://hooks.example.com/own"],
  ])("says where it went to (%s), and no duration", async (_, url) => {
    const analysis = `{"id":"s-i-${url === null}","status":"succeeded"}`;
    const id = await publish(database.pool, account.accountId, analysis, url);
    const pool = openDispatchPool(database);
    await claim(pool, [id], { leaseMs: 0 });
    // The next claim finds that the lease is over.
    await claim(pool, [id]);
    await pool.end();
    const target_url = url ?? receiver.url("/in?x=1").href;
    const { body } = await get(id);
    expect(body).toMatchObject({ target_url, target_source: url === null ? "endpoint" : "request" });
    expect(body.attempts).toMatchObject([
      { outcome: "interrupted", target_url, duration_ms: null, request_headers: null },
    ]);
  });
});
