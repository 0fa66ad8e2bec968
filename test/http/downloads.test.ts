import { randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { parse } from "content-disposition";
import { afterEach, describe, expect, test } from "vitest";
import { CONNECTION_LIMITS, TRANSFER_LIMITS, type TransferLimits } from "../../src/http/limits.ts";
import type { Content } from "../../src/http/operation.ts";
import { expectProblem } from "../support/api-expect.ts";
import {
  ADA,
  ALL_SCOPES,
  BOB,
  createToyApi,
  type ToyApi,
  type ToyOverrides,
} from "../support/api-toy-server.ts";
import { openRaw, type RawConnection, rawHead } from "../support/raw-http.ts";

const BYTES = Buffer.from("What is in the box?");
const PATH = "/v1/boxes/box-1/file";
const TAG = '"v1"';

let api: ToyApi;
let connections: RawConnection[] = [];
afterEach(async () => {
  for (const { socket } of connections) socket.destroy();
  connections = [];
  await api.app.close();
});

/** The sources that were opened. */
let opened: Readable[] = [];

async function start(
  file: Partial<Content> & { readonly of?: Buffer } = {},
  limits: Partial<TransferLimits> = {},
  overrides: ToyOverrides = {},
): Promise<void> {
  opened = [];
  api = await createToyApi({ transferLimits: { ...TRANSFER_LIMITS, ...limits }, ...overrides });
  await api.listen();
  const { of: bytes = BYTES, ...more } = file;
  put("box-1", ADA, {
    bytes: bytes.length,
    open: async ({ first, last }) => source([bytes.subarray(first, last + 1)]),
    ...more,
  });
}

function put(id: string, accountId: string, file: Pick<Content, "bytes" | "open"> & Partial<Content>): void {
  const tagged = { mediaType: "text/plain", etag: "v1", fileName: "what.txt", ...file };
  api.boxes.files.set(`${accountId}/${id}`, tagged);
}

function source(chunks: Iterable<Buffer> | AsyncIterable<Buffer>): Readable {
  const stream = Readable.from(chunks);
  opened.push(stream);
  return stream;
}

type Get = { readonly method?: string; readonly path?: string; readonly key?: string };

function get(headers: Record<string, string> = {}, { method = "GET", path = PATH, key }: Get = {}) {
  const url = `http://127.0.0.1:${api.port()}${path}`;
  return fetch(url, { method, headers: { authorization: `Bearer ${key ?? api.key}`, ...headers } });
}

async function open(headers: Record<string, string> = {}): Promise<RawConnection> {
  const connection = await openRaw(api.port());
  connections.push(connection);
  connection.socket.write(rawHead(`GET ${PATH}`, { authorization: `Bearer ${api.key}`, ...headers }));
  return connection;
}

/** What is not the request's own. */
function told({ headers }: Response): Record<string, string | null> {
  const names = ["content-length", "content-range", "etag", "content-type"];
  return Object.fromEntries(names.map((name) => [name, headers.get(name)]));
}

describe("a file", () => {
  test("is answered as it is, and can do nothing as a page of ours", async () => {
    const bytes = randomBytes(3_000_001);
    await start({ of: bytes, mediaType: "text/html;charset=utf-8" });
    const response = await get();
    expect(response.status).toBe(200);
    expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-length": "3000001",
      "content-type": "text/html;charset=utf-8",
      "content-disposition": "attachment; filename=what.txt",
      "content-security-policy": "sandbox; default-src 'none'",
      "x-content-type-options": "nosniff",
      "cache-control": "private, no-cache",
      "accept-ranges": "bytes",
      etag: TAG,
    });
    expect(opened).toMatchObject([{ destroyed: true }]);
  });

  test("may be empty, and is not opened then", async () => {
    await start({ of: Buffer.alloc(0) });
    const response = await get();
    expect([response.status, response.headers.get("content-length"), await response.text()]).toEqual([
      200,
      "0",
      "",
    ]);
    expect((await get({ range: "bytes=0-" })).status).toBe(416);
    expect(opened).toEqual([]);
  });

  test("is described by HEAD, which opens nothing and knows no ranges", async () => {
    await start();
    const [read, head] = [await get(), await get({ range: "bytes=0-1" }, { method: "HEAD" })];
    expect([head.status, await head.text()]).toEqual([200, ""]);
    expect(told(head)).toEqual(told(read));
    expect((await get({ "if-none-match": TAG }, { method: "HEAD" })).status).toBe(304);
    expect(opened).toHaveLength(1);
  });

  test("that its reader has is 304, even in part", async () => {
    await start();
    for (const more of [{}, { range: "bytes=0-1" }, { range: "bytes=900-" }]) {
      const response = await get({ "if-none-match": `"v0", ${TAG}`, ...more });
      expect([response.status, response.headers.get("etag"), await response.text()]).toEqual([304, TAG, ""]);
    }
    expect((await get({ "if-none-match": '"v0"' })).status).toBe(200);
    expect(opened).toHaveLength(1);
  });

  test("of another account, or none, is 404", async () => {
    await start();
    const bob = api.keys.add({ accountId: BOB, scopes: new Set(ALL_SCOPES) });
    await expectProblem(await get({}, { key: bob }), 404, "not_found");
    await expectProblem(await get({ range: "bytes=0-1" }, { path: "/v1/boxes/none/file" }), 404, "not_found");
  });
});

describe("Range", () => {
  test.each([
    ["bytes=0-3", "What", "bytes 0-3/19"],
    ["bytes=15-", "box?", "bytes 15-18/19"],
    ["bytes=-4", "box?", "bytes 15-18/19"],
    ["bytes=15-900", "box?", "bytes 15-18/19"],
    ["bytes=-900", BYTES.toString(), "bytes 0-18/19"],
  ])("%s is 206", async (range, text, contentRange) => {
    await start();
    const response = await get({ range });
    expect([response.status, await response.text()]).toEqual([206, text]);
    expect(told(response)).toMatchObject({
      "content-range": contentRange,
      "content-length": String(text.length),
    });
    expect(response.headers.get("accept-ranges")).toBe("bytes");
  });

  test.each(["bytes=0-1,3-4", "bytes=4-3", "items=0-1", "bytes=x"])("%s is all of it", async (range) => {
    await start();
    const response = await get({ range });
    expect([response.status, await response.text()]).toEqual([200, BYTES.toString()]);
    expect(response.headers.get("content-range")).toBeNull();
  });

  test("beyond the end is 416, and tells the end", async () => {
    await start();
    const response = await get({ range: "bytes=19-" });
    expect(response.headers.get("content-range")).toBe("bytes */19");
    expect(response.headers.get("content-disposition")).toBeNull();
    await expectProblem(response, 416, "range_not_satisfiable");
  });

  test.each([
    [TAG, 206],
    ['"v0"', 200],
    [`W/${TAG}`, 200],
    ["Wed, 21 Oct 2026 07:28:00 GMT", 200],
    ["*", 200],
  ])("counts only if If-Range is the current tag: %s", async (ifRange, status) => {
    await start();
    expect((await get({ range: "bytes=0-3", "if-range": ifRange })).status).toBe(status);
    expect((await get({ range: "bytes=900-", "if-range": ifRange })).status).toBe(status === 206 ? 416 : 200);
  });
});

describe("a file's name", () => {
  test.each<[string, string]>([
    ["plain.pdf", "plain.pdf"],
    ['he said "no".pdf', 'he said "no".pdf'],
    ["back\\slash.pdf", "back_slash.pdf"],
    ["../../etc/passwd", ".._.._etc_passwd"],
    ["a\r\nSet-Cookie: x=1\r\n.pdf", "a__Set-Cookie: x=1__.pdf"],
    ["nul\u0000del\u007fnext\u0085line.pdf", "nul_del_next_line.pdf"],
    ["Bäume und €.pdf", "Bäume und €.pdf"],
    ["東京.pdf", "東京.pdf"],
    ["\u202egpj.exe", "_gpj.exe"],
    ["50%41.pdf", "50%41.pdf"],
    ["a;b=c, d*=e.pdf", "a;b=c, d*=e.pdf"],
    ["\ud800.pdf", "\ufffd.pdf"],
    ["é".repeat(127), "é".repeat(127)],
    ["x".repeat(255), "x".repeat(255)],
    ["", ""],
  ])("arrives, and breaks no header: %j", async (fileName, arrived) => {
    await start({ fileName });
    const { headers } = await get();
    const disposition = headers.get("content-disposition") ?? "";
    expect(disposition).toMatch(/^attachment; filename="?[\x20-\x7e]*$/);
    expect(parse(disposition)).toMatchObject({ type: "attachment", parameters: { filename: arrived } });
    expect(headers.get("set-cookie")).toBeNull();
  });
});

describe("a source", () => {
  /** Slices of it are sent before it goes wrong. */
  const some = Buffer.alloc(200_000, "x");
  const whole = some.length * 2;

  test.each<[string, () => AsyncGenerator<Buffer>]>([
    [
      "fails in the middle",
      async function* () {
        yield some;
        throw new Error("the store broke");
      },
    ],
    [
      "ends too soon",
      async function* () {
        yield some;
      },
    ],
    [
      "gives too much",
      async function* () {
        yield some;
        yield Buffer.alloc(some.length + 1);
      },
    ],
    [
      "gives nothing any more",
      async function* () {
        yield some;
        await new Promise(() => {});
      },
    ],
  ])("that %s breaks the connection, and is told of", async (_name, chunks) => {
    await start({ bytes: whole, open: async () => source(chunks()) }, { progressWithinMs: 200 });
    const { ended } = await open();
    const [head = "", body = ""] = (await ended).split("\r\n\r\n");
    expect(head).toContain(`content-length: ${whole}`);
    expect(body.length).toBeLessThan(whole);
    expect(api.faults).toHaveLength(1);
    await expect.poll(() => opened).toMatchObject([{ destroyed: true }]);
    await expect.poll(() => api.connections.open).toBe(0);
  });

  test.each<[string, Content["open"], number]>([
    ["is not there", () => Promise.reject(new Error("no such object")), 500],
    [
      "fails at its first byte",
      async () =>
        source(
          // biome-ignore lint/correctness/useYield: it fails before.
          (async function* () {
            throw new Error("no such object");
          })(),
        ),
      500,
    ],
    ["is empty", async () => source([]), 500],
  ])("that %s is an error like any other", async (_name, openSource, status) => {
    await start({ open: openSource });
    const response = await get({ range: "bytes=0-3" });
    for (const name of ["content-disposition", "content-range", "etag", "accept-ranges"])
      expect(response.headers.get(name), name).toBeNull();
    await expectProblem(response, status, "internal_error");
    // The connection is as good as before.
    expect((await get({}, { path: "/healthz" })).status).toBe(200);
  });

  test("is let go when the reader goes away", async () => {
    const endless = async function* () {
      for (;;) yield some;
    };
    await start({ bytes: 1e12, open: async () => source(endless()) });
    const { socket, received } = await open();
    await expect.poll(() => received().length).toBeGreaterThan(some.length);
    socket.destroy();
    await expect.poll(() => opened).toMatchObject([{ destroyed: true }]);
    expect(api.faults).toEqual([]);
  });

  test("is let go when the reader goes away while it gives nothing", async () => {
    const stuck = async function* () {
      yield some;
      await new Promise(() => {});
    };
    await start({ bytes: 1e12, open: async () => source(stuck()) });
    const { socket, received } = await open();
    await expect.poll(() => received().length).toBeGreaterThan(some.length);
    socket.destroy();
    await expect.poll(() => opened).toMatchObject([{ destroyed: true }]);
  });
});

describe("a reader that goes away", () => {
  const half = Buffer.alloc(200_000, "x");

  test("before the source is open has it let go, and gives its place back", async () => {
    const [opening, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const openSource = async () => {
      opening.resolve();
      await gate.promise;
      return source([half, half]);
    };
    await start({ bytes: 2 * half.length, open: openSource }, { downloadsMax: 2 });
    const { socket } = await open();
    await opening.promise;
    socket.destroy();
    await expect.poll(() => api.connections.open).toBe(0);
    gate.resolve();
    await expect.poll(() => opened).toMatchObject([{ destroyed: true }]);
    expect(api.faults).toEqual([]);
    await expect.poll(async () => (await (await get()).bytes()).length).toBe(2 * half.length);
  });

  test("with requests that wait behind one another has its one source let go, and no other opened", async () => {
    await start({ bytes: 1e12, open: async () => source(Array(10).fill(half)) });
    const { socket } = await open();
    for (let n = 1; n < 4; n++) socket.write(rawHead(`GET ${PATH}`, { authorization: `Bearer ${api.key}` }));
    socket.pause();
    await expect.poll(() => opened.length).toBe(1);
    socket.destroy();
    await expect.poll(() => api.connections.open).toBe(0);
    await expect.poll(() => opened).toMatchObject([{ destroyed: true }]);
  });
});

test("a reader that hardly reads is cut off, and its source let go", async () => {
  const endless = async function* () {
    for (;;) yield Buffer.alloc(100_000);
  };
  const connectionLimits = { ...CONNECTION_LIMITS, sendWithinMs: 500, sendCheckedEveryMs: 50 };
  await start({ bytes: 1e12, open: async () => source(endless()) }, {}, { connectionLimits });
  const { socket } = await open();
  socket.pause();
  await expect.poll(() => api.connections.cut).toEqual(["slow_reader"]);
  await expect.poll(() => opened).toMatchObject([{ destroyed: true }]);
});

test("downloads at a time are limited by account, and a place is free again when one is over", async () => {
  const gate = Promise.withResolvers<void>();
  const gated = async function* () {
    yield BYTES.subarray(0, 4);
    await gate.promise;
    yield BYTES.subarray(4);
  };
  await start({ open: async () => source(gated()) }, { downloadsMax: 4 });
  const running = [await get(), await get()];
  const refused = await get();
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "5"]);
  expect(refused.headers.get("ratelimit-policy")).toBe('"downloads";q=2;qu="concurrent-requests"');
  expect((await get({}, { method: "HEAD" })).status).toBe(200);
  gate.resolve();
  for (const each of running) expect(await each.text()).toBe(BYTES.toString());
  await expect.poll(async () => (await get()).status).toBe(200);
});
