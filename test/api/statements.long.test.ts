import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { rowOf } from "../support/installation.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

let database: TestDatabase;
let api: TestApi;
let ids: Readonly<Record<string, string>>;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  const body = { analysis: { id: "a", status: "succeeded" } };
  const published = await api.ask("POST", "/v1/analyses", { body });
  await api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: "https://hooks.example.com/" } });
  const replay = await api.ask("POST", "/v1/webhooks/replays", { body: { filter: {} } });
  ids = {
    analysis_id: "a",
    delivery_id: String(published.body.delivery_id),
    replay_id: String(replay.body.id),
  };
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const AUTHENTICATION = /from sealpost\.api_keys where digest/;
const LIMITER = /rate_limits/;
/** Around a read of the log, and sent together with it. */
const PLANNING = /^(?:begin; set local .*|commit)$/;

describe("a read costs one statement at most, besides authentication and the limiter", () => {
  const reads = declaredOperations().filter(({ effect }) => effect === "read");
  test.each(reads)("$key", async ({ path }) => {
    const address = path.replace(/\{(\w+)\}/g, (_, name) => ids[name] ?? "");
    const before = api.statements().length;
    expect((await api.ask("GET", address)).status).toBe(200);
    const sent = api
      .statements()
      .slice(before)
      .filter((text) => !PLANNING.test(text));
    expect(sent.filter((text) => AUTHENTICATION.test(text))).toHaveLength(1);
    expect(sent.filter((text) => LIMITER.test(text))).toHaveLength(1);
    expect(sent.length, sent.join("\n;\n")).toBeLessThanOrEqual(3);
  });

  test("counting sees what is sent", async () => {
    const before = api.statements().length;
    await api.ask("DELETE", "/v1/webhooks/endpoint");
    const sent = api.statements().slice(before);
    expect(sent).toEqual(expect.arrayContaining(["begin", "commit"]));
    expect(sent.length).toBeGreaterThan(5);
  });
});

test("that a key is used is noted, once a minute", async () => {
  const account = await api.newAccount();
  const notes = () => api.statements().filter((text) => text.includes("set last_used_at")).length;
  const before = notes();
  const isUsed = async () =>
    (await rowOf(database.pool, "api_keys", { account_id: account.accountId })).last_used_at !== null;
  await api.ask("GET", "/v1/operations", account);
  while (!(await isUsed()));
  for (let n = 0; n < 5; n++) await api.ask("GET", "/v1/operations", account);
  expect(notes() - before).toBe(1);
});
