import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { forgetDelivered } from "../../src/delivery/erase-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import {
  changeRows,
  countRows,
  deleteRows,
  insertRow,
  leaveDetaching,
  makePartitionsFrom,
  tablesWith,
} from "../support/installation.ts";
import { type AskOptions, startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, { ANALYSIS_BYTES_MAX: "2000" });
  await changeRows(database.pool, "settings", {}, { analysis_bytes_max: 2_000 });
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const analysis = (id: string, more: object = {}) => ({ id, status: "succeeded", ...more });
const publish = (body: unknown, options: AskOptions = {}) =>
  api.ask("POST", "/v1/analyses", { body, ...options });

describe("publishing", () => {
  test("stores the analysis and makes its delivery; the same again is the same", async () => {
    const body = { analysis: analysis("a-1", { pages: 3 }), webhook_url: "https://hooks.example.com/x" };
    const first = await publish(body);
    expect(first.status).toBe(202);
    expect(first.body).toEqual({ analysis_id: "a-1", delivery_id: expect.any(String) });
    const again = await publish(body);
    expect([again.status, again.body]).toEqual([202, first.body]);

    const read = await api.ask("GET", "/v1/analyses/a-1");
    expect([read.status, read.body]).toEqual([200, body.analysis]);
    const delivery = await api.ask("GET", `/v1/webhooks/deliveries/${first.body.delivery_id}`);
    expect(delivery.body).toMatchObject({
      analysis_id: "a-1",
      event: "analysis.succeeded",
      status: "pending",
      target_url: "https://hooks.example.com/x",
      target_source: "request",
      attempts: [],
    });
    expect(await countRows(database.pool, "deliveries", { analysis_id: "a-1" })).toBe(1);
  });

  test("tells a failed analysis as such", async () => {
    const { body } = await publish({ analysis: analysis("a-2", { status: "failed" }) });
    const delivery = await api.ask("GET", `/v1/webhooks/deliveries/${body.delivery_id}`);
    expect(delivery.body).toMatchObject({ event: "analysis.failed" });
  });

  test("takes the normal form of a URL", async () => {
    const { body } = await publish({
      analysis: analysis("a-3"),
      webhook_url: "HTTPS://Hooks.Example.com:443/%7Ex?",
    });
    const delivery = await api.ask("GET", `/v1/webhooks/deliveries/${body.delivery_id}`);
    expect(delivery.body.target_url).toBe("https://hooks.example.com/%7Ex?");
  });

  test.each([
    ["another text", { analysis: analysis("a-4", { x: 2 }), webhook_url: "https://hooks.example.com/" }],
    ["another URL", { analysis: analysis("a-4"), webhook_url: "https://hooks.example.com/other" }],
    ["no URL", { analysis: analysis("a-4") }],
  ])("%s under a known id is a conflict", async (_, body) => {
    await publish({ analysis: analysis("a-4"), webhook_url: "https://hooks.example.com/" });
    const refused = await publish(body);
    expect([refused.status, refused.body.code]).toEqual([409, "analysis_conflict"]);
    expect(Object.keys(refused.body)).toEqual(["type", "title", "status", "code", "request_id"]);
  });

  test.each([
    ["no object", [1], /JSON object/],
    ["no id", { status: "succeeded" }, /no member "id"/],
    ["an id of nothing", { id: "", status: "succeeded" }, /1 to 200 characters/],
    ["an id with a slash", { id: "a/b", status: "succeeded" }, /1 to 200 characters/],
    ["an id that is too long", { id: "x".repeat(201), status: "succeeded" }, /1 to 200 characters/],
    ["an id that is a number", { id: 7, status: "succeeded" }, /not a string/],
    ["no status", { id: "a-5" }, /no member "status"/],
    ["a status that is not final", { id: "a-5", status: "running" }, /neither "succeeded" nor "failed"/],
  ])("an analysis with %s is invalid", async (_, wrong, message) => {
    const refused = await publish({ analysis: wrong });
    expect([refused.status, refused.body.code]).toEqual([422, "invalid_analysis"]);
    // What is wrong, then what to do about it; nothing of a batch.
    const told = `It[s ].*\\. (?:Send|Give) .*\\.`;
    expect(refused.body.errors).toEqual([
      { path: "body.analysis", message: expect.stringMatching(new RegExp(`^${told}$`)) },
    ]);
    expect(JSON.stringify(refused.body)).toMatch(new RegExp(message.source.replaceAll('"', '\\\\"')));
  });

  test("escapes in the id are invalid, and so is nesting beyond 512 levels", async () => {
    const escaped = await publish('{"analysis":{"id":"\\u0061","status":"succeeded"}}');
    expect([escaped.status, escaped.body.code]).toEqual([422, "invalid_analysis"]);
    const deep = `{"analysis":{"id":"deep","status":"failed","x":${"[".repeat(512)}${"]".repeat(512)}}}`;
    const refused = await publish(deep);
    expect(refused.body).toMatchObject({
      code: "invalid_analysis",
      errors: [{ path: "body.analysis", message: "Nested more than 512 levels deep." }],
    });
  });

  test.each([
    ["http://hooks.example.com/", /https/],
    ["https://user:pass@hooks.example.com/", /user name/],
    ["https://127.0.0.1/", /public/],
    ["https://hooks.example.com/#x", /^The URL contains a #/],
    ["https://hooks.example.com:25/", /port/i],
    [`https://hooks.example.com/${"x".repeat(2048)}`, /2,?048/],
    ["", /./],
    ["not a URL", /./],
  ])("a webhook_url of %s is refused, with the reason", async (webhook_url, message) => {
    const refused = await publish({ analysis: analysis("a-6"), webhook_url });
    expect([refused.status, refused.body.code]).toEqual([422, "target_refused"]);
    expect(refused.body.errors).toEqual([
      { path: "body.webhook_url", message: expect.stringMatching(message) },
    ]);
    expect((await api.ask("GET", "/v1/analyses/a-6")).status).toBe(404);
  });

  test.each([
    ["a URL that is no text", { analysis: analysis("a-7"), webhook_url: 7 }, "body.webhook_url"],
    ["no analysis", {}, "body.analysis"],
    ["something unknown", { analysis: analysis("a-7"), webhook: "https://x" }, "body.webhook"],
    ["a second analysis", '{"analysis":{},"analysis":{"id":"a-7","status":"failed"}}', "body.analysis"],
    ["what is not JSON", "{", "body"],
    ["bytes that are not UTF-8", Buffer.of(0x7b, 0xff, 0x7d), "body"],
  ])("%s is an invalid request", async (_, body, path) => {
    const refused = await publish(body);
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
    expect(refused.body.errors).toMatchObject([{ path }]);
  });

  test("an analysis of the bound is taken, and one byte more is too large", async () => {
    const sized = (id: string, bytes: number) => {
      const empty = JSON.stringify(analysis(id, { x: "" }));
      return analysis(id, { x: "é".repeat(2) + "x".repeat(bytes - empty.length - 4) });
    };
    expect((await publish({ analysis: sized("a-8", 2000) })).status).toBe(202);
    for (const bytes of [2001, 30_000]) {
      const refused = await publish({ analysis: sized("a-9", bytes) });
      expect([refused.status, refused.body.code]).toEqual([413, "payload_too_large"]);
    }
  });

  test("a refusal is not remembered under its Idempotency-Key, an answer is", async () => {
    const idempotencyKey = "once";
    expect((await publish({ analysis: 1 }, { idempotencyKey })).status).toBe(422);
    const body = { analysis: analysis("a-10") };
    const first = await publish(body, { idempotencyKey });
    const again = await publish(body, { idempotencyKey });
    expect([again.status, again.body]).toEqual([202, first.body]);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    // Other spacing is another text.
    const other = await publish(JSON.stringify(body, null, 1), { idempotencyKey });
    expect(other.body.code).toBe("idempotency_key_reused");
  });
});

describe("reading", () => {
  test("what is unknown is not found", async () => {
    const missing = await api.ask("GET", "/v1/analyses/unknown");
    expect([missing.status, missing.body.code]).toEqual([404, "not_found"]);
  });

  test("ends with the retention, while the log still knows it", async () => {
    const { accountId } = api.account;
    await publishAt(database.pool, accountId, new Date(Date.now() - DAY_MS + 60_000), ["yesterday"]);
    expect((await api.ask("GET", "/v1/analyses/yesterday")).status).toBe(200);
    const later = await startTestApi(database, {}, { now: () => Date.now() + 6 * DAY_MS });
    const { key } = api.account;
    expect((await later.ask("GET", "/v1/analyses/yesterday", { key })).status).toBe(200);
    await later.close();
    const muchLater = await startTestApi(database, {}, { now: () => Date.now() + 6 * DAY_MS + 60_000 });
    const expired = await muchLater.ask("GET", "/v1/analyses/yesterday", { key });
    expect([expired.status, expired.body.code]).toEqual([410, "analysis_expired"]);
    await muchLater.close();
  });

  test("is over when the text is gone", async () => {
    const { body } = await publish({ analysis: analysis("gone") });
    await deleteRows(database.pool, "bodies", { delivery_id: body.delivery_id });
    expect((await api.ask("GET", "/v1/analyses/gone")).status).toBe(410);
  });

  test("is answered with 304 to whoever has it already", async () => {
    await publish({ analysis: analysis("kept") });
    const { headers } = await api.ask("GET", "/v1/analyses/kept");
    const etag = headers.get("etag") ?? "";
    const again = await api.ask("GET", "/v1/analyses/kept", { headers: { "if-none-match": etag } });
    expect([again.status, again.bytes.length]).toEqual([304, 0]);
  });
});

// As a nightly dump does that is open when the day is to be dropped: no statement on the day's tables finds it then.
describe("a day that a snapshot keeps from being dropped", () => {
  const pool = () => database.pool;
  const published = async (day: number, id: string) => {
    const { accountId } = api.account;
    await makePartitionsFrom(pool(), `2020-01-0${day}`, 1);
    const at = new Date(`2020-01-0${day}T12:00:00Z`);
    const [deliveryId] = await publishAt(pool(), accountId, at, [
      JSON.stringify(analysis(id, { text: `canary-${id}` })),
    ]);
    await insertRow(pool(), "attempts", {
      ...{ delivery_id: deliveryId, account_id: accountId, run: 1, number: 1, started_at: at, ended_at: at },
      ...{ outcome: "rejected", error_code: "status_500", response_excerpt: `canary-${id}` },
    });
    return { accountId, deliveryId };
  };

  test("keeps no word of an analysis that is erased", async () => {
    await published(1, "late-1");
    const reader = await leaveDetaching(pool(), "bodies_20200101");
    const detach = (table: string) =>
      `alter table sealpost.${table} detach partition sealpost.${table}_20200101`;
    await pool().query(detach("attempts"));
    expect(await tablesWith(pool(), "canary-late-1")).toEqual(["attempts", "bodies"]);
    const erased = await api.ask("DELETE", "/v1/analyses/late-1");
    await reader.rollback();
    expect([erased.status, await tablesWith(pool(), "canary-late-1")]).toEqual([200, []]);
    await pool().query("alter table sealpost.bodies detach partition sealpost.bodies_20200101 finalize");
  });

  test("keeps no word of what its endpoint forgets", async () => {
    const { accountId, deliveryId } = await published(2, "late-2");
    await deleteRows(pool(), "open_deliveries", { delivery_id: deliveryId });
    const to = { status: "abandoned", reason: "no_target" };
    await changeRows(pool(), "deliveries", { id: deliveryId }, to);
    const forgetting = { account_id: accountId, delivery_id: deliveryId, look_at: new Date(0) };
    await insertRow(pool(), "forgetting", forgetting);
    const reader = await leaveDetaching(pool(), "bodies_20200102");
    const forgotten = await forgetDelivered(
      pool(),
      async () => [],
      0,
      async () => new Set(),
    );
    await reader.rollback();
    expect([forgotten, await tablesWith(pool(), "canary-late-2")]).toEqual([1, []]);
  });
});
