import { Buffer } from "node:buffer";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import fastify from "fastify";
import { afterEach, describe, expect, test, vi } from "vitest";
import {
  createMemoryInbox,
  type DeliveryInbox,
  importSigningKey,
  SIGNATURE_HEADER,
  signatureHeader,
  type WebhookEvent,
} from "../../src/signing/index.ts";
import { createReceiver as createExpressReceiver } from "./examples/express.ts";
import { receiver as fastifyReceiver } from "./examples/fastify.ts";
import { createReceiver as createFetchReceiver } from "./examples/fetch.ts";
import { createReceiver as createNodeReceiver } from "./examples/node-http.ts";

const SECRET = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM";

interface Options {
  secret: string | undefined;
  inbox: DeliveryInbox;
  store: (event: WebhookEvent) => Promise<void>;
}
type Send = (body: Uint8Array<ArrayBuffer>, headers: Record<string, string>) => Promise<number>;

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** What the last answer said. */
let lastText = "";

function sendTo(port: number): Send {
  return async (body, headers) => {
    const response = await fetch(`http://127.0.0.1:${port}/webhooks`, { method: "POST", body, headers });
    lastText = await response.text();
    return response.status;
  };
}

async function listen(server: ReturnType<typeof createServer>): Promise<Send> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => server.close());
  return sendTo((server.address() as AddressInfo).port);
}

const RECEIVERS: Record<string, (options: Options) => Promise<Send>> = {
  "node:http": (options) => listen(createNodeReceiver(options)),
  fastify: async (options) => {
    const app = fastify();
    await app.register(fastifyReceiver, options);
    app.post("/elsewhere", async (request) => request.body);
    await app.listen({ host: "127.0.0.1", port: 0 });
    closing.push(() => app.close());
    const elsewhere = await app.inject({ method: "POST", url: "/elsewhere", payload: { parsed: true } });
    expect(elsewhere.json()).toEqual({ parsed: true });
    return sendTo((app.server.address() as AddressInfo).port);
  },
  express: (options) => {
    const app = express();
    // As it is on a newcomer's machine, where express shows what went wrong.
    app.set("env", "development");
    app.use(createExpressReceiver(options));
    app.use(express.json());
    return listen(createServer(app));
  },
  fetch: async (options) => {
    const receive = createFetchReceiver(options);
    return async (body, headers) => {
      const url = "https://receiver.example.com/webhooks";
      const response = await receive(new Request(url, { method: "POST", body, headers }));
      lastText = await response.text();
      return response.status;
    };
  },
};

function delivery(data: object = {}, secret = SECRET) {
  const event = {
    id: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11",
    event: "analysis.succeeded",
    created_at: "2027-01-15T08:00:00.000Z",
    data: { id: "an_1", status: "succeeded", ...data },
  };
  return { event, ...signed(JSON.stringify(event), secret) };
}

function signed(text: string, secret = SECRET) {
  const body = Uint8Array.from(Buffer.from(text));
  const timestampSeconds = Math.floor(Date.now() / 1000);
  const header = signatureHeader({ timestampSeconds, body, keys: [importSigningKey(secret)] });
  return { body, headers: { "content-type": "application/json", [SIGNATURE_HEADER]: header } };
}

describe.each(Object.keys(RECEIVERS))("the %s example", (name) => {
  const start = RECEIVERS[name]!;

  test("answers 2xx before the event is processed, and to a duplicate without a second one", async () => {
    const queue: WebhookEvent[] = [];
    const send = await start({
      secret: SECRET,
      inbox: createMemoryInbox(),
      store: async (event) => void queue.push(event),
    });
    const { event, body, headers } = delivery();
    expect(await send(body, headers)).toBe(204);
    // Nobody has worked on the queue yet, and the answer is there.
    expect(queue).toEqual([event]);
    expect(await send(body, headers)).toBe(204);
    expect(queue).toHaveLength(1);
  });

  test("answers a test event like any other, and takes it for nobody's result", async () => {
    const store = vi.fn<Options["store"]>(async () => {});
    const send = await start({ secret: SECRET, inbox: createMemoryInbox(), store });
    const example = delivery({ example: true });
    expect(await send(example.body, example.headers)).toBe(204);
    expect(store).not.toHaveBeenCalled();
    const real = delivery({ example: false });
    expect(await send(real.body, real.headers)).toBe(204);
    expect(store).toHaveBeenCalledOnce();
  });

  test("answers a challenge with its text, if it is genuine, and stores nothing", async () => {
    const store = vi.fn<Options["store"]>();
    const send = await start({ secret: SECRET, inbox: createMemoryInbox(), store });
    const challenge = '{"type":"webhook.challenge","challenge":"5f0c6a0e-7f0f"}';
    const genuine = signed(challenge);
    expect([await send(genuine.body, genuine.headers), lastText]).toEqual([200, "5f0c6a0e-7f0f"]);
    const forged = signed(challenge, "whsec_dGhlLWZvcmdlcidzLW93bi1zZWNyZXQ");
    expect(await send(forged.body, forged.headers)).toBe(400);
    expect(lastText).not.toContain("5f0c6a0e-7f0f");
    expect(store).not.toHaveBeenCalled();
  });

  test("refuses what is forged, changed, or not signed, and stores nothing of it", async () => {
    const store = vi.fn<Options["store"]>();
    const send = await start({ secret: SECRET, inbox: createMemoryInbox(), store });
    const { body, headers } = delivery();
    const forged = delivery({}, "whsec_dGhlLWZvcmdlcidzLW93bi1zZWNyZXQ");
    expect(await send(forged.body, forged.headers)).toBe(400);
    expect(await send(delivery({ amount: 1 }).body, headers)).toBe(400);
    expect(await send(body, { "content-type": "application/json" })).toBe(400);
    expect(await send(body, { ...headers, [SIGNATURE_HEADER]: "v1=1" })).toBe(400);
    expect(store).not.toHaveBeenCalled();
  });

  test("tells nobody where its code is, whatever goes wrong, and does not fill its log", async () => {
    const printed = vi.spyOn(console, "error").mockImplementation(() => undefined);
    closing.push(() => printed.mockRestore());
    const store = vi.fn<Options["store"]>().mockRejectedValueOnce(new Error("the disk is full"));
    const send = await start({ secret: SECRET, inbox: createMemoryInbox(), store });
    const { body, headers } = delivery();
    const saysNothing = () => expect(lastText).not.toMatch(/\bat .*:\d+|\.ts\b|<html/i);
    expect(await send(body, headers)).toBe(500);
    saysNothing();
    expect(await send(body, { ...headers, [SIGNATURE_HEADER]: "v1=1" })).toBe(400);
    saysNothing();
    expect(printed).not.toHaveBeenCalled();
  });

  test("takes an analysis of 1 MiB, and any content type", async () => {
    const send = await start({ secret: SECRET, inbox: createMemoryInbox(), store: async () => {} });
    const { body, headers } = delivery({ text: "x".repeat(1024 * 1024) });
    expect(await send(body, headers)).toBe(204);
    expect(await send(body, { ...headers, "content-type": "text/plain" })).toBe(204);
  });

  test("answers 500 when it cannot store, and takes the next attempt", async () => {
    const store = vi.fn<Options["store"]>().mockRejectedValueOnce(new Error("the disk is full"));
    const send = await start({ secret: SECRET, inbox: createMemoryInbox(), store });
    const { body, headers } = delivery();
    expect(await send(body, headers)).toBe(500);
    expect(await send(body, headers)).toBe(204);
    expect(store).toHaveBeenCalledTimes(2);
  });

  test("answers 500 while its secret is not set, so that the event comes again", async () => {
    const send = await start({ secret: undefined, inbox: createMemoryInbox(), store: async () => {} });
    const { body, headers } = delivery();
    expect(await send(body, headers)).toBe(500);
  });
});

test("the express example says no more of a body beyond its limit than that", async () => {
  const send = await RECEIVERS.express!({
    secret: SECRET,
    inbox: createMemoryInbox(),
    store: async () => {},
  });
  const { body, headers } = delivery({ text: "x".repeat(3 * 1024 * 1024) });
  expect([await send(body, headers), lastText]).toEqual([413, "Payload Too Large"]);
});

test("the node:http example stops reading a body beyond its limit", async () => {
  const send = await RECEIVERS["node:http"]!({
    secret: SECRET,
    inbox: createMemoryInbox(),
    store: async () => {},
  });
  const { body, headers } = delivery({ text: "x".repeat(3 * 1024 * 1024) });
  expect(await send(body, headers).catch(() => 413)).toBe(413);
});
