import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { webhookBody, webhookHeaders } from "../../src/delivery/webhook.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestDispatcher, type TestDispatcher } from "../support/dispatching.ts";
import { createTestAccount, publish } from "../support/installation.ts";
import { type ReceivedRequest, type Receiver, startReceiver } from "../support/receiver.ts";
import { createTestCheck } from "../support/receiver-check.ts";

const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";
const NOW_MS = Date.UTC(2026, 10, 20, 7, 0, 0, 123);
const TEXT = '{ "id":"a-1", "status" : "failed", "n":9007199254740993, "n":1e400, "z":"\\u0000é" }';

describe("what a receiver gets", () => {
  let database: TestDatabase;
  let receiver: Receiver;
  let dispatcher: TestDispatcher;
  let delivery: ReceivedRequest;
  let probes: readonly ReceivedRequest[];
  beforeAll(async () => {
    [database, receiver] = await Promise.all([createTestDatabase(), startReceiver()]);
    dispatcher = startTestDispatcher(database, [receiver]);
    const { accountId } = await createTestAccount(database, receiver.url("/in").href);
    await publish(database.pool, accountId, TEXT);
    delivery = (await receiver.waitForRequests(1))[0]!;
    await createTestCheck(receiver)({ url: receiver.url("/in"), secrets: [SECRET], nowMs: NOW_MS });
    probes = receiver.requests.slice(1);
  });
  afterAll(async () => {
    await dispatcher.stop();
    await receiver.close();
    await database.drop();
  });

  /** HTTP's own, which are not the webhook's. */
  const OF_HTTP = ["host", "connection", "content-length"];
  const headersOf = ({ headers }: ReceivedRequest) =>
    Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_HTTP.includes(name)));

  test("of a delivery and of a probe is the same, but for the mark and what a forgery changes", () => {
    const signature = expect.any(String);
    const shared = webhookHeaders({ signature, traceparent: null });
    expect(headersOf(delivery)).toEqual(shared);
    const unsigned = probes.filter(({ headers }) => headers["extract-signature"] === undefined);
    expect([probes.length, unsigned.length]).toEqual([17, 1]);
    for (const probe of probes) {
      expect({ "extract-signature": signature, ...headersOf(probe) }).toEqual({
        ...shared,
        "sealpost-probe": "1",
      });
    }
  });

  test("is the one envelope, byte for byte, but for the one challenge", () => {
    const texts = [delivery, ...probes].map(({ body }) => body.toString());
    const events = texts.filter((text) => !text.startsWith('{"type":"webhook.challenge","challenge":"'));
    expect(events).toHaveLength(texts.length - 1);
    for (const text of events) {
      const { id, event, created_at } = JSON.parse(text);
      const analysisText = text.slice(text.indexOf('"data":') + '"data":'.length, -1);
      const built = webhookBody({ id, event, createdAtMs: Date.parse(created_at), analysisText });
      expect(text).toBe(built.toString());
    }
  });
});
