import { randomUUID } from "node:crypto";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import {
  type PullWebhooksOptions,
  pullWebhooks,
  type WebhookEvent,
  WebhookPullError,
  WebhookVerificationError,
} from "../../src/signing/index.ts";
import { publish } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const HOLDER = randomUUID();
const { database, api } = await openApi();
let account: TestAccount;
let server: Server | undefined;
let made = 0;

beforeEach(async () => {
  account = await api.newAccount();
});
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
  server = undefined;
});

async function publishInFeed(count: number): Promise<string[]> {
  const ids = [];
  for (let n = 0; n < count; n++) {
    const analysis = `{"id":"u-${made++}","status":"succeeded","t":"é\\u0000"}`;
    ids.push(await publish(database.pool, account.accountId, analysis));
  }
  await sequenceEvents(database.pool, HOLDER, 60_000);
  api.news.tell([account.accountId]);
  return ids;
}

const pull = (more: Partial<PullWebhooksOptions> = {}) =>
  pullWebhooks({
    baseUrl: `${api.url}/`,
    apiKey: account.ownKey,
    secret: account.secret,
    ...more,
  } as PullWebhooksOptions);

async function take(events: AsyncGenerator<WebhookEvent, void, void>, count: number): Promise<string[]> {
  const ids = [];
  while (ids.length < count) ids.push((await events.next()).value!.id);
  return ids;
}

/** A service or a proxy that answers as it likes. */
async function answering(listener: RequestListener): Promise<string> {
  server = createServer(listener).listen(0, "127.0.0.1");
  await new Promise((resolve) => server!.once("listening", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe("pulling", () => {
  it("gives every event, verified, and waits for the next", async () => {
    const ids = await publishInFeed(150);
    const events = pull();
    expect(await take(events, 150)).toEqual(ids);
    const next = take(events, 1);
    await expect.poll(() => api.waiting()).toBe(1);
    expect(await publishInFeed(1)).toEqual(await next);
    await events.return();
  });

  it("passes over what was erased, verified as well, and says so", async () => {
    const ids = await publishInFeed(3);
    const { status } = await api.ask("DELETE", `/v1/analyses/u-${made - 2}`, { key: account.ownKey });
    expect(status).toBe(200);
    const erased: string[] = [];
    const events = pull({ onErased: (id) => void erased.push(id) });
    expect([await take(events, 2), erased]).toEqual([[ids[0], ids[2]], [ids[1]]]);
    await events.return();
    const forged = pull({ secret: `whsec_${"a".repeat(43)}` });
    await expect(forged.next()).rejects.toThrow(WebhookVerificationError);
  });

  it("tells the cursor once everything before it has been handled, and goes on from it", async () => {
    const ids = await publishInFeed(3);
    const cursors: string[] = [];
    const stopping = new AbortController();
    const first = pull({ onCursor: (cursor) => void cursors.push(cursor), signal: stopping.signal });
    expect(await take(first, 3)).toEqual(ids);
    expect(cursors, "the last one is still being handled").toEqual([]);
    const waiting = first.next();
    await expect.poll(() => cursors).toHaveLength(1);
    stopping.abort();
    expect(await waiting).toEqual({ value: undefined, done: true });
    const later = await publishInFeed(2);
    const second = pull({ after: cursors[0] });
    expect(await take(second, 2)).toEqual(later);
    await second.return();
  });

  it("leaves the cursor to the service under its name, and is told of another reader", async () => {
    const ids = await publishInFeed(3);
    const seen: string[] = [];
    const start = () => pull({ consumer: "one", onOtherReader: (seenAt) => void seen.push(seenAt) });
    const crashed = start();
    expect(await take(crashed, 3)).toEqual(ids);
    const again = start();
    expect(await take(again, 3)).toEqual(ids);
    const waiting = take(again, 1);
    await expect.poll(() => api.waiting()).toBe(1);
    const later = await publishInFeed(1);
    expect(await waiting).toEqual(later);
    expect(seen).toEqual([]);
    // It was not dead: what it acknowledges, the other had acknowledged.
    expect(await take(crashed, 1)).toEqual(later);
    expect(seen).toEqual([expect.stringMatching(/Z$/)]);
    await Promise.all([crashed.return(), again.return()]);
  });

  it("acknowledges what was handled although it is told to stop, and repeats that with one key", async () => {
    const stopping = new AbortController();
    const [id] = await publishInFeed(1);
    const keys = new Set<unknown>();
    let faults = 1;
    const baseUrl = await answering((request, response) => {
      if (request.method === "POST") {
        keys.add(request.headers["idempotency-key"]);
        if (faults-- > 0) return void response.writeHead(503, { "retry-after": "0" }).end();
      }
      const { authorization = "", "idempotency-key": key = "" } = request.headers;
      buffer(request).then(async (body) => {
        const sent = request.method === "POST" ? { method: "POST", body } : {};
        const headers = { authorization, "idempotency-key": String(key), "content-type": "application/json" };
        const answer = await fetch(`${api.url}${request.url}`, { ...sent, headers });
        response.writeHead(answer.status, { "content-type": "application/json" }).end(await answer.text());
      });
    });
    const events = pull({ baseUrl, consumer: "one", signal: stopping.signal });
    expect(await take(events, 1)).toEqual([id]);
    const next = events.next();
    await expect.poll(() => api.waiting()).toBe(1);
    expect(keys.size).toBe(1);
    const [late] = await publishInFeed(1);
    expect((await next).value!.id).toBe(late);
    stopping.abort();
    expect(await events.next()).toEqual({ value: undefined, done: true });
    const third = await publishInFeed(1);
    const restarted = pull({ consumer: "one" });
    expect(await take(restarted, 1)).toEqual(third);
    await restarted.return();
  });

  it("acknowledges once an hour while nothing comes, and goes on from the place that is kept", async () => {
    const realNow = performance.now.bind(performance);
    let aheadMs = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => realNow() + aheadMs);
    onTestFinished(() => clock.mockRestore());
    const stopping = new AbortController();
    const asked: string[] = [];
    let cursor = "";
    const baseUrl = await answering(async (request, response) => {
      const body = JSON.parse((await buffer(request)).toString() || "null");
      asked.push(body === null ? (request.url!.includes("cursor=") ? "on" : "kept") : "acknowledged");
      if (body !== null) expect(body).toEqual({ cursor });
      // Every page takes half an hour and more.
      if (body === null) aheadMs += 31 * 60_000;
      if (asked.length === 8) stopping.abort();
      cursor = `place-${asked.length}`;
      if (body !== null) return void response.writeHead(204).end();
      response
        .writeHead(200, { "content-type": "application/json" })
        .end(JSON.stringify({ items: [], next_cursor: cursor }));
    });
    const end = await pull({ baseUrl, consumer: "one", signal: stopping.signal }).next();
    expect(end).toEqual({ value: undefined, done: true });
    expect(asked).toEqual("kept on on acknowledged kept on acknowledged kept".split(" "));
  });

  it("begins with what is published from now on", async () => {
    await publishInFeed(2);
    const events = pull({ after: "newest" });
    const next = take(events, 1);
    await expect.poll(() => api.waiting()).toBe(1);
    expect(await publishInFeed(1)).toEqual(await next);
    await events.return();
  });

  it("tells the cursor that newest stands for before anything comes, so that a restart misses nothing", async () => {
    await publishInFeed(1);
    const stopping = new AbortController();
    const cursors: string[] = [];
    const onCursor = (cursor: string) => void cursors.push(cursor);
    const waiting = pull({ after: "newest", onCursor, signal: stopping.signal }).next();
    await expect.poll(() => cursors).toHaveLength(1);
    stopping.abort();
    await waiting;
    const meanwhile = await publishInFeed(1);
    const again = pull({ after: cursors[0] });
    expect(await take(again, 1)).toEqual(meanwhile);
    await again.return();
  });

  it("ends when it is told to, while it waits and before it begins", async () => {
    const stopping = new AbortController();
    const next = pull({ signal: stopping.signal }).next();
    await expect.poll(() => api.waiting()).toBe(1);
    stopping.abort();
    expect(await next).toEqual({ value: undefined, done: true });
    await expect.poll(() => api.waiting()).toBe(0);
    expect(await pull({ signal: stopping.signal }).next()).toEqual({ value: undefined, done: true });
  });

  it("gives nothing that does not verify", async () => {
    await publishInFeed(1);
    const cursors: string[] = [];
    const failed = pull({ secret: "whsec_another", onCursor: (cursor) => void cursors.push(cursor) }).next();
    await expect(failed).rejects.toMatchObject({ code: "no_signature_matches" });
    await expect(failed).rejects.toBeInstanceOf(WebhookVerificationError);
    expect(cursors).toEqual([]);
  });

  it("takes either of two secrets", async () => {
    const ids = await publishInFeed(1);
    const events = pull({ secret: undefined, secrets: ["whsec_new", account.secret] } as never);
    expect(await take(events, 1)).toEqual(ids);
    await events.return();
  });
});

describe("what a retry would not change", () => {
  it.each([
    ["a wrong key", { apiKey: "svc_test_wrong" }, "unauthorized", 401],
    ["a cursor of nothing", { after: "nothing" }, "invalid_request", 400],
  ])("is thrown: %s", async (_, more, code, status) => {
    const failed = pull(more).next();
    await expect(failed).rejects.toBeInstanceOf(WebhookPullError);
    await expect(failed).rejects.toMatchObject({ code, status });
  });

  it("is thrown: an expired cursor", async () => {
    const [id] = await publishInFeed(1);
    let given = "";
    const events = pull({
      onCursor: (cursor) => {
        given = cursor;
        throw new Error("stop here");
      },
    });
    expect(await take(events, 1)).toEqual([id]);
    await expect(events.next()).rejects.toThrow("stop here");
    const [version, digest] = JSON.parse(Buffer.from(given, "base64url").toString());
    const old = Buffer.from(JSON.stringify([version, digest, 1])).toString("base64url");
    await expect(pull({ after: old }).next()).rejects.toMatchObject({ code: "cursor_expired" });
  });

  it("is thrown: another service's answer, and a redirect, which would take the key along", async () => {
    const page = await answering((_, response) => response.end("<html></html>"));
    await expect(pull({ baseUrl: page }).next()).rejects.toMatchObject({ code: "not_a_feed" });
    server!.closeAllConnections();
    server!.close();
    const asked: string[] = [];
    const other = await answering(({ url = "" }, response) => {
      asked.push(url);
      response.writeHead(302, { location: "/elsewhere" }).end();
    });
    await expect(pull({ baseUrl: other }).next()).rejects.toMatchObject({ code: "not_a_feed", status: 302 });
    expect(asked).toHaveLength(1);
  });

  it("is thrown: what onCursor throws", async () => {
    const onCursor = () => {
      throw new Error("the disk is full");
    };
    await expect(pull({ after: "newest", onCursor }).next()).rejects.toThrow("the disk is full");
  });

  it("is thrown: no key", async () => {
    await expect(pull({ apiKey: undefined }).next()).rejects.toBeInstanceOf(TypeError);
  });
});

describe("what may pass", () => {
  it("is retried: no answer, a cut one, 5xx, 429", async () => {
    const ids = await publishInFeed(1);
    const faults: ((response: Parameters<RequestListener>[1]) => void)[] = [
      (response) => response.destroy(),
      (response) =>
        response
          .writeHead(200, { "content-type": "application/json" })
          .write('{"items":[', () => response.destroy()),
      (response) => response.writeHead(503, { "retry-after": "0" }).end(),
      (response) => response.writeHead(429, { "retry-after": "0" }).end(),
    ];
    const baseUrl = await answering((request, response) => {
      const fault = faults.shift();
      if (fault) return fault(response);
      const headers = { authorization: request.headers.authorization ?? "" };
      fetch(`${api.url}${request.url}`, { headers }).then(async (answer) => {
        response.writeHead(answer.status, { "content-type": "application/json" }).end(await answer.text());
      });
    });
    const retried: number[] = [];
    const told: string[] = [];
    const onRetry = (error: Error, afterMs: number) => {
      told.push(error.message);
      retried.push(afterMs);
    };
    const events = pull({ baseUrl, onRetry });
    expect(await take(events, 1)).toEqual(ids);
    expect(told).toEqual([
      `No answer from ${baseUrl} (UND_ERR_SOCKET).`,
      expect.stringMatching(/^No answer from \S+ \(\w+\)\.$/),
      "The answer has status 503 and is not the service's. Check baseUrl.",
      "The answer has status 429 and is not the service's. Check baseUrl.",
    ]);
    for (const [n, afterMs] of retried.entries()) {
      expect(afterMs).toBeGreaterThanOrEqual(250 * 2 ** n);
      expect(afterMs).toBeLessThanOrEqual(500 * 2 ** n);
    }
    await events.return();
  });

  it("ends at once when it is told to", async () => {
    const stopping = new AbortController();
    const retrying = Promise.withResolvers<void>();
    const baseUrl = await answering((_, response) => response.writeHead(500).end());
    const next = pull({ baseUrl, signal: stopping.signal, onRetry: () => retrying.resolve() }).next();
    await retrying.promise;
    stopping.abort();
    expect(await next).toEqual({ value: undefined, done: true });
  });
});
