import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { afterEach, describe, expect, it } from "vitest";
import type { Connect } from "../../../src/egress/egress.ts";
import { createPoster, type Poster } from "../../../src/egress/post/post.ts";
import { createTestPoster, egressOf, postRequest } from "../../support/poster.ts";
import { type Receiver, type ReceiverOptions, startReceiver } from "../../support/receiver.ts";
import { patience, watchLateness } from "../../support/time-limits.ts";

const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

async function setUp(options: ReceiverOptions = {}): Promise<{ receiver: Receiver; poster: Poster }> {
  const receiver = await startReceiver(options);
  const poster = createTestPoster({ ports: [receiver.port], caPem: receiver.caPem });
  open.push(receiver, poster);
  return { receiver, poster };
}

/** Ends when `done` is called, so that a test decides when the receiver answers. */
function gate(): { passed: Promise<void>; pass: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { passed: promise, pass: resolve };
}

describe("a POST that arrives", () => {
  it("carries exactly the bytes and headers it was given", async () => {
    const { receiver, poster } = await setUp();
    const body = Buffer.from('{"id":"a","data":{"n":1E400,"text":"\\u00e9é"}}');
    await poster.post(
      postRequest(receiver.url("/hooks/a%20b?c=d&e="), {
        body,
        headers: { "content-type": "application/json", "extract-signature": "t=1,v1=00" },
      }),
    );
    const [request] = await receiver.waitForRequests(1);
    expect(request?.method).toBe("POST");
    expect(request?.path).toBe("/hooks/a%20b?c=d&e=");
    expect(request?.body.equals(body)).toBe(true);
    expect(request?.headers).toEqual({
      host: `localhost:${receiver.port}`,
      connection: "keep-alive",
      "content-type": "application/json",
      "extract-signature": "t=1,v1=00",
      "content-length": String(body.length),
    });
    expect(request?.servername).toBe("localhost");
  });

  it("succeeds on a 2xx and tells what was answered, and how long each step took", async () => {
    const { receiver, poster } = await setUp({
      answers: [
        { status: 202, body: "accepted", headers: { "x-request-id": "r-1", "set-cookie": "secret=1" } },
      ],
    });
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({
      outcome: "succeeded",
      errorCode: null,
      statusCode: 202,
      retryAfter: null,
      remoteAddress: "127.0.0.1",
      responseExcerpt: "accepted",
      mayHaveWritten: true,
    });
    expect(result.responseHeaders).toMatchObject({ "x-request-id": "r-1", "content-length": "8" });
    expect(result.responseHeaders).not.toHaveProperty("set-cookie");
    const { dnsMs, connectMs, tlsMs, firstByteMs } = result.timings;
    const steps = [dnsMs, connectMs, tlsMs, firstByteMs].map((step) => step ?? Number.NaN);
    expect(Math.min(...steps)).toBeGreaterThanOrEqual(0);
    expect(steps.reduce((sum, step) => sum + step, 0)).toBeLessThanOrEqual(result.durationMs);
  });

  it("uses the same connection for the next POST, and says so by its timings", async () => {
    const { receiver, poster } = await setUp();
    await poster.post(postRequest(receiver.url("/1")));
    const second = await poster.post(postRequest(receiver.url("/2")));
    expect(second.timings).toMatchObject({ dnsMs: null, connectMs: null, tlsMs: null });
    expect(second.timings.firstByteMs).toBeGreaterThan(0);
    expect(second.remoteAddress).toBe("127.0.0.1");
    expect(receiver.connectionsCount).toBe(1);
  });

  it("takes an empty answer", async () => {
    const { receiver, poster } = await setUp({ answers: [{ status: 204, body: "", headers: {} }] });
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({ outcome: "succeeded", statusCode: 204, responseExcerpt: null });
  });
});

describe("a POST that is rejected", () => {
  it.each([300, 304, 400, 401, 404, 410, 429, 500, 503, 599])("reports status %i", async (status) => {
    const { receiver, poster } = await setUp({ answers: [{ status, body: status === 304 ? "" : "why" }] });
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({
      outcome: "rejected",
      errorCode: `status_${status}`,
      statusCode: status,
      mayHaveWritten: true,
    });
  });

  it.each([200, 500])("reads no more than 64 KiB of the answer's body, after a %i", async (status) => {
    const receiver = await startReceiver({
      handler: async () => ({ status, body: "x".repeat(20_000_000) }),
    });
    const sockets: Socket[] = [];
    const poster = createTestPoster({
      ports: [receiver.port],
      caPem: receiver.caPem,
      onConnected: (socket) => sockets.push(socket),
    });
    open.push(receiver, poster);
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({ statusCode: status, outcome: status === 200 ? "succeeded" : "rejected" });
    const [socket] = sockets;
    expect(socket!.destroyed, "a connection with more to come is of no use").toBe(true);
    // The head and TLS come on top, and what one read of the socket brings: 64 KiB.
    expect(socket!.bytesRead).toBeGreaterThan(65_536);
    expect(socket!.bytesRead).toBeLessThan(2 * 65_536 + 16_384);
  });

  it("passes Retry-After on as it came", async () => {
    const { receiver, poster } = await setUp({
      answers: [{ status: 503, headers: { "retry-after": "120" } }],
    });
    expect((await poster.post(postRequest(receiver.url()))).retryAfter).toBe("120");
  });

  it.each([301, 302, 303, 307, 308])("follows no redirect with %i and shows where it led", async (status) => {
    const elsewhere = await startReceiver();
    open.push(elsewhere);
    const location = elsewhere.url("/new").href;
    const { receiver, poster } = await setUp({ answers: [{ status, headers: { location } }] });
    const result = await poster.post(postRequest(receiver.url()));
    expect(result.errorCode).toBe(`status_${status}`);
    expect(result.responseHeaders?.location).toBe(location);
    expect(elsewhere.connectionsCount).toBe(0);
  });
});

describe("a POST that comes to no connection", () => {
  it("reports a refused connection, with its address", async () => {
    const { receiver, poster } = await setUp();
    await receiver.close();
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({
      outcome: "unreachable",
      errorCode: "connect_refused",
      remoteAddress: "127.0.0.1",
      mayHaveWritten: false,
    });
    expect(result.timings).toMatchObject({ connectMs: null, tlsMs: null, firstByteMs: null });
  });

  it("refuses an address that is not public before it connects", async () => {
    const { receiver } = await setUp();
    const poster = createTestPoster({ ports: [], caPem: receiver.caPem });
    open.push(poster);
    const result = await poster.post(postRequest(receiver.url("/", "127.0.0.1")));
    expect(result).toMatchObject({
      outcome: "target_refused",
      errorCode: "target_not_public",
      mayHaveWritten: false,
    });
    expect(receiver.connectionsCount).toBe(0);
  });

  it("names the step that the deadline cut", async () => {
    const silent = createServer(() => {}).listen(0, "127.0.0.1");
    await new Promise((resolve) => silent.once("listening", resolve));
    const { port } = silent.address() as { port: number };
    open.push({ close: async () => void silent.close() });
    const poster = createTestPoster({ ports: [port] });
    open.push(poster);
    const deadlineMs = patience(200);
    const latenessMs = watchLateness();
    const result = await poster.post(postRequest(new URL(`https://localhost:${port}/`), { deadlineMs }));
    expect(result).toMatchObject({
      outcome: "tls_failed",
      errorCode: "tls_timeout",
      mayHaveWritten: false,
      remoteAddress: "127.0.0.1",
    });
    expect(result.durationMs).toBeLessThan(deadlineMs + patience(100) + latenessMs());
    expect(result.timings.connectMs).toBeGreaterThanOrEqual(0);
  });

  it("holds its deadline even against a connector that does not", async () => {
    const poster = createPoster({
      egress: egressOf(() => new Promise(() => {})),
      now: () => performance.now(),
    });
    const latenessMs = watchLateness();
    const result = await poster.post(postRequest(new URL("https://example.com/"), { deadlineMs: 50 }));
    expect(result).toMatchObject({ errorCode: "connect_timeout", mayHaveWritten: false });
    expect(result.durationMs).toBeLessThan(50 + patience(100) + latenessMs());
  });

  it("throws away a connection that comes too late", async () => {
    const { receiver } = await setUp();
    const { passed, pass } = gate();
    const connectLate: Connect = async ({ port }) => {
      const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", ca: receiver.caPem });
      await once(socket, "secureConnect");
      await passed;
      return {
        socket,
        allowAnswer: () => true,
        remoteAddress: null,
        timings: { dnsMs: null, connectMs: 0, tlsMs: 0 },
      };
    };
    const poster = createPoster({ egress: egressOf(connectLate), now: () => performance.now() });
    const result = await poster.post(postRequest(receiver.url(), { deadlineMs: 100 }));
    expect(result.errorCode).toBe("connect_timeout");
    pass();
    await receiver.waitForNoConnections();
    expect(receiver.requests).toEqual([]);
    expect(poster.gauges()).toMatchObject({ inFlight: 0, openConnections: 0 });
  });

  it("sends nothing on a connection that is made just as the deadline passes", async () => {
    const { receiver } = await setUp();
    const connectAtLast: Connect = async ({ port }, signal) => {
      const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", ca: receiver.caPem });
      await Promise.all([once(socket, "secureConnect"), once(signal, "abort")]);
      return {
        socket,
        allowAnswer: () => true,
        remoteAddress: null,
        timings: { dnsMs: null, connectMs: 0, tlsMs: 0 },
      };
    };
    const poster = createPoster({ egress: egressOf(connectAtLast), now: () => performance.now() });
    const result = await poster.post(postRequest(receiver.url(), { deadlineMs: 300 }));
    expect(result).toMatchObject({ errorCode: "connect_timeout", mayHaveWritten: false });
    await receiver.waitForNoConnections();
    expect(receiver.requests).toEqual([]);
  });

  it("sends nothing after its deadline, though the process was frozen and its timers have not run", async () => {
    const { receiver } = await setUp();
    let frozenMs = 0;
    const poster = createTestPoster({
      ports: [receiver.port],
      caPem: receiver.caPem,
      now: () => performance.now() + frozenMs,
      onConnected: () => {
        frozenMs = 3_600_000;
      },
    });
    open.push(poster);
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({ errorCode: "connect_timeout", mayHaveWritten: false });
    await receiver.waitForNoConnections();
    expect(receiver.requests).toEqual([]);
  });

  it("reports an error that nobody knows as unexpected", async () => {
    const connect = () => Promise.reject(new TypeError("a bug"));
    const poster = createPoster({ egress: egressOf(connect), now: () => performance.now() });
    const result = await poster.post(postRequest(new URL("https://example.com/")));
    expect(result).toMatchObject({ outcome: "unreachable", errorCode: "unexpected_failure" });
  });
});

describe("the deadline", () => {
  it("cuts the POST that is late, and no other to the same receiver", async () => {
    const slow = gate();
    const { receiver, poster } = await setUp({
      handler: async (request) => {
        if (request.path !== "/quick") await slow.passed;
        return {};
      },
    });
    const deadlineMs = patience(300);
    const latenessMs = watchLateness();
    const late = poster.post(postRequest(receiver.url("/late"), { deadlineMs }));
    const patient = poster.post(postRequest(receiver.url("/patient")));
    expect(await late).toMatchObject({
      outcome: "timed_out",
      errorCode: "response_timeout",
      statusCode: null,
      mayHaveWritten: true,
    });
    expect((await late).durationMs).toBeGreaterThanOrEqual(deadlineMs - 1);
    expect((await late).durationMs).toBeLessThan(deadlineMs + patience(100) + latenessMs());
    slow.pass();
    expect((await patient).outcome).toBe("succeeded");
  });

  it("cuts a body that is too slow, but the answer stands", async () => {
    const { receiver } = await setUp({
      handler: (_request, response) => {
        response.writeHead(200, { "content-length": 100 });
        response.write("begun");
        return undefined;
      },
    });
    const limits = { bodyReadMs: patience(100) };
    const poster = createTestPoster({ ports: [receiver.port], caPem: receiver.caPem, limits });
    open.push(poster);
    const latenessMs = watchLateness();
    const result = await poster.post(postRequest(receiver.url()));
    expect(result).toMatchObject({ outcome: "succeeded", responseExcerpt: "begun… [cut off]" });
    expect(result.durationMs).toBeLessThan(patience(500) + latenessMs());
    await receiver.waitForNoConnections();
  });
});

describe("closing the poster", () => {
  it("cuts what is in flight as possibly arrived, and what comes later as not sent", async () => {
    const { receiver, poster } = await setUp({ handler: () => new Promise(() => {}) });
    const posting = poster.post(postRequest(receiver.url()));
    await receiver.waitForRequests(1);
    await poster.close();
    expect(await posting).toMatchObject({
      outcome: "interrupted",
      errorCode: "shut_down",
      mayHaveWritten: true,
    });
    expect(await poster.post(postRequest(receiver.url()))).toMatchObject({
      outcome: "interrupted",
      errorCode: "shut_down",
      mayHaveWritten: false,
    });
    await receiver.waitForNoConnections();
    expect(receiver.requests).toHaveLength(1);
    expect(poster.gauges()).toEqual({
      inFlight: 0,
      openConnections: 0,
      idleConnections: 0,
      idleOrigins: 0,
    });
  });

  it("ends kept connections at once", async () => {
    const { receiver, poster } = await setUp();
    await poster.post(postRequest(receiver.url()));
    expect(poster.gauges().idleConnections).toBe(1);
    await poster.close();
    expect(poster.gauges().openConnections).toBe(0);
    await receiver.waitForNoConnections(1_000);
  });

  it("ends a connection that is being made", async () => {
    const aborted = gate();
    const connect: Connect = (_target, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          aborted.pass();
          reject(new Error("aborted"));
        });
      });
    const poster = createPoster({ egress: egressOf(connect), now: () => performance.now() });
    const posting = poster.post(postRequest(new URL("https://example.com/")));
    await poster.close();
    await aborted.passed;
    expect(await posting).toMatchObject({ errorCode: "shut_down", mayHaveWritten: false });
  });
});

describe("a request that cannot be sent", () => {
  it.each([
    ["a header that breaks the line", { "x-a": "b\r\nx-c: d" }],
    ["a host", { Host: "other.example" }],
    ["a transfer encoding", { "transfer-encoding": "chunked" }],
  ])("throws for %s, and sends nothing", async (_what, headers) => {
    const { receiver, poster } = await setUp();
    await expect(poster.post(postRequest(receiver.url(), { headers }))).rejects.toThrow();
    expect(poster.gauges().inFlight).toBe(0);
    expect((await poster.post(postRequest(receiver.url()))).outcome).toBe("succeeded");
    expect(receiver.requests).toHaveLength(1);
  });
});
