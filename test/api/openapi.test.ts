import { afterAll, beforeAll, expect, test } from "vitest";
import { EVENTS } from "../../src/base/model/events.ts";
import {
  exampleAnalysis,
  importWebhookKey,
  signedHeaders,
  webhookBody,
  webhookHeaders,
} from "../../src/delivery/webhook.ts";
import { createAnswerCheck, type OpenApiDocument } from "../support/api-answer-check.ts";
import { lintDocument, withGeneratedClient } from "../support/api-document.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { patience } from "../support/time-limits.ts";

let database: TestDatabase;
let api: TestApi;
let document: unknown;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  document = (await api.ask("GET", "/v1/openapi.json", { key: null })).body;
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

test("an outside linter finds no fault in the document, and would see one", {
  tags: ["slow"],
  timeout: patience(120_000),
}, async () => {
  expect(await lintDocument(document)).toEqual([]);
  const raised = await fetch(`${api.url}/v1/openapi.json?errors=raised`);
  expect(await lintDocument(await raised.json())).toEqual([]);
  const { servers: _, ...rest } = document as { readonly servers: unknown };
  expect(await lintDocument({ ...rest, info: { title: "Sealpost" } })).not.toEqual([]);
});

test.each(EVENTS)("the document describes the webhook %s as it is sent", async (event) => {
  const { schemaAt } = createAnswerCheck(document as OpenApiDocument);
  const body = webhookBody({
    id: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11",
    event,
    createdAtMs: 1_800_000_000_000,
    analysisText: exampleAnalysis(event, "an-1"),
  });
  const sent = JSON.parse(body.toString());
  const pointer = `/webhooks/${event}/post`;
  const isEvent = schemaAt(`${pointer}/requestBody/content/application~1json/schema`);
  expect(isEvent(sent), JSON.stringify(isEvent.errors)).toBe(true);
  expect(isEvent({ ...sent, event: "analysis.started" })).toBe(false);
  const keys = [api.account.secret, `whsec_${"o".repeat(40)}`].map(importWebhookKey);
  const headers = webhookHeaders({
    ...signedHeaders(body, keys, 1_800_000_000_000, sent.id),
    traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01`,
  });
  const { webhooks } = document as unknown as { webhooks: Record<string, { post: Sent }> };
  const { parameters } = webhooks[event]!.post;
  expect(parameters.map(({ name }) => name)).toEqual([
    "extract-signature",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "traceparent",
  ]);
  for (const { name, schema } of parameters) expect(headers[name]).toMatch(new RegExp(schema.pattern));
});

test("generators of clients find no null without a type in it, and no name that they make themselves", () => {
  const { schemas } = (document as { components: { schemas: Record<string, unknown> } }).components;
  expect(nullsAlone(document)).toEqual([]);
  expect(nullsAlone({ of: { type: "null" }, or: { anyOf: [{ type: "null" }] } })).toEqual(["/of"]);
  // In Go, what makes a `Page` is the function `NewPage`.
  expect(Object.keys(schemas).filter((name) => `New${name}` in schemas)).toEqual([]);
});

/** Where something may be null and nothing else; as a member of a union, null has types beside it. */
function nullsAlone(value: unknown, at = ""): string[] {
  if (typeof value !== "object" || value === null) return [];
  const isAlone = "type" in value && value.type === "null" && !/\/(?:any|one)Of\/\d+$/.test(at);
  const inside = Object.entries(value).flatMap(([name, member]) => nullsAlone(member, `${at}/${name}`));
  return isAlone ? [at, ...inside] : inside;
}

type Sent = {
  readonly parameters: readonly { readonly name: string; readonly schema: { pattern: string } }[];
};

const tour = `
  import * as api from "./client.ts";

  function of<T extends { status: number }, S extends T["status"]>(answer: T, status: S): Extract<T, { status: S }> {
    if (answer.status !== status) throw new Error(JSON.stringify(answer));
    return answer as Extract<T, { status: S }>;
  }

  export async function tour() {
    const analysis = { id: "tour-1", status: "succeeded" as const, pages: 3 };
    const published = of(await api.analysesPublish("k-1", { analysis }), 202).data;
    const read: api.Analysis = of(await api.analysesGet(published.analysis_id, {}), 200).data;
    const endpoint = of(await api.webhooksEndpointSet("k-2", { url: "https://hooks.example.com/" }), 200).data;
    const listed = of(await api.webhooksDeliveriesList({ status: ["abandoned"], limit: 1 }), 200).data;
    const delivery: api.DeliveryWithAttempts =
      of(await api.webhooksDeliveriesGet(published.delivery_id, {}), 200).data;
    const dry = of(await api.webhooksReplaysCreate("k-3", { filter: {}, dry_run: true }), 200).data;
    const filter: api.ReplayFilter = { status: "abandoned", reason: ["no_target"] };
    const replay: api.Replay = of(await api.webhooksReplaysCreate("k-4", { filter }), 202).data;
    const missing = await api.webhooksReplaysGet(published.delivery_id, {});
    const code = missing.status === 404 ? missing.data.code : null;
    const operations = of(await api.operationsList({}), 200).data;
    return {
      read, url: endpoint.url, total: listed.total, attempts: delivery.attempts.length, reason: delivery.reason,
      matched: dry.matched, status: replay.status, code, operations: operations.total,
    };
  }`;

test("a client generated from it compiles, and takes a tour", {
  tags: ["slow"],
  timeout: patience(120_000),
}, async () => {
  await withGeneratedClient(document, tour, async (client, usage) => {
    client.defaults.baseUrl = `${api.url}/v1`;
    client.defaults.headers = { authorization: `Bearer ${api.account.ownKey}` };
    expect(await (usage.tour as () => Promise<unknown>)()).toEqual({
      read: { id: "tour-1", status: "succeeded", pages: 3 },
      url: "https://hooks.example.com/",
      total: 1,
      attempts: 0,
      reason: "no_target",
      matched: 1,
      status: "running",
      code: "not_found",
      operations: declaredOperations().length,
    });
  });
  const wrong = `import { webhooksEndpointSet } from "./client.ts"; webhooksEndpointSet("k", { uri: "" });`;
  await expect(withGeneratedClient(document, wrong, async () => {})).rejects.toThrow("does not compile");
});
