import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { RUNS_PER_HOUR_MAX } from "../../src/base/model/statuses.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { ATTEMPTS_MAX, attemptRows, failAgain } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher, unsafeAllowed } from "../support/dispatching.ts";
import { allowTargets, changeRows, makePartitionsFrom } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";

const UNKNOWN = "01900000-0000-7000-8000-000000000000";
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

let database: TestDatabase;
let receiver: Receiver;
let api: TestApi;
let dispatcher: TestDispatcher;
beforeAll(async () => {
  const handler = ({ path }: { path: string }) => {
    const status = Number(path.slice(1, 4));
    if (path.endsWith("ngrok")) return { status, headers: { "ngrok-error-code": "ERR_NGROK_3200" } };
    return { status, body: `answer ${status}`, headers: { "retry-after": "1" } };
  };
  [database, receiver] = await Promise.all([createTestDatabase(), startReceiver({ handler })]);
  const lifted = [...unsafeAllowed([receiver]), "localhost:9"];
  await allowTargets(database.pool, lifted);
  const env = { UNSAFE_ALLOWED_TARGETS: lifted.join(",") };
  api = await startTestApi(database, env);
  dispatcher = startTestDispatcher(database, [receiver], env);
});
afterAll(async () => {
  await dispatcher.stop();
  await api.close();
  await receiver.close();
  await database.drop();
});

let published = 0;
async function publish(webhook_url: string | null): Promise<string> {
  const body = { analysis: { id: `d-${++published}`, status: "succeeded" }, webhook_url };
  return (await api.ask("POST", "/v1/analyses", { body })).body.delivery_id as string;
}
async function read(id: string): Promise<Json> {
  const { status, body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`);
  expect(status).toBe(200);
  return body;
}
const replay = (id: string) => api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`);

/** Publishes, and waits until the dispatcher has recorded that delivery's first attempt. */
async function attempted(webhookUrl: string): Promise<string> {
  const id = await publish(webhookUrl);
  let count = 1;
  while (!dispatcher.attempts.some(({ delivery }) => delivery.deliveryId === id)) {
    await dispatcher.waitForAttempts(count++);
  }
  return id;
}

describe("reading a delivery", () => {
  test("one that was accepted", async () => {
    const url = receiver.url("/200").href;
    const body = await read(await attempted(url));
    expect(body).toEqual({
      id: expect.any(String),
      event: "analysis.succeeded",
      analysis_id: `d-${published}`,
      created_at: expect.stringMatching(TIME),
      status: "succeeded",
      reason: null,
      run: 1,
      replay_id: null,
      attempts_count: 1,
      next_attempt_at: null,
      in_flight: false,
      held: false,
      target_url: url,
      target_source: "request",
      last_error_code: null,
      last_status_code: 200,
      explanation: "The receiver accepted the event with status 200. No action is needed.",
      cause: "The receiver accepted the event with status 200.",
      next: "No action is needed.",
      remedy: null,
      replays: [],
      analysis_erased: false,
      attempts: [
        {
          run: 1,
          number: 1,
          started_at: expect.stringMatching(TIME),
          ended_at: expect.stringMatching(TIME),
          duration_ms: expect.any(Number),
          timings: {
            dns: expect.any(Number),
            connect: expect.any(Number),
            tls: expect.any(Number),
            first_byte: expect.any(Number),
          },
          target_url: url,
          remote_address: "127.0.0.1",
          outcome: "succeeded",
          error_code: null,
          error_message: null,
          status_code: 200,
          answered_by: null,
          request_headers: expect.any(Object),
          response_headers: expect.any(Object),
          response_excerpt: "answer 200",
        },
      ],
    });
  });

  test("one that was refused says so, when it goes on, and what to do", async () => {
    const body = await read(await attempted(receiver.url("/401").href));
    expect(body).toMatchObject({
      status: "failed",
      attempts_count: 1,
      next_attempt_at: expect.stringMatching(TIME),
      last_error_code: "status_401",
      last_status_code: 401,
    });
    const due = String(body.next_attempt_at).slice(0, 19).replace("T", " ");
    expect(body.explanation).toMatch(
      new RegExp(
        `^The receiver returned 401.* The next attempt is due at ${due} UTC\\. ` +
          'The receiver\'s "Retry-After: 1" asks for no longer wait than that\\. ' +
          "Check first .* signing secret.*The secret has never been rotated\\. To retry at once, replay it\\.$",
      ),
    );
    expect((body.attempts as Json[])[0]).toMatchObject({
      outcome: "rejected",
      error_code: "status_401",
      error_message: expect.stringMatching(
        /^The receiver returned 401.*signature.*The secret has never been rotated\.$/,
      ),
      status_code: 401,
      answered_by: null,
      response_headers: { "retry-after": "1" },
      response_excerpt: "answer 401",
    });
  });

  test("one that somebody else refused says who, and what to do about it", async () => {
    const body = await read(await attempted(receiver.url("/404/ngrok").href));
    expect(body).toMatchObject({
      last_error_code: "status_404",
      cause: "ngrok answered: the tunnel is not running (status 404).",
      remedy: expect.stringMatching(/^Start the tunnel .* The URL came with the request/),
    });
    expect((body.attempts as Json[])[0]).toMatchObject({
      error_message: expect.stringMatching(/^ngrok answered: the tunnel is not running/),
      answered_by: {
        kind: "tunnel",
        name: "ngrok",
        evidence: "Shown by the header ngrok-error-code: err_ngrok_3200.",
      },
    });
    expect((await read(await attempted(receiver.url("/200/ngrok").href))).attempts).toMatchObject([
      { outcome: "succeeded", answered_by: null },
    ]);
  });

  test("one that could not be reached", async () => {
    const body = await read(await attempted("https://localhost:9/"));
    expect(body).toMatchObject({ last_error_code: "connect_refused", last_status_code: null });
    expect((body.attempts as Json[])[0]).toMatchObject({
      outcome: "unreachable",
      remote_address: expect.toBeOneOf([null, "127.0.0.1"]),
      timings: { tls: null, first_byte: null },
      request_headers: null,
      response_headers: null,
      response_excerpt: null,
    });
  });

  test("one without a target", async () => {
    expect(await read(await publish(null))).toMatchObject({
      status: "abandoned",
      reason: "no_target",
      target_url: null,
      target_source: null,
      attempts: [],
      explanation: expect.stringMatching(/^There was no webhook URL.*Configure an endpoint.*until 20/),
    });
  });

  test("one to the endpoint", async () => {
    const url = receiver.url("/204").href;
    await api.ask("PUT", "/v1/webhooks/endpoint", { body: { url } });
    const id = await publish(null);
    while (!dispatcher.attempts.some(({ delivery }) => delivery.deliveryId === id)) {
      await dispatcher.waitForAttempts(dispatcher.attempts.length + 1);
    }
    await api.ask("DELETE", "/v1/webhooks/endpoint");
    expect(await read(id)).toMatchObject({ target_url: url, target_source: "endpoint" });
  });

  test("one with more attempts than are shown: the newest, and how many there are", async () => {
    const id = await publish(null);
    await failAgain(database.pool, api.account.accountId, id, 250);
    const { attempts, ...delivery } = await read(id);
    expect(delivery).toMatchObject({ attempts_count: 250, run: 32 });
    expect(attempts).toHaveLength(100);
    expect((attempts as Json[]).at(-1)).toMatchObject({ run: 32, number: 2 });
  });

  test("one that is unknown, and what is no id", async () => {
    const unknown = await api.ask("GET", `/v1/webhooks/deliveries/${UNKNOWN}`);
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
    const malformed = await api.ask("GET", "/v1/webhooks/deliveries/x");
    expect([malformed.status, malformed.body.code]).toEqual([400, "invalid_request"]);
  });
});

describe("replaying a delivery", () => {
  test("reads none of its attempts, nor does a repeat, however many there are", async () => {
    const { account } = api;
    const id = await publish(null);
    const asUser = { key: account.key, idempotencyKey: "unread" };
    await inTransaction(database.pool, async (other) => {
      await other.query("lock table sealpost.attempts in access exclusive mode");
      const path = `/v1/webhooks/deliveries/${id}/replay`;
      const first = await api.ask("POST", path, asUser);
      expect(first).toMatchObject({ status: 202, body: { id, run: 2 } });
      expect(await api.ask("POST", path, asUser)).toMatchObject({ status: 202, body: first.body });
    });
  });

  test("starts the next run, with the same body", async () => {
    const id = await attempted(receiver.url("/500").href);
    const attemptsBefore = dispatcher.attempts.length;
    const answer = await replay(id);
    expect(answer.status).toBe(202);
    expect(answer.body).toMatchObject({ id, run: 2, last_error_code: "status_500" });
    expect(answer.body).not.toHaveProperty("attempts");
    await dispatcher.waitForAttempts(attemptsBefore + 1);
    expect(await attemptRows(database.pool, id)).toMatchObject([
      { run: 1, number: 1 },
      { run: 2, number: 1 },
    ]);
    const bodies = receiver.requests.filter(({ body }) => body.includes(id)).map(({ body }) => `${body}`);
    expect(bodies).toHaveLength(2);
    expect(bodies[1]).toBe(bodies[0]);
  });

  test("again and again is refused for a while, and its receiver left alone", async () => {
    const id = await publish(null);
    await failAgain(database.pool, api.account.accountId, id, ATTEMPTS_MAX * RUNS_PER_HOUR_MAX);
    const refused = await replay(id);
    expect([refused.status, refused.body.code]).toEqual([409, "replayed_too_often"]);
    expect(await read(id)).toMatchObject({ run: RUNS_PER_HOUR_MAX, status: "abandoned" });
  });

  test("twice under one Idempotency-Key starts one run", async () => {
    const id = await attempted(receiver.url("/404").href);
    const path = `/v1/webhooks/deliveries/${id}/replay`;
    const first = await api.ask("POST", path, { idempotencyKey: "r-1" });
    const again = await api.ask("POST", path, { idempotencyKey: "r-1" });
    expect([again.status, again.body]).toEqual([202, first.body]);
    expect(await read(id)).toMatchObject({ run: 2 });
  });

  test.each([["/200", "delivery_not_replayable"]])("of one answered %s is %s", async (path, code) => {
    const refused = await replay(await attempted(receiver.url(path).href));
    expect([refused.status, refused.body.code]).toEqual([409, code]);
  });

  test("of one whose attempts are under way is refused", async () => {
    const id = await attempted("https://localhost:9/");
    await changeRows(database.pool, "deliveries", { id }, { status: "pending" });
    const refused = await replay(id);
    expect([refused.status, refused.body.code]).toEqual([409, "delivery_not_replayable"]);
  });

  test("of one that is unknown, or whose analysis has expired", async () => {
    expect((await replay(UNKNOWN)).body.code).toBe("not_found");
    await makePartitionsFrom(
      database.pool,
      new Date(Date.now() - 8 * 86_400_000).toISOString().slice(0, 10),
      3,
    );
    const { rows } = await database.pool.query<{ id: string }>(
      `insert into sealpost.deliveries (id, account_id, event, status, reason, analysis_id)
       values (sealpost.uuid_v7(now() - interval '7 days'), $1, 'analysis.failed', 'abandoned', 'no_target', 'old')
       returning id`,
      [api.account.accountId],
    );
    const expired = await replay(rows[0]?.id ?? "");
    expect([expired.status, expired.body.code]).toEqual([410, "analysis_expired"]);
  });
});
