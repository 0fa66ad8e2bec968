// Greedy accounts open all the uploads and downloads that they get, and hardly move any.
import { Readable } from "node:stream";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { TRANSFER_LIMITS, type TransferLimits } from "../../src/http/limits.ts";
import { ALL_SCOPES, createToyApi, type ToyApi } from "../support/api-toy-server.ts";
import { expectItsTurn, GREEDY_COUNTS } from "../support/fair-shares.ts";
import { fileHeaders } from "../support/file-headers.ts";
import { openRaw, type RawConnection, rawHead } from "../support/raw-http.ts";

const BYTES = Buffer.from("What is in the box?");
/** More than anybody gets of the places that are free when it comes. */
const WANTED = 150;

let apis: ToyApi[] = [];
let connections: RawConnection[] = [];
let aheadMs = 0;
let loaded: ToyApi;
let quiet: ToyApi;
beforeEach(async () => {
  [loaded, quiet] = [await start(), await start()];
});
afterEach(async () => {
  for (const { socket } of connections) socket.destroy();
  await Promise.all(apis.map(({ app }) => app.close()));
  vi.restoreAllMocks();
  [apis, connections, aheadMs] = [[], [], 0];
});

async function start(limits: Partial<TransferLimits> = {}): Promise<ToyApi> {
  const api = await createToyApi({ transferLimits: { ...TRANSFER_LIMITS, ...limits } });
  await api.listen();
  apis.push(api);
  return api;
}

/** A key of an account that has a box, and in it a file. Both are named so, or it is another's or a user's. */
function account(
  api: ToyApi,
  name: string,
  fileBytes = BYTES.length,
  { accountId = name, userId = null }: { accountId?: string; userId?: string | null } = {},
): string {
  api.boxes.rows.set(`box-${name}`, {
    id: `box-${name}`,
    color: "red",
    weight: null,
    made_at: "2026-01-02T03:04:05.678Z",
    accountId,
  });
  const chunk = Buffer.alloc(65_536);
  function* chunks() {
    for (let left = fileBytes; left > 0; left -= chunk.length) yield chunk.subarray(0, left);
  }
  api.boxes.files.set(`${accountId}/box-${name}`, {
    bytes: fileBytes,
    mediaType: "text/plain",
    etag: name,
    fileName: "what.txt",
    open: async () => (fileBytes === BYTES.length ? Readable.from([BYTES]) : Readable.from(chunks())),
  });
  return api.keys.add({ accountId, userId, scopes: new Set(ALL_SCOPES) });
}

const urlOf = (api: ToyApi, name: string) => `http://127.0.0.1:${api.port()}/v1/boxes/box-${name}/file`;

async function upload(api: ToyApi, name: string, key: string, n: number): Promise<number> {
  const headers = { authorization: `Bearer ${key}`, "idempotency-key": `${n}`, ...fileHeaders(BYTES) };
  return (await fetch(urlOf(api, name), { method: "PUT", headers, body: BYTES })).status;
}

async function download(api: ToyApi, name: string, key: string): Promise<[number, string]> {
  const response = await fetch(urlOf(api, name), { headers: { authorization: `Bearer ${key}` } });
  return [response.status, await response.text()];
}

/** As many as it gets; answers once it is refused another. Returns those that were begun. */
async function takeAll(api: ToyApi, name: string, key: string, kind: "uploads" | "downloads") {
  const authorization = `Bearer ${key}`;
  const begun: RawConnection[] = [];
  for (let n = 0; n < WANTED; n++) {
    const connection = await openRaw(api.port());
    connections.push(connection);
    const { socket, received } = connection;
    const path = `/v1/boxes/box-${name}/file`;
    if (kind === "downloads") {
      socket.write(rawHead(`GET ${path}`, { authorization }));
      await expect.poll(received, { interval: 1 }).toContain("\r\n");
      socket.pause();
      if (!received().startsWith("HTTP/1.1 200 ")) return begun;
    } else {
      const before = api.store.entries.size;
      const length = { "content-length": 1_000_000, "idempotency-key": `${n}` };
      socket.write(rawHead(`PUT ${path}`, { authorization, ...fileHeaders(BYTES), ...length }));
      socket.write("x");
      const isAnswered = () => received() !== "" || api.store.entries.size > before;
      await expect.poll(isAnswered, { interval: 1 }).toBe(true);
      if (received() !== "") return begun;
    }
    begun.push(connection);
  }
  throw new Error(`${name} was never refused.`);
}

describe.each(GREEDY_COUNTS)("beside %i accounts that hold all they get", (count) => {
  test.each(["uploads", "downloads"] as const)("another one's %s go on as alone", async (kind) => {
    for (let n = 0; n < count; n++) {
      const name = `greedy-${n}`;
      const begun = await takeAll(loaded, name, account(loaded, name, 1e12), kind);
      expect(begun.length, name).toBeGreaterThan(0);
    }
    await expectToGoOn(kind);
  });
});

async function expectToGoOn(kind: "uploads" | "downloads", name = "victim", of = {}): Promise<void> {
  const [key, quietKey] = [loaded, quiet].map((api) => account(api, name, undefined, of));
  if (kind === "uploads") {
    const tryIt = (api: ToyApi, own: string) => (n: number) => upload(api, name, own, n);
    await expectItsTurn(200, tryIt(loaded, key!), tryIt(quiet, quietKey!));
  } else {
    const tryIt = (api: ToyApi, own: string) => () => download(api, name, own);
    await expectItsTurn([200, BYTES.toString()], tryIt(loaded, key!), tryIt(quiet, quietKey!));
  }
}

test.each(["uploads", "downloads"] as const)(
  "beside a user who holds all they get, %s of the account's other users and its own go on as alone",
  async (kind) => {
    const begun = await takeAll(loaded, "a", account(loaded, "a", 1e12, { userId: "greedy" }), kind);
    expect(begun.length).toBe((kind === "uploads" ? 96 : 256) / 4);
    await expectToGoOn(kind, "of-user", { accountId: "a", userId: "other" });
    await expectToGoOn(kind, "of-account", { accountId: "a" });
  },
);

const realNow = performance.now.bind(performance);
/** Time that nobody has to wait for. */
function letPass(ms: number): void {
  aheadMs += ms;
  vi.spyOn(performance, "now").mockImplementation(() => realNow() + aheadMs);
}

test("an upload that trickles makes room when all places are taken, and is told why", async () => {
  const api = await start({ uploadsMax: 2 });
  const greedy = ["a", "b"].map((name) => [name, account(api, name)] as const);
  const held = [];
  for (const [name, key] of greedy) held.push(...(await takeAll(api, name, key, "uploads")));
  expect(held).toHaveLength(2);
  const key = account(api, "victim");
  letPass(11_000);
  expect(await upload(api, "victim", key, 1)).toBe(200);
  const [first] = held;
  await expect.poll(first!.received).toMatch(/^HTTP\/1\.1 503 /);
});

test("an upload that trickles makes room for another user of its account when that has no other place", async () => {
  const api = await start({ uploadsMax: 4 });
  const held = [];
  for (const userId of ["one", "other"]) {
    const key = account(api, userId, 1, { accountId: "a", userId });
    held.push(...(await takeAll(api, userId, key, "uploads")));
  }
  expect(held).toHaveLength(2);
  const [key, third] = [null, "third"].map((userId) => account(api, "mine", 1, { accountId: "a", userId }));
  expect(await upload(api, "mine", key!, 1)).toBe(429);
  letPass(11_000);
  expect(await upload(api, "mine", key!, 2)).toBe(200);
  expect(await upload(api, "mine", third!, 3)).toBe(200);
  await expect.poll(held[0]!.received).toMatch(/^HTTP\/1\.1 503 /);
});

test("a download that trickles makes room, too", async () => {
  const api = await start({ downloadsMax: 2 });
  const held = [];
  for (const name of ["a", "b"])
    held.push(...(await takeAll(api, name, account(api, name, 1e12), "downloads")));
  const key = account(api, "victim");
  letPass(11_000);
  expect((await download(api, "victim", key))[0]).toBe(200);
  expect(held.filter(({ socket }) => socket.resume().destroyed).length).toBeLessThanOrEqual(1);
  await Promise.race(held.map(({ ended }) => ended));
  expect(api.connections.cut, "not for having read too little in half a minute").toEqual([]);
});

test("a download that is read in bursts is served whole, though its place is wanted all the time", async () => {
  const MIB = 1_048_576;
  const api = await start({ downloadsMax: 1 });
  const fileBytes = 64 * MIB;
  const [reader, victim] = [account(api, "reader", fileBytes), account(api, "victim")];
  const { body } = await fetch(urlOf(api, "reader"), { headers: { authorization: `Bearer ${reader}` } });
  const reading = body!.getReader();
  let [readBytes, burstsEnd] = [0, 0];
  const isTaken = async () => (await download(api, "victim", victim))[0] === 503;
  while (readBytes < fileBytes - 16 * MIB) {
    letPass(8_000);
    expect(await isTaken(), `after ${readBytes} bytes`).toBe(true);
    for (burstsEnd += 12 * MIB; readBytes < burstsEnd; ) readBytes += (await reading.read()).value!.length;
  }
  for (let next = await reading.read(); !next.done; next = await reading.read())
    readBytes += next.value.length;
  expect(readBytes).toBe(fileBytes);
});
