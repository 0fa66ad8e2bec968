// Bodies are read into memory: what all of them hold there has a limit, and every account its share of it.
import { afterEach, describe, expect, test, vi } from "vitest";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ALL_SCOPES, createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";
import { GREEDY_COUNTS } from "../support/fair-shares.ts";
import { openRaw, type RawConnection, rawHead } from "../support/raw-http.ts";

const KIB = 1_024;
const BYTES_MAX = 1_024 * KIB;
/** What each of the greedy announces, of which it sends little. */
const ANNOUNCED = 8 * KIB;
const BODY = JSON.stringify({ color: "red", note: "x".repeat(30) });

let api: ToyApi;
const connections: RawConnection[] = [];
afterEach(async () => {
  for (const { socket } of connections.splice(0)) socket.destroy();
  await api.app.close();
  vi.restoreAllMocks();
});

async function start(bufferedBodyBytesMax = BYTES_MAX, overrides: ToyOverrides = {}): Promise<void> {
  api = await createToyApi({ transferLimits: { ...TRANSFER_LIMITS, bufferedBodyBytesMax }, ...overrides });
  await api.listen();
}

const keyOf = (accountId: string, userId: string | null = null) =>
  api.keys.add({ accountId, userId, scopes: new Set(ALL_SCOPES) });
const urlOf = (path: string) => `http://127.0.0.1:${api.port()}${path}`;

let posted = 0;
async function post(key: string, body = BODY): Promise<Response> {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "idempotency-key": `post-${posted++}`,
  };
  return await fetch(urlOf("/v1/boxes"), { method: "POST", headers, body });
}

/** Begins a body that does not end; resolves once it is refused (with the answer), or held (with ""). */
async function begin(key: string, length: number | null = ANNOUNCED): Promise<RawConnection> {
  const connection = await openRaw(api.port());
  connections.push(connection);
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
    "idempotency-key": `begun-${posted++}`,
    "content-length": length,
    "transfer-encoding": length === null ? "chunked" : null,
    expect: "100-continue",
  };
  connection.socket.write(rawHead("POST /v1/boxes", headers));
  await expect.poll(connection.received, { interval: 1 }).toMatch(/^HTTP\/1\.1 \d+ /);
  return connection;
}

const isHeld = ({ received }: RawConnection) => received().startsWith("HTTP/1.1 100 ");

/** As many as it gets. */
async function beginAll(key: string, length?: number | null): Promise<RawConnection[]> {
  const held: RawConnection[] = [];
  for (let last = await begin(key, length); ; last = await begin(key, length)) {
    if (!isHeld(last)) return held;
    held.push(last);
  }
}

describe.each(GREEDY_COUNTS)("beside %i accounts whose bodies never end", (count) => {
  test("all of them together hold no more than may be held, and another's are read at once", async () => {
    await start();
    let held = 0;
    for (let n = 0; n < count; n++) {
      const begun = await beginAll(keyOf(`greedy-${n}`));
      expect(begun.length, `of account ${n}`).toBeGreaterThan(0);
      held += begun.length;
    }
    expect(held * ANNOUNCED).toBeLessThanOrEqual(BYTES_MAX);
    const key = keyOf("victim");
    for (let n = 0; n < 20; n++) expect((await post(key)).status).toBe(201);
    const large = JSON.stringify({ color: "red", note: "x".repeat(60 * KIB) });
    expect((await post(key, large)).status, "read, and refused for what it says").toBe(400);
  });
});

test("an account that holds its half is told so, and when to come again", async () => {
  await start();
  const key = keyOf("greedy");
  const held = await beginAll(key);
  expect(held.length).toBe(BYTES_MAX / 2 / ANNOUNCED);
  const refused = await post(key);
  expect(refused.headers.get("ratelimit-policy")).toBe(`"body-bytes";q=${BYTES_MAX / 2};qu="content-bytes"`);
  expect(refused.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
  expect([refused.status, await refused.json()]).toEqual([
    429,
    expect.objectContaining({ code: "rate_limited" }),
  ]);
  held[0]!.socket.destroy();
  await expect.poll(async () => (await post(key)).status).toBe(201);
});

test("a user whose bodies never end has half of the account's share, and leaves the others in it theirs", async () => {
  await start();
  const greedy = keyOf("one", "greedy");
  const held = await beginAll(greedy);
  expect(held.length).toBe(BYTES_MAX / 4 / ANNOUNCED);
  expect((await post(greedy)).headers.get("ratelimit-policy")).toContain(`q=${BYTES_MAX / 4};`);
  const large = JSON.stringify({ color: "red" }).padEnd(60 * KIB);
  for (const key of [keyOf("one", "other"), keyOf("one")])
    for (let n = 0; n < 20; n++) expect((await post(key, large)).status, `${n}`).toBe(201);
});

test("a body in chunks counts as long as it may become", async () => {
  await start();
  const held = await beginAll(keyOf("greedy"), null);
  expect(held.length).toBe(Math.floor(BYTES_MAX / 2 / (64 * KIB)));
});

test("a body whose client has gone is held until what is done with it has ended", async () => {
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  const { promise: begun, resolve: tell } = Promise.withResolvers<void>();
  await start(100);
  api.boxes.gate = () => {
    tell();
    return gate;
  };
  const key = keyOf("one");
  const { socket } = await begin(key, BODY.length);
  socket.write(BODY);
  await begun;
  socket.destroy();
  await expect.poll(() => api.connections.open).toBe(0);
  expect((await post(key)).status).toBe(429);
  open();
  await expect.poll(async () => (await post(key)).status).toBe(201);
});

test("one that is refused for its key is not read", async () => {
  await start(10);
  await expectProblem(await post("svc_test_unknown"), 401, "unauthorized");
});

test("one that trickles makes room for an account that has none, and is told why", async () => {
  await start(2 * KIB);
  const [first] = [await begin(keyOf("a"), 1_000), await begin(keyOf("b"), 1_000)];
  const realNow = performance.now.bind(performance);
  vi.spyOn(performance, "now").mockImplementation(() => realNow() + 11_000);
  expect((await post(keyOf("victim"), `${BODY}${" ".repeat(1_000 - BODY.length)}`)).status).toBe(201);
  await expect.poll(first!.received).toMatch(/\r\nHTTP\/1\.1 503 /);
});

test("bytes that come one by one come to the body that they are", async () => {
  await start();
  const connection = await begin(keyOf("one"), null);
  const { socket, received } = connection;
  const text = JSON.stringify({ color: "red", note: "é".repeat(10) });
  for (const byte of Buffer.from(`${text}${" ".repeat(40_000)}`))
    socket.write(Buffer.concat([Buffer.from("1\r\n"), Buffer.of(byte), Buffer.from("\r\n")]));
  socket.write("0\r\n\r\n");
  await expect.poll(received).toContain("HTTP/1.1 201 ");
  expect([...api.boxes.rows.values()].map(({ color }) => color)).toEqual(["red"]);
});

test("a connection that breaks with several requests under way keeps nothing", async () => {
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  let atWork = 0;
  await start(4 * KIB);
  api.boxes.gate = () => {
    atWork++;
    return gate;
  };
  const key = keyOf("one");
  const { socket } = await begin(key, BODY.length);
  socket.write(BODY);
  for (let n = 0; n < 8; n++) {
    const headers = {
      authorization: `Bearer ${key}`,
      "content-type": n === 3 ? "text/plain" : "application/json",
      "idempotency-key": `next-${n}`,
      "content-length": n === 7 ? 300 : 200,
    };
    socket.write(rawHead("POST /v1/boxes", headers) + (n === 7 ? "{" : BODY.padEnd(200)));
  }
  await expect.poll(() => atWork).toBeGreaterThan(2);
  socket.destroy();
  open();
  await expect.poll(() => api.connections.open).toBe(0);
  // All of it is for an account that has none of it.
  await expect.poll(async () => isHeld(await begin(key, 4 * KIB))).toBe(true);
});
