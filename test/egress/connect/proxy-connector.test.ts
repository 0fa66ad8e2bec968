import { afterEach, describe, expect, it } from "vitest";
import { createProxyConnector } from "../../../src/egress/connect/proxy-connector.ts";
import { createPoster, type Poster } from "../../../src/egress/post/post.ts";
import { sharedAuthority } from "../../support/certificates.ts";
import {
  type EgressProxyOptions,
  startEgressProxy,
  type TestEgressProxy,
} from "../../support/egress-proxy.ts";
import { egressOf, postRequest } from "../../support/poster.ts";
import { type ReceiverOptions, startReceiver } from "../../support/receiver.ts";
import { patience, watchLateness } from "../../support/time-limits.ts";

const CONNECT_TIMEOUT_MS = patience(4_000);

const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

async function posterThrough(proxyUrl: string, connectTimeoutMs = CONNECT_TIMEOUT_MS): Promise<Poster> {
  const { caPem } = await sharedAuthority();
  const connect = createProxyConnector({ proxyUrl: new URL(proxyUrl), ca: caPem, connectTimeoutMs });
  const poster = createPoster({ egress: egressOf(connect), now: () => performance.now() });
  open.push(poster);
  return poster;
}

async function setUp(proxyOptions: EgressProxyOptions = {}, receiverOptions: ReceiverOptions = {}) {
  const proxy: TestEgressProxy = await startEgressProxy(proxyOptions);
  const receiver = await startReceiver(receiverOptions);
  open.push(proxy, receiver);
  const poster = await posterThrough(`http://localhost:${proxy.port}`);
  return { proxy, receiver, poster };
}

const EGRESS_PROXY_FAILED = {
  outcome: "unreachable",
  errorCode: "egress_proxy_failed",
  remoteAddress: null,
  mayHaveWritten: false,
};

describe("a POST through an egress proxy", () => {
  it("arrives, over TLS from end to end, and keeps the connection", async () => {
    const { proxy, receiver, poster } = await setUp();
    const first = await poster.post(postRequest(receiver.url("/hooks", "hooks.many.localhost")));
    const second = await poster.post(postRequest(receiver.url("/hooks", "hooks.many.localhost")));
    expect(first).toMatchObject({ outcome: "succeeded", remoteAddress: null, timings: { dnsMs: null } });
    expect(first.timings.connectMs).toBeGreaterThan(0);
    expect(second.timings.connectMs).toBeNull();
    const authority = `hooks.many.localhost:${receiver.port}`;
    expect(proxy.heads).toEqual([
      `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\nConnection: keep-alive\r\n\r\n`,
    ]);
    expect(receiver.requests).toHaveLength(2);
    expect(receiver.requests[0]?.servername).toBe("hooks.many.localhost");
  });

  it("goes through a proxy that speaks TLS and wants a password", async () => {
    const certificate = await (await sharedAuthority()).issue({ names: ["localhost"] });
    const { proxy, receiver } = await setUp({ certificate });
    const poster = await posterThrough(`https://user:p%40ss@localhost:${proxy.port}`);
    expect((await poster.post(postRequest(receiver.url()))).outcome).toBe("succeeded");
    expect(proxy.heads[0]).toContain(
      `\r\nProxy-Authorization: Basic ${Buffer.from("user:p@ss").toString("base64")}\r\n`,
    );
    expect(JSON.stringify(receiver.requests)).not.toMatch(/proxy-auth/i);
  });

  it("checks the receiver's certificate as without a proxy", async () => {
    const { receiver, poster } = await setUp({}, { names: ["elsewhere.localhost"] });
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({
      outcome: "tls_failed",
      errorCode: "tls_wrong_name",
      mayHaveWritten: false,
    });
    expect(result.timings.connectMs).toBeGreaterThan(0);
    expect(receiver.requests).toEqual([]);
  });

  it("charges a receiver that the proxy cannot reach to the receiver", async () => {
    const { receiver, poster } = await setUp();
    await receiver.close();
    expect(await poster.post(postRequest(receiver.url()))).toMatchObject({
      outcome: "unreachable",
      errorCode: "connect_failed",
      mayHaveWritten: false,
    });
  });
});

describe("an egress proxy that works, but opens no tunnel", () => {
  it.each([
    ["403 Forbidden\r\nx-squid-error: ERR_ACCESS_DENIED 0", "target_refused", "target_refused_by_proxy"],
    ["407 Request rejected by proxy\r\nx-smokescreen-error: x", "target_refused", "target_refused_by_proxy"],
    ["502 Bad gateway", "unreachable", "connect_failed"],
    ["503 Service Unavailable\r\nx-squid-error: ERR_DNS_FAIL 0", "unreachable", "connect_failed"],
    ["504 Gateway timeout", "unreachable", "connect_failed"],
  ])("charges the target: %j", async (answer, outcome, errorCode) => {
    // With a body, as proxies send one.
    const { receiver, poster } = await setUp({
      answer: `HTTP/1.1 ${answer}\r\ncontent-length: 7\r\n\r\n<html>\n`,
    });
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({ outcome, errorCode, remoteAddress: null, mayHaveWritten: false });
    expect(result.durationMs).toBeLessThan(CONNECT_TIMEOUT_MS / 2);
    expect(receiver.connectionsCount).toBe(0);
    expect(poster.gauges().openConnections).toBe(0);
  });
});

describe("an egress proxy that fails", () => {
  it.each<[string, EgressProxyOptions]>([
    [
      "wants a password",
      { answer: 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n' },
    ],
    ["does not understand", { answer: "HTTP/1.1 400 Bad Request\r\n\r\n" }],
    ["does not know us", { answer: "HTTP/1.1 401 Unauthorized\r\n\r\n" }],
    ["has no route for CONNECT", { answer: "HTTP/1.1 404 Not Found\r\n\r\n" }],
    ["has no CONNECT", { answer: "HTTP/1.1 405 Method Not Allowed\r\n\r\n" }],
    ["limits us", { answer: "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n\r\n" }],
    ["is overloaded", { answer: "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n" }],
    [
      "is at its own limit",
      { answer: "HTTP/1.1 503 Service Unavailable\r\nx-envoy-overloaded: true\r\n\r\n" },
    ],
    ["is broken", { answer: "HTTP/1.1 500 Internal Server Error\r\n\r\n" }],
    ["redirects", { answer: "HTTP/1.1 302 Found\r\nlocation: http://localhost/\r\n\r\n" }],
    ["answers for the time being", { answer: "HTTP/1.1 102 Processing\r\n\r\n" }],
    ["goes on after its answer", { answer: "HTTP/1.1 200 OK\r\n\r\n<html>" }],
    ["speaks another protocol", { answer: "SSH-2.0-OpenSSH_9.9\r\n\r\n" }],
    ["answers without end", { answer: `HTTP/1.1 200 OK\r\nx-a: ${"b".repeat(20_000)}` }],
    ["hangs up without an answer", { answer: "", hangsUp: true }],
    ["hangs up in its answer", { answer: "HTTP/1.1 200 Conn", hangsUp: true }],
  ])("is our failure and not the receiver's: %s", async (_how, proxyOptions) => {
    const { receiver, poster } = await setUp(proxyOptions);
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject(EGRESS_PROXY_FAILED);
    expect(result.durationMs).toBeLessThan(CONNECT_TIMEOUT_MS / 2);
    expect(receiver.connectionsCount).toBe(0);
    expect(poster.gauges().openConnections).toBe(0);
  });

  it("is our failure if it is down", async () => {
    const { proxy, receiver, poster } = await setUp();
    await proxy.close();
    expect(await poster.post(postRequest(receiver.url()))).toMatchObject(EGRESS_PROXY_FAILED);
  });

  it("is our failure if its certificate is not trusted", async () => {
    const certificate = await (await sharedAuthority()).selfSigned({ names: ["localhost"] });
    const { proxy, receiver } = await setUp({ certificate });
    const poster = await posterThrough(`https://localhost:${proxy.port}`);
    expect(await poster.post(postRequest(receiver.url()))).toMatchObject(EGRESS_PROXY_FAILED);
  });

  it("is our failure if it hangs on CONNECT, after the connect timeout", async () => {
    const { proxy, receiver } = await setUp({ answer: "" });
    const poster = await posterThrough(`http://localhost:${proxy.port}`, 200);
    const latenessMs = watchLateness();
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject(EGRESS_PROXY_FAILED);
    expect(result.durationMs).toBeGreaterThanOrEqual(199);
    expect(result.durationMs).toBeLessThan(200 + patience(200) + latenessMs());
  });

  it("is the target's failure if the proxy answers others while it waits for this one", async () => {
    const { proxy, receiver } = await setUp({ black: "black.many.localhost" });
    const poster = await posterThrough(`http://localhost:${proxy.port}`, patience(500));
    const black = poster.post(postRequest(receiver.url("/", "black.many.localhost")));
    await expect.poll(() => proxy.heads.length).toBe(1);
    expect((await poster.post(postRequest(receiver.url("/", "good.many.localhost")))).outcome).toBe(
      "succeeded",
    );
    expect(await black).toMatchObject({ outcome: "unreachable", errorCode: "connect_timeout" });
  });

  it("is our failure if it hangs beyond the attempt's deadline", async () => {
    const { receiver, poster } = await setUp({ answer: "" });
    const latenessMs = watchLateness();
    const result = await poster.post(postRequest(receiver.url(), { deadlineMs: 200 }));
    expect(result).toMatchObject(EGRESS_PROXY_FAILED);
    expect(result.durationMs).toBeLessThan(200 + patience(200) + latenessMs());
  });
});
