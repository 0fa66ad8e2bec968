import { randomBytes } from "node:crypto";
import { buffer } from "node:stream/consumers";
import { setInterval } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { CONNECTION_LIMITS } from "../../src/http/limits.ts";
import { Problem, TemporarilyUnavailable } from "../../src/http/problems.ts";
import { keepInMemory } from "../support/api-box-files.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ADA, ALL_SCOPES, BOB, type ToyApi } from "../support/api-toy-server.ts";
import { BYTES, HEALTH, PATH, type Upload, uploading } from "../support/api-uploads.ts";
import { fileHeaders } from "../support/file-headers.ts";
import { patience } from "../support/time-limits.ts";

let api: ToyApi;
const { start, put, open, head, addBox, kept, nothingLeft, gated } = uploading();

describe("a file", () => {
  test("is kept byte for byte, with its media type, and recorded", async () => {
    api = await start();
    const bytes = randomBytes(3_000_000);
    const response = await put(bytes, { headers: { "content-type": 'text/Markdown; charset="utf-8"' } });
    expect([response.status, await response.json()]).toEqual([
      200,
      { bytes: 3_000_000, media_type: "text/markdown;charset=utf-8" },
    ]);
    const [file] = kept();
    expect((await buffer(await file!.open({ first: 0, last: bytes.length - 1 }))).equals(bytes)).toBe(true);
    expect(api.recorded).toMatchObject([
      { operationKey: "boxes.file.set", details: { box_id: "box-1", bytes: 3_000_000 } },
    ]);
  });

  test("may be empty, and needs no media type", async () => {
    api = await start();
    expect((await put(Buffer.alloc(0))).status).toBe(200);
    const { socket, ended } = await open();
    socket.write(head({ "idempotency-key": "l", "content-type": null, connection: "close" }));
    socket.write(BYTES);
    expect(await ended).toContain('"media_type":"application/octet-stream"');
  });

  test("that comes slowly may take its time, as long as it comes", async () => {
    const progressWithinMs = patience(400);
    api = await start({ progressWithinMs, receivedBytesMin: 1 });
    const { socket, ended } = await open();
    socket.write(head({ connection: "close" }));
    const startedAt = performance.now();
    for await (const at of setInterval(progressWithinMs / 8, BYTES.entries())) {
      const { value, done } = at.next();
      if (done) break;
      socket.write(Buffer.of(value[1]));
    }
    expect(await ended).toMatch(/^HTTP\/1\.1 200 /);
    expect(performance.now() - startedAt).toBeGreaterThan(2 * progressWithinMs);
  });

  test("outlasts the time that other bodies have", async () => {
    const connectionLimits = { ...CONNECTION_LIMITS, receiveWithinMs: 200, sendCheckedEveryMs: 20 };
    api = await start({}, { connectionLimits });
    const [slow, other] = [await open(), await open()];
    slow.socket.write(head({ connection: "close" }));
    const json = { "content-type": "application/json", "content-digest": null };
    other.socket.write(head(json, PATH).replace(`PUT ${PATH}`, "POST /v1/boxes"));
    expect(await other.ended).toMatch(/^HTTP\/1\.1 400 .*did not arrive in time/s);
    slow.socket.write(BYTES);
    expect(await slow.ended).toMatch(/^HTTP\/1\.1 200 /);
  });
});

describe("a body that is not what was announced leaves nothing behind:", () => {
  test("another digest", async () => {
    api = await start();
    const { "content-digest": digest } = fileHeaders(Buffer.from("another"));
    const response = await put(BYTES, { headers: { "content-digest": digest } });
    const message = `Nothing was stored: the body's digest is ${fileHeaders(BYTES)["content-digest"]}`;
    await expectProblem(response, 400, "invalid_request", [{ path: "header.content-digest", message }]);
    nothingLeft();
    expect((await put()).status).toBe(200);
  });

  test("another digest of nothing", async () => {
    api = await start();
    const { "content-digest": digest } = fileHeaders(BYTES);
    const response = await put(Buffer.alloc(0), { headers: { "content-digest": digest } });
    expect(response.status).toBe(400);
    nothingLeft();
  });

  test("and is never seen whole by whoever keeps it", async () => {
    api = await start();
    let seen = 0;
    api.boxes.keep = async (body) => {
      for await (const chunk of body.open()) seen += chunk.length;
      return keepInMemory(body);
    };
    const bytes = randomBytes(1_000_000);
    const { "content-digest": digest } = fileHeaders(BYTES);
    expect((await put(bytes, { headers: { "content-digest": digest } })).status).toBe(400);
    expect(seen).toBeLessThan(bytes.length);
  });

  test("a client that goes away in the middle, whose key is free at once", async () => {
    api = await start();
    const { socket } = await open();
    socket.write(head());
    socket.write(BYTES.subarray(0, 5));
    await expect.poll(() => api.store.entries.size).toBe(1);
    socket.destroy();
    await expect.poll(() => api.store.entries.size).toBe(0);
    nothingLeft();
    expect(api.faults).toEqual([]);
    expect((await put()).headers.get("idempotent-replayed")).toBeNull();
  });

  test("a client that goes away before its body is taken", async () => {
    api = await start();
    const gate = gated();
    const { socket } = await open();
    socket.write(head());
    await gate.begun;
    socket.destroy();
    await expect.poll(() => api.connections.open).toBe(0);
    gate.open();
    await expect.poll(() => api.store.entries.size).toBe(0);
    nothingLeft();
  });

  test("a client that says that it is done too soon", async () => {
    api = await start();
    const { socket, ended } = await open();
    socket.end(head() + BYTES.subarray(0, 5).toString());
    await ended;
    await expect.poll(() => api.store.entries.size).toBe(0);
    nothingLeft();
  });

  test("a client that stops sending", async () => {
    api = await start({ progressWithinMs: 100 });
    const { socket, ended } = await open();
    socket.write(head({ connection: "close" }));
    socket.write(BYTES.subarray(0, 5));
    expect(await ended).toMatch(
      /^HTTP\/1\.1 400 .*"path":"body","message":"Fewer than 16384 bytes came in 0.1 s."/s,
    );
    nothingLeft();
  });

  test("a client that sends a byte now and then", async () => {
    api = await start({ progressWithinMs: 300, receivedBytesMin: 10 });
    const { socket, ended } = await open();
    socket.write(head({ connection: "close" }));
    const sending = globalThis.setInterval(() => socket.write("x"), 50);
    expect(await ended).toMatch(/^HTTP\/1\.1 400 .*"Fewer than 10 bytes came in 0.3 s."/s);
    clearInterval(sending);
    nothingLeft();
  });

  test("a store that stops taking, which is not the client's fault", async () => {
    api = await start({ progressWithinMs: 100 });
    api.boxes.keep = async (body) => {
      const stream = body.open();
      return await new Promise((_, reject) => stream.once("error", reject));
    };
    await expectProblem(await put(randomBytes(1_000_000)), 503, "temporarily_unavailable");
    nothingLeft();
  });

  test("a store that fails in the middle", async () => {
    api = await start();
    api.boxes.keep = async (body) => {
      for await (const _ of body.open()) throw new TemporarilyUnavailable("the store is away");
      throw new Error("There were no bytes.");
    };
    const bytes = 3_000_000;
    const { socket, ended } = await open();
    socket.write(head({ "content-length": bytes, ...fileHeaders(Buffer.alloc(bytes)) }));
    socket.write(Buffer.alloc(bytes));
    socket.write(HEALTH);
    expect(await ended).toMatch(/^HTTP\/1\.1 503 .*HTTP\/1\.1 200 .*\{"status":"ok"\}/s);
    nothingLeft();
  });

  test("a refusal after all of it has come undoes what was done", async () => {
    api = await start();
    await expectProblem(await put(BYTES, { headers: { "content-type": "text/sealed" } }), 409, "box_sealed");
    nothingLeft();
  });
});

test("what follows a body is no part of it", async () => {
  api = await start();
  const { socket, ended } = await open();
  socket.write(Buffer.concat([Buffer.from(head()), BYTES, Buffer.from("and more of it\r\n\r\n")]));
  expect(await ended).toContain("HTTP/1.1 400 ");
  await expect.poll(kept).toMatchObject([{ bytes: BYTES.length }]);
});

test("a handler that does not take all of a body has a bug, and nothing counts", async () => {
  api = await start();
  api.boxes.keep = async () => async () => Promise.reject(new Error("not kept"));
  await expectProblem(await put(), 500, "internal_error");
  api.boxes.keep = async (body) => {
    for await (const _ of body.open()) break;
    throw new Problem("box_sealed");
  };
  await expectProblem(await put(randomBytes(1_000_000)), 409, "box_sealed");
  nothingLeft();
});

describe("the same upload again", () => {
  test("has its effect once, and is answered without its body", async () => {
    api = await start();
    let takes = 0;
    api.boxes.keep = (body) => {
      takes += 1;
      return keepInMemory(body);
    };
    const first = await put();
    const again = await put();
    expect([first.status, again.status, takes]).toEqual([200, 200, 1]);
    expect(await again.text()).toBe(await first.text());
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(api.recorded).toHaveLength(1);
  });

  test("is another one with another digest, media type or box", async () => {
    api = await start();
    addBox("box-2", ADA);
    await put();
    for (const other of [
      put(Buffer.from("Another thing is in it.")),
      put(BYTES, { headers: { "content-type": "text/plain" } }),
      put(BYTES, { path: "/v1/boxes/box-2/file" }),
    ])
      await expectProblem(await other, 422, "idempotency_key_reused");
    expect(kept()).toHaveLength(1);
  });

  test("is 409 while the first is under way, whose claim is renewed with no transaction open", async () => {
    api = await start({ renewEveryMs: 20 });
    const { socket, ended } = await open();
    socket.write(head({ connection: "close" }));
    socket.write(BYTES.subarray(0, 5));
    await expect
      .poll(() => [...api.store.entries.values()])
      .toMatchObject([{ kind: "calling", renewals: expect.toSatisfy((n) => n > 3) }]);
    await expectProblem(await put(), 409, "idempotency_in_progress");
    socket.write(BYTES.subarray(5));
    expect(await ended).toMatch(/^HTTP\/1\.1 200 /);
    expect((await put()).headers.get("idempotent-replayed")).toBe("true");
  });

  test("does not count where another has taken over its claim", async () => {
    api = await start();
    const gate = gated();
    const first = put();
    await gate.begun;
    const [id] = api.store.entries.keys();
    api.store.entries.set(id!, { kind: "calling", token: "another's", leaseMs: 1, renewals: 0 });
    gate.open();
    await expectProblem(await first, 503, "temporarily_unavailable");
    expect([...api.store.entries.values()]).toMatchObject([{ token: "another's" }]);
    expect([api.boxes.files.size, api.recorded]).toEqual([0, []]);
  });
});

describe("uploads at a time are limited", () => {
  test("by account, and in all", async () => {
    api = await start({ uploadsMax: 4 });
    addBox("bobs", BOB);
    const bob = api.keys.add({ accountId: BOB, scopes: new Set(ALL_SCOPES) });
    const gate = gated();
    let n = 0;
    const put1 = (upload: Upload = {}) => put(BYTES, { idempotencyKey: `k-${++n}`, ...upload });
    const bobs = { key: bob, path: "/v1/boxes/bobs/file" };
    const running = [put1(), put1()];
    await expect.poll(() => api.store.entries.size).toBe(2);
    const refused = await put1();
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "5"]);
    expect(refused.headers.get("ratelimit-policy")).toBe('"uploads";q=2;qu="concurrent-requests"');
    running.push(put1(bobs));
    await expect.poll(() => api.store.entries.size).toBe(3);
    expect((await put1(bobs)).status).toBe(429);
    addBox("eves", "eve");
    const eve = api.keys.add({ accountId: "eve", scopes: new Set(ALL_SCOPES) });
    running.push(put1({ key: eve, path: "/v1/boxes/eves/file" }));
    await expect.poll(() => api.store.entries.size).toBe(4);
    const third = api.keys.add({ accountId: null, scopes: new Set(ALL_SCOPES) });
    const staffs = { key: third, headers: { "x-account-id": ADA } };
    expect((await put1(staffs)).status).toBe(429);
    gate.open();
    for (const each of await Promise.all(running)) expect(each.status).toBe(200);
    expect((await put1()).status).toBe(200);
  });

  test("a place is free again whatever became of its upload", async () => {
    api = await start({ uploadsMax: 1 });
    const { "content-digest": wrong } = fileHeaders(Buffer.from("another"));
    for (let n = 0; n < 3; n++) {
      expect((await put(BYTES, { headers: { "content-digest": wrong } })).status).toBe(400);
      expect((await put(BYTES, { path: "/v1/boxes/none/file" })).status).toBe(404);
    }
    expect((await put()).status).toBe(200);
  });
});
