import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { verifyWebhook } from "../../src/signing/index.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptRows as readAttemptRows, deliveryRow as readDeliveryRow } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher } from "../support/dispatching.ts";
import {
  allowTargets,
  createTestAccount,
  deleteRows,
  publish,
  rotateSecret,
} from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { patience } from "../support/time-limits.ts";

let database: TestDatabase;
let receiver: Receiver;
let dispatcher: TestDispatcher;

const deliveryRow = (id: string) => readDeliveryRow(database.pool, id);

const attemptRows = (id: string) => readAttemptRows(database.pool, id);

describe("one dispatcher", () => {
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());
  beforeEach(async () => {
    receiver = await startReceiver();
  });
  afterEach(async () => {
    await dispatcher.stop();
    await receiver.close();
  });

  it("delivers what was published, signed, byte for byte", async () => {
    dispatcher = startTestDispatcher(database, [receiver]);
    const { accountId, secret } = await createTestAccount(database, receiver.url("/in").href);
    const text =
      '{ "id":"a-1", "status" : "succeeded", "n":9007199254740993, "n":1e400, "z":"\\u0000\\ud800" }';
    const id = await publish(database.pool, accountId, text);

    const [request] = await receiver.waitForRequests(1);
    expect(request!.path).toBe("/in");
    expect(request!.headers["content-type"]).toBe("application/json");
    expect(request!.body.toString()).toMatch(
      new RegExp(`^{"id":"${id}","event":"analysis.succeeded","created_at":"[0-9T:.-]{23}Z","data":`),
    );
    expect(request!.body.toString().endsWith(`"data":${text}}`)).toBe(true);
    const event = verifyWebhook({
      rawBody: request!.body,
      header: request!.headers["extract-signature"] as string,
      secret,
    });
    expect(event.id).toBe(id);

    await dispatcher.waitForAttempts(1);
    expect(await deliveryRow(id)).toEqual({
      status: "succeeded",
      reason: null,
      run: 1,
      attempts_count: 1,
      last_error_code: null,
      last_status_code: 200,
      endpoint_url: receiver.url("/in").href,
    });
    expect(await attemptRows(id)).toEqual([
      { run: 1, number: 1, outcome: "succeeded", error_code: null, status_code: 200 },
    ]);
  });

  it("retries over the window with backoff, then abandons; the compressed day keeps its proportions", async () => {
    await receiver.close();
    receiver = await startReceiver({ answers: [{ status: 503 }] });
    dispatcher = startTestDispatcher(database, [receiver], { RETRY_WINDOW_SECONDS: "6" });
    const { accountId } = await createTestAccount(database, receiver.url("/").href);
    const id = await publish(database.pool, accountId, '{"id":"a-2","status":"failed"}');

    const attempts = await dispatcher.waitForAttempts(8, 20_000);
    expect(receiver.requests).toHaveLength(8);
    expect(await deliveryRow(id)).toMatchObject({
      status: "abandoned",
      reason: "attempts_exhausted",
      attempts_count: 8,
      last_error_code: "status_503",
      last_status_code: 503,
    });
    expect((await attemptRows(id)).map((row) => row.number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    const times = attempts.map(({ delivered }) => delivered.recording.attempt!.startedAtMs);
    // The last delay is three quarters of the window, less or more a fifth; never early.
    const lastDelayMs = times[7]! - times[6]!;
    expect(lastDelayMs).toBeGreaterThan(6_000 * 0.75 * 0.8 - 1);
    expect(lastDelayMs).toBeLessThan(6_000 * 0.76 * 1.2 + patience(1_500));
  });

  it("sends to the request's webhook_url rather than to the endpoint, and follows no redirect", async () => {
    await receiver.close();
    receiver = await startReceiver({
      answers: [{ status: 302, headers: { location: "https://localhost/else" } }],
    });
    dispatcher = startTestDispatcher(database, [receiver]);
    await allowTargets(database.pool, [`localhost:${receiver.port}`]);
    const { accountId } = await createTestAccount(database, "https://endpoint.example.com/");
    const id = await publish(
      database.pool,
      accountId,
      '{"id":"a-3","status":"succeeded"}',
      receiver.url("/request").href,
    );
    await dispatcher.waitForAttempts(1);
    expect(receiver.requests.map((request) => request.path)).toEqual(["/request"]);
    expect(await deliveryRow(id)).toMatchObject({
      status: "failed",
      last_error_code: "status_302",
      endpoint_url: null,
    });
  });

  it("signs with both secrets while a rotated one lasts, the current first", async () => {
    dispatcher = startTestDispatcher(database, [receiver]);
    const { accountId, secret: old } = await createTestAccount(database, receiver.url("/").href);
    const current = await rotateSecret(database.pool, accountId, 3600);
    await publish(database.pool, accountId, '{"id":"a-4","status":"succeeded"}');
    const [request] = await receiver.waitForRequests(1);
    const header = request!.headers["extract-signature"] as string;
    expect(header.match(/v1=/g)).toHaveLength(2);
    for (const secret of [old, current]) verifyWebhook({ rawBody: request!.body, header, secret });
    const firstOnly = header.replace(/,v1=[0-9a-f]+$/, "");
    verifyWebhook({ rawBody: request!.body, header: firstOnly, secret: current });
    expect(() => verifyWebhook({ rawBody: request!.body, header: firstOnly, secret: old })).toThrow();

    await rotateSecret(database.pool, accountId, 0);
    await publish(database.pool, accountId, '{"id":"a-5","status":"succeeded"}');
    const [, second] = await receiver.waitForRequests(2);
    expect((second!.headers["extract-signature"] as string).match(/v1=/g)).toHaveLength(1);
  });

  it("refuses a private target before anything is sent", async () => {
    dispatcher = startTestDispatcher(database, [receiver]);
    // The text is fine to SQL; only the full rules know 0x7f.1 for what it is.
    const { accountId } = await createTestAccount(database);
    const id = await publish(
      database.pool,
      accountId,
      '{"id":"a-6","status":"succeeded"}',
      "https://0x7f.1:8443/",
    );
    await dispatcher.waitForAttempts(1);
    expect(await deliveryRow(id)).toMatchObject({
      status: "abandoned",
      reason: "target_refused",
      attempts_count: 0,
      last_error_code: "address_not_public",
    });
    expect(await attemptRows(id)).toEqual([]);
  });

  it("ends a delivery whose endpoint was removed between attempts", async () => {
    await receiver.close();
    receiver = await startReceiver({ answers: [{ status: 500 }] });
    dispatcher = startTestDispatcher(database, [receiver], { RETRY_WINDOW_SECONDS: "6" });
    const { accountId } = await createTestAccount(database, receiver.url("/").href);
    const id = await publish(database.pool, accountId, '{"id":"a-7","status":"succeeded"}');
    await dispatcher.waitForAttempts(1);
    await deleteRows(database.pool, "endpoints", { account_id: accountId });
    const attempts = await dispatcher.waitForAttempts(2);
    // A second POST may have been on its way already; the next one finds nothing.
    if (attempts[1]!.delivered.recording.attempt !== null) await dispatcher.waitForAttempts(3);
    expect(await deliveryRow(id)).toMatchObject({ status: "abandoned", reason: "no_target" });
  });

  it("charges nobody with our own way out being down: no attempt is used up, no lane held back", async () => {
    // Nobody listens on port 1.
    dispatcher = startTestDispatcher(database, [receiver], { EGRESS_PROXY_URL: "http://127.0.0.1:1" });
    const { accountId } = await createTestAccount(database, receiver.url("/").href);
    const id = await publish(database.pool, accountId, '{"id":"a-8","status":"succeeded"}');
    const [attempt] = await dispatcher.waitForAttempts(1);
    expect(attempt!.delivered.result).toMatchObject({ errorCode: "egress_proxy_failed", statusCode: null });
    expect(await deliveryRow(id)).toMatchObject({ status: "pending", attempts_count: 0 });
    expect(await attemptRows(id)).toEqual([]);
    const { lanes } = dispatcher.process.dispatcher;
    expect({ silent: lanes.silentLanes, inFlight: lanes.inFlight }).toEqual({ silent: 0, inFlight: 0 });
  });
});
