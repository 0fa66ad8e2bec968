import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { Readable } from "node:stream";
import { gunzipSync } from "node:zlib";
import { describe, expect, onTestFinished, test } from "vitest";
import { trustedProxies } from "../../src/app/api-server.ts";
import { type ConnectionCut, createLimitedServer } from "../../src/http/connections.ts";
import {
  CONNECTION_LIMITS,
  CONNECTIONS_CHECKED_EVERY_MS,
  type ConnectionLimits,
  HEADERS_WITHIN_MS,
  PIPELINED_BODY_BYTES_MAX,
  PIPELINED_REQUESTS_MAX,
} from "../../src/http/limits.ts";
import { createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";
import { patience } from "../support/time-limits.ts";

const SCRIPT = "/reference/js/scalar.js";
/** Half a second without progress is too long. */
const QUICK = { sendWithinMs: 500, sendCheckedEveryMs: 50 };

let api: ToyApi;

async function start(limits: Partial<ConnectionLimits> = {}, overrides: ToyOverrides = {}): Promise<string> {
  api = await createToyApi({ connectionLimits: { ...CONNECTION_LIMITS, ...limits }, ...overrides });
  onTestFinished(() => api.app.close());
  return await api.listen();
}

async function open(localAddress = "127.0.0.1", port = api.port()): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", localAddress });
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => undefined);
  await once(socket, "connect");
  return socket;
}

const request = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
const whenClosed = async (socket: Socket): Promise<void> => {
  if (!socket.closed) await once(socket.resume(), "close");
};

describe("a client that hardly reads", () => {
  test("is cut off", async () => {
    await start(QUICK);
    const socket = await open();
    socket.pause();
    socket.write(request(SCRIPT));
    await expect.poll(() => api.connections).toMatchObject({ cut: ["slow_reader"], open: 0 });
    expect(api.faults).toEqual([]);
  });

  test("is cut off though a byte leaves now and then", async () => {
    await start(QUICK);
    const socket = await open();
    socket.on("readable", () => undefined);
    const reading = setInterval(() => socket.read(1), 20);
    socket.write(request(SCRIPT));
    await expect.poll(() => api.connections.cut).toEqual(["slow_reader"]);
    clearInterval(reading);
  });

  test("but reads on gets everything, for however long that takes", async () => {
    const sendWithinMs = patience(1_000);
    const cuts: ConnectionCut[] = [];
    let [startMs, sentBytes] = [0, 0];
    // More than the kernel's buffers hold, which take nothing until a third of them is free.
    const server = createLimitedServer(
      {
        http: {},
        isTrustedProxy: () => false,
        connectionLimits: { ...CONNECTION_LIMITS, sendWithinMs, sendCheckedEveryMs: 50 },
        onConnections: () => undefined,
        onConnectionRefused: () => undefined,
        onConnectionCut: (reason) => cuts.push(reason),
      },
      (_request, response) => {
        startMs = performance.now();
        const chunk = Buffer.alloc(64 * 1024);
        new Readable({
          read() {
            const isOver = performance.now() - startMs > 5 * sendWithinMs;
            if (!isOver) sentBytes += chunk.length;
            this.push(isOver ? null : chunk);
          },
        }).pipe(response);
      },
    );
    onTestFinished(() => void server.close());
    await once(server.listen(0, "127.0.0.1"), "listening");
    const socket = await open("127.0.0.1", (server.address() as AddressInfo).port);
    let readBytes = 0;
    socket.on("data", (chunk) => {
      readBytes += chunk.length;
      socket.pause();
      setTimeout(() => socket.resume(), 5);
    });
    socket.write(`${request("/").trim()}\r\nConnection: close\r\n\r\n`);
    await once(socket, "end");
    expect(readBytes).toBeGreaterThan(sentBytes);
    expect(cuts).toEqual([]);
  });
});

describe("connections", () => {
  test("of one address are limited, and of another are not in their way", async () => {
    await start({ perAddressMax: 3 });
    const own = [await open(), await open(), await open()];
    await whenClosed(await open());
    expect(api.connections).toMatchObject({ refused: ["address"], open: 3 });
    const other = await open("127.0.0.2");
    other.write(request("/healthz"));
    expect(String(await once(other, "data"))).toMatch(/^HTTP\/1\.1 200 /);
    // A place that is left is free again.
    own[0]?.destroy();
    await expect.poll(() => api.connections.open).toBe(3);
    const next = await open();
    next.write(request("/healthz"));
    expect(String(await once(next, "data"))).toMatch(/^HTTP\/1\.1 200 /);
  });

  test.each([[["127.0.0.0/30"]], [1]])(
    "of a trusted proxy (%j) are not limited by address",
    async (proxies) => {
      await start({ perAddressMax: 1 }, { isTrustedProxy: trustedProxies(proxies) });
      await open();
      const second = await open();
      second.write(request("/healthz"));
      expect(String(await once(second, "data"))).toMatch(/^HTTP\/1\.1 200 /);
      expect(api.connections.refused).toEqual([]);
    },
  );

  test("are limited in all", async () => {
    await start({ connectionsMax: 2 }, { isTrustedProxy: trustedProxies(1) });
    const first = await open();
    await open();
    await whenClosed(await open());
    expect(api.connections).toMatchObject({ refused: ["all"], open: 2 });
    first.write(request("/healthz"));
    expect(String(await once(first, "data"))).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("that send nothing, or the beginning of a head for ever, are closed", async () => {
    await start();
    expect(api.app.server).toMatchObject({ headersTimeout: HEADERS_WITHIN_MS });
    const startMs = performance.now();
    const mute = await open();
    const dripping = await open();
    dripping.write("GET /healthz HTTP/1.1\r\nHost: x\r\n");
    const drips = setInterval(() => dripping.write("a: b\r\n"), 200);
    await Promise.all([whenClosed(mute), whenClosed(dripping)]);
    clearInterval(drips);
    const slackMs = patience(3_000);
    expect(performance.now() - startMs).toBeLessThan(
      HEADERS_WITHIN_MS + CONNECTIONS_CHECKED_EVERY_MS + slackMs,
    );
  });
});

describe("pipelined requests", () => {
  test("are answered in order, as many as may wait", async () => {
    await start();
    const socket = await open();
    const paths = Array.from({ length: PIPELINED_REQUESTS_MAX }, (_, n) =>
      n % 2 ? "/healthz" : "/v1/nothing",
    );
    socket.write(paths.map(request).join(""));
    let got = "";
    socket.on("data", (chunk) => {
      got += chunk;
    });
    const statuses = () => got.match(/HTTP\/1\.1 \d+/g)?.map((line) => line.slice(-3));
    await expect.poll(statuses).toEqual(paths.map((path) => (path === "/healthz" ? "200" : "404")));
    expect(api.connections.cut).toEqual([]);
  });

  test("are cut off beyond that, and not worked on", async () => {
    const { promise: left, resolve: leave } = Promise.withResolvers<void>();
    let counted = 0;
    await start(
      {},
      {
        countRequest: async () => {
          counted += 1;
          await left;
          return { requests: 1, resetMs: 1_000 };
        },
      },
    );
    const socket = await open();
    socket.write(request("/v1/nothing").repeat(5_000));
    await expect.poll(() => api.connections).toMatchObject({ cut: ["pipelining"], open: 0 });
    leave();
    expect(counted).toBe(1);
  });

  test.each([
    ["are cut off with more of bodies than may wait", `content-length: ${PIPELINED_BODY_BYTES_MAX}`, 1, true],
    ["are cut off with a body whose length nobody knows", "transfer-encoding: chunked", 0, true],
    ["may have small bodies", `content-length: ${PIPELINED_BODY_BYTES_MAX}`, 0, false],
  ])("%s", async (_name, length, more, isCut) => {
    const { promise: left, resolve: leave } = Promise.withResolvers<void>();
    await start({}, { countRequest: () => left.then(() => ({ requests: 1, resetMs: 1_000 })) });
    const socket = await open();
    const post = (header: string) => `POST /v1/boxes HTTP/1.1\r\nHost: x\r\n${header}\r\n\r\n`;
    const body = "x".repeat(Number(length.split(": ")[1]) || 0);
    socket.write(request("/v1/nothing") + post(length) + body);
    socket.write(more ? `${post("content-length: 1")}x` : request("/v1/nothing"));
    if (isCut) await expect.poll(() => api.connections).toMatchObject({ cut: ["pipelining"], open: 0 });
    leave();
    if (isCut) return;
    let got = "";
    socket.on("data", (chunk) => {
      got += chunk;
    });
    await expect.poll(() => got.match(/HTTP\/1\.1 \d+/g)).toHaveLength(3);
    expect(api.connections.cut).toEqual([]);
  });
});

describe("the reference's script", () => {
  const get = (url: string, acceptEncoding: string): Promise<Response> =>
    fetch(url + SCRIPT, { headers: { "accept-encoding": acceptEncoding } });

  test.each([
    ["gzip", true],
    ["br, GZIP;q=0.5", true],
    ["gzip;q=0", false],
    ["gzip; q=0.000", false],
    ["gzipped, x-gzip", false],
    ["identity", false],
    ["*", false],
  ])("is compressed for who accepts it: %s", async (acceptEncoding, isCompressed) => {
    const url = await start();
    const response = await get(url, acceptEncoding);
    expect(response.headers.get("content-encoding")).toBe(isCompressed ? "gzip" : null);
    expect(response.headers.get("vary")).toBe("accept-encoding");
    expect(response.headers.get("cache-control")).toBe("public, max-age=3600");
    const sent = Number(response.headers.get("content-length"));
    expect(isCompressed ? sent < 1_500_000 : sent > 4_000_000).toBe(true);
    expect((await response.text()).length).toBeGreaterThan(4_000_000);
  });

  test("has the same bytes either way", async () => {
    await start();
    const read = async (headers: Record<string, string>) =>
      (await api.app.inject({ url: SCRIPT, headers })).rawPayload;
    const plain = await read({});
    expect(gunzipSync(await read({ "accept-encoding": "gzip" })).equals(plain)).toBe(true);
  });
});
