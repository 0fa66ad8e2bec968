import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/endpoint";
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

let database: TestDatabase;
let api: TestApi;
let account: TestAccount;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
});
beforeEach(async () => {
  account = await api.newAccount();
});
afterAll(async () => {
  await api.close();
  await database.drop();
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
    });
    expect(await api.ask("GET", path, account)).toMatchObject({ status: 200, body });

    const removed = await api.ask("DELETE", path, account);
    expect([removed.status, removed.bytes.length]).toEqual([204, 0]);
    expect((await api.ask("GET", path, account)).status).toBe(404);
    expect((await api.ask("DELETE", path, account)).status).toBe(404);
  });

  test("is changed in place", async () => {
    const first = await set("https://hooks.example.com/1");
    const second = await set("https://hooks.example.com/2");
    expect(second.body).toMatchObject({
      url: "https://hooks.example.com/2",
      created_at: first.body.created_at,
    });
    expect(String(second.body.updated_at) > String(first.body.updated_at)).toBe(true);
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
