import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const analysis = (id: string, more: object = {}) => ({ id, status: "succeeded", ...more });

describe("publishing", () => {
  test("stores the analysis, makes its delivery, and answers the same when it is published again", async () => {
    const body = { analysis: analysis("a-1", { pages: 3 }), webhook_url: "https://hooks.example.com/x" };
    const first = await api.ask("POST", "/v1/analyses", { body });
    expect(first.status).toBe(202);
    expect(first.body).toEqual({ analysis_id: "a-1", delivery_id: expect.any(String) });
    const again = await api.ask("POST", "/v1/analyses", { body });
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
  });
});
