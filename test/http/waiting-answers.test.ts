// Answers that their clients do not read wait in memory: what all of them hold there has a limit, and every account its
// share of it.
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, test, vi } from "vitest";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import { ALL_SCOPES, createToyApi, type ToyApi } from "../support/api-toy-server.ts";
import { GREEDY_COUNTS } from "../support/fair-shares.ts";
import { openRaw, rawHead } from "../support/raw-http.ts";

/** More than the kernel's buffers take of it. */
const BYTES = 16 * 1_024 ** 2;
const TEXT = Buffer.from(`{"id":"${"x".repeat(BYTES - 9)}"}`);
/** So many such answers. All of them are the same bytes here, so that the test takes no more than one. */
const ANSWERS_MAX = 128;

let api: ToyApi;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await api.app.close();
  vi.restoreAllMocks();
});

const realNow = performance.now.bind(performance);
let aheadMs = 0;

/**
 * Its clock all but stands still: on a busy machine the first unread answers would else be still for so long, before
 * the last are asked for, that they make room.
 */
async function start(answersMax = ANSWERS_MAX): Promise<void> {
  aheadMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => aheadMs + realNow() / 100);
  api = await createToyApi({ transferLimits: { ...TRANSFER_LIMITS, answerBytesMax: answersMax * BYTES } });
  await api.listen();
}

/** Of an account that has a large text. */
function keyOf(accountId: string, userId: string | null = null): string {
  api.boxes.texts.set(`${accountId}/box`, TEXT);
  return api.keys.add({ accountId, userId, scopes: new Set(ALL_SCOPES) });
}

const LARGE = "/v1/boxes/box/text";
const SMALL = "/v1/boxes";
const get = (key: string, path: string, line = "GET") =>
  rawHead(`${line} ${path}`, { authorization: `Bearer ${key}` });
const ask = (key: string, path = LARGE, headers: Record<string, string> = {}) =>
  fetch(`http://127.0.0.1:${api.port()}${path}`, {
    headers: { authorization: `Bearer ${key}`, ...headers },
  });
const read = async (key: string, path = LARGE) => {
  const response = await ask(key, path);
  return [response.status, (await response.arrayBuffer()).byteLength];
};

type Unread = { readonly socket: Socket; readonly status: number };

/** Asks, and reads no further than to the status. */
async function begin(key: string): Promise<Unread> {
  const socket = connect(api.port(), "127.0.0.1");
  sockets.push(socket);
  socket.on("error", () => undefined);
  socket.write(get(key, LARGE));
  const [chunk] = await once(socket, "data");
  socket.pause();
  return { socket, status: Number(/^HTTP\/1\.1 (\d+) /.exec(String(chunk))![1]) };
}

/** As many as it gets. */
async function beginAll(key: string): Promise<Unread[]> {
  const unread: Unread[] = [];
  for (let last = await begin(key); ; last = await begin(key)) {
    if (last.status !== 200) return unread;
    unread.push(last);
    expect(unread.length, "of one account").toBeLessThanOrEqual(ANSWERS_MAX);
  }
}

describe.each(GREEDY_COUNTS)("beside %i accounts that read none of their answers", (count) => {
  test("all of them together hold no more than may be held, and another's answers come at once", async () => {
    await start();
    let held = 0;
    for (let n = 0; n < count; n++) {
      const unread = await beginAll(keyOf(`greedy-${n}`));
      expect(unread.length, `of account ${n}`).toBeGreaterThan(0);
      held += unread.length;
    }
    expect(held).toBeLessThanOrEqual(ANSWERS_MAX);
    const key = keyOf("victim");
    for (let n = 0; n < 3; n++) expect(await read(key)).toEqual([200, BYTES]);
  });
});

test("an account that holds its half is told so, and when to come again; what is small it gets", async () => {
  await start();
  const key = keyOf("greedy");
  expect(await beginAll(key)).toHaveLength(ANSWERS_MAX / 2);
  const refused = await ask(key);
  expect(refused.headers.get("ratelimit-policy")).toBe(
    `"answer-bytes";q=${(ANSWERS_MAX / 2) * BYTES};qu="content-bytes"`,
  );
  expect(refused.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
  expect(refused.headers.get("etag"), "of what was not sent").toBeNull();
  expect([refused.status, await refused.json()]).toEqual([
    429,
    expect.objectContaining({ code: "rate_limited" }),
  ]);
  const small = await ask(key, SMALL);
  expect(small.status).toBe(200);
  const whole = await ask(keyOf("other"));
  await whole.arrayBuffer();
  const headers = { "if-none-match": whole.headers.get("etag")! };
  expect((await ask(key, LARGE, headers)).status, "nothing to send").toBe(304);
});

test("a user who reads none has half of the account's share, and leaves the others in it theirs", async () => {
  await start(16);
  expect(await beginAll(keyOf("one", "greedy"))).toHaveLength(4);
  for (const key of [keyOf("one", "other"), keyOf("one")])
    for (let n = 0; n < 20; n++) expect(await read(key), `${n}`).toEqual([200, BYTES]);
});

test("what an answer holds is given back when its client goes, and when it has read it", async () => {
  await start();
  const key = keyOf("greedy");
  const [first, second] = await beginAll(key);
  expect((await ask(key)).status).toBe(429);
  first!.socket.destroy();
  await expect.poll(async () => (await begin(key)).status).toBe(200);
  expect((await ask(key)).status).toBe(429);
  second!.socket.resume();
  await expect.poll(async () => (await begin(key)).status).toBe(200);
});

test("nothing is held for long by those who read", async () => {
  await start(2);
  const key = keyOf("one");
  for (let n = 0; n < 5; n++) expect(await read(key)).toEqual([200, BYTES]);
});

test("without a key, pages count for the address", async () => {
  const more = Buffer.alloc(BYTES, "x").toString();
  const documents = [{ path: "/long" as const, title: "Long", html: async () => "", markdown: more }];
  const transferLimits = { ...TRANSFER_LIMITS, answerBytesMax: 4 * BYTES };
  api = await createToyApi({ transferLimits, documents });
  await api.listen();
  const open = async () => {
    const { socket, received } = await openRaw(api.port());
    sockets.push(socket);
    socket.write(rawHead("GET /long", {}));
    await expect.poll(received, { interval: 1 }).toMatch(/^HTTP\/1\.1 \d+ /);
    socket.pause();
    return received().slice(9, 12);
  };
  expect([await open(), await open(), await open()]).toEqual(["200", "200", "429"]);
  expect(await read(keyOf("one"))).toEqual([200, BYTES]);
});

test("one that is hardly read makes room for an account that has none", async () => {
  await start(2);
  const unread = [await begin(keyOf("a")), await begin(keyOf("b"))];
  expect(unread.map(({ status }) => status)).toEqual([200, 200]);
  expect(await read(keyOf("early"))).toEqual([503, expect.any(Number)]);
  aheadMs = 11_000;
  expect(await read(keyOf("victim"))).toEqual([200, BYTES]);
  await expect.poll(() => api.connections.open).toBeLessThan(4);
});

describe("pipelined requests", () => {
  /** How many have been begun, and lets the next of them go on. */
  function gated() {
    const waiting: (() => void)[] = [];
    let begun = 0;
    api.boxes.gate = () => {
      begun++;
      return new Promise((resolve) => waiting.push(resolve));
    };
    return { begun: () => begun, next: () => waiting.shift()!() };
  }

  test("are worked on one after the other", async () => {
    await start();
    const { begun, next } = gated();
    const key = keyOf("one");
    const { socket, received } = await openRaw(api.port());
    socket.write(get(key, SMALL).repeat(3));
    for (let n = 1; n <= 3; n++) {
      await expect.poll(begun).toBe(n);
      await expect(ask(key, "/v1/boxes/unknown/text"), "time for another").resolves.toBeDefined();
      expect(begun()).toBe(n);
      next();
    }
    await expect.poll(() => received().match(/HTTP\/1\.1 200 /g)).toHaveLength(3);
  });

  test("begin once the answer before has left", async () => {
    await start();
    const { begun, next } = gated();
    const key = keyOf("one");
    const socket = connect(api.port(), "127.0.0.1");
    sockets.push(socket);
    socket.write(get(key, LARGE) + get(key, SMALL));
    await once(socket, "data");
    socket.pause();
    for (let n = 0; n < 5; n++) await ask(key, "/v1/boxes/unknown/text");
    expect(begun()).toBe(0);
    socket.resume();
    await expect.poll(begun).toBe(1);
    next();
  });

  test("are not begun after one that ends the connection, nor once the client has gone", async () => {
    await start();
    const { begun, next } = gated();
    const key = keyOf("one");
    const last = get(key, SMALL).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    const closing = await openRaw(api.port());
    closing.socket.write(last + get(key, SMALL));
    await expect.poll(begun).toBe(1);
    next();
    expect((await closing.ended).match(/HTTP\/1\.1 /g)).toHaveLength(1);
    const leaving = await openRaw(api.port());
    leaving.socket.write(get(key, SMALL).repeat(2));
    await expect.poll(begun).toBe(2);
    leaving.socket.destroy();
    await expect.poll(() => api.connections.open).toBe(0);
    next();
    await ask(key, "/v1/boxes/unknown/text");
    expect(begun()).toBe(2);
  });
});
