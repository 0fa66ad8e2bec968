import { afterAll, beforeAll, expect, test } from "vitest";
import { verifySignature } from "../../src/signing/verify.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestDispatcher, type TestDispatcher, unsafeAllowed } from "../support/dispatching.ts";
import { allowTargets } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let receiver: Receiver;
let api: TestApi;
let dispatcher: TestDispatcher;
beforeAll(async () => {
  [database, receiver] = await Promise.all([createTestDatabase(), startReceiver()]);
  const lifted = unsafeAllowed([receiver]);
  await allowTargets(database.pool, lifted);
  api = await startTestApi(database, { UNSAFE_ALLOWED_TARGETS: lifted.join(",") });
  dispatcher = startTestDispatcher(database, [receiver]);
});
afterAll(async () => {
  await dispatcher.stop();
  await api.close();
  await receiver.close();
  await database.drop();
});

const texts = [
  '{"id":"b-1","status":"succeeded","n":9007199254740993}',
  '{"id":"b-2","status":"succeeded","a":1,"a":2,"a":{"b":1,"b":2}}',
  '{ "id"\t:\n"b-3" ,\r\n  "status" : "succeeded"  , "x" : [ 1 , 2 ]  }',
  '{"id":"b-4","status":"succeeded","n":1e400,"m":-0.0,"l":1E-7,"k":123456789012345678901234567890.10}',
  '{"id":"b-5","status":"succeeded","x":"a\\u0000b"}',
  '{"id":"b-6","status":"succeeded","x":"\\ud800 and \\udc00\\ud800"}',
  '{"id":"b-7","status":"failed","x":"\\u00e9 é \\/ / 🦭 \\ud83e\\uddad"}',
  '{"id":"b-8","status":"failed","__proto__":{"id":"no"},"constructor":{}}',
  '{"id":"c","status":"failed","id":"b-10","status":"succeeded"}',
  `{"id":"b-9","status":"succeeded","deep":${"[".repeat(511)}${"]".repeat(511)}}`,
];

test.each(texts)("sent, delivered and read back as the same bytes: %s", async (text) => {
  const { id } = JSON.parse(text);
  const body = `{ "webhook_url" : ${JSON.stringify(receiver.url(`/${id}`))},\n "analysis": ${text} }\n`;
  const published = await api.ask("POST", "/v1/analyses", { body });
  expect([published.status, published.body.analysis_id]).toEqual([202, id]);

  const read = await api.ask("GET", `/v1/analyses/${id}`);
  expect(read.bytes.toString()).toBe(text);
  expect(read.headers.get("content-type")).toBe("application/json");

  const index = texts.indexOf(text);
  const request = (await receiver.waitForRequests(index + 1))[index];
  if (!request) throw new Error("The webhook did not come.");
  const envelope = `{"id":"${published.body.delivery_id}","event":"analysis.${JSON.parse(text).status}","created_at":"`;
  const received = request.body.toString();
  expect(received.slice(0, envelope.length)).toBe(envelope);
  expect(received.slice(envelope.length + 24)).toBe(`","data":${text}}`);
  expect(request.body.includes(read.bytes)).toBe(true);
  verifySignature({
    body: request.body,
    header: String(request.headers["extract-signature"]),
    secrets: [api.account.secret],
    nowSeconds: Math.floor(request.receivedAtMs / 1000),
  });
});
