import { describe, expect, test } from "vitest";
import { CONNECTION_LIMITS } from "../../src/http/limits.ts";
import { FILE_BYTES_MAX } from "../support/api-box-files.ts";
import { ADA, BOB, type ToyApi } from "../support/api-toy-server.ts";
import { BYTES, HEALTH, PATH, uploading } from "../support/api-uploads.ts";

let api: ToyApi;
const { start, put, open, head, addBox, nothingLeft, gated } = uploading();

describe("a request that is refused by its headers", () => {
  test.each<[string, Record<string, string | null>, number, string]>([
    ["no digest", { "content-digest": null }, 400, "header.content-digest"],
    ["no digest by SHA-256", { "content-digest": "sha-512=:AA==:" }, 400, "header.content-digest"],
    ["a short digest", { "content-digest": "sha-256=:AA==:" }, 400, "header.content-digest"],
    [
      "a digest in hexadecimal",
      { "content-digest": `sha-256=${"a".repeat(64)}` },
      400,
      "header.content-digest",
    ],
    ["no digest but a list", { "content-digest": "sha-256=(:AA==:)" }, 400, "header.content-digest"],
    ["no Idempotency-Key", { "idempotency-key": null }, 400, "idempotency_key_required"],
    ["chunks", { "content-length": null, "transfer-encoding": "chunked" }, 400, "header.content-length"],
    ["a coding", { "content-encoding": "gzip" }, 415, "unsupported_media_type"],
    ["no media type", { "content-type": "text" }, 415, "unsupported_media_type"],
    ["a long media type", { "content-type": `text/${"x".repeat(300)}` }, 415, "unsupported_media_type"],
    ["too large a file", { "content-length": String(FILE_BYTES_MAX + 1) }, 413, "payload_too_large"],
    ["no key", { authorization: null }, 401, "unauthorized"],
    ["an account of its own", { "x-account-id": BOB }, 403, "access_denied"],
  ])("has never sent its body: %s", async (_name, headers, status, told) => {
    api = await start();
    const { socket, ended } = await open();
    socket.write(head({ expect: "100-continue", ...headers }));
    const answer = await ended;
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(answer).toContain(told);
    expect(answer).toMatch(/^connection: close\r$/im);
    nothingLeft();
  });

  test("nor by what its headers name", async () => {
    api = await start();
    addBox("bobs", BOB);
    const reader = api.keys.add({ accountId: ADA, scopes: new Set(["boxes:read"]) });
    for (const [path, key, status] of [
      ["/v1/boxes/none/file", api.key, 404],
      ["/v1/boxes/bobs/file", api.key, 404],
      ["/v1/boxes/BOX/file", api.key, 400],
      [PATH, reader, 403],
    ] as const) {
      const { socket, ended } = await open();
      socket.write(head({ expect: "100-continue", authorization: `Bearer ${key}` }, path));
      expect(await ended, path).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    }
    nothingLeft();
  });

  test("leaves its connection usable, if its body is bearable", async () => {
    api = await start();
    const bytes = 3_000_000;
    const { socket, ended } = await open();
    socket.write(head({ "content-length": bytes, "content-encoding": "gzip" }));
    socket.write(Buffer.alloc(bytes));
    socket.write(HEALTH);
    expect(await ended).toMatch(/^HTTP\/1\.1 415 .*HTTP\/1\.1 200 .*\{"status":"ok"\}/s);
  });

  test("loses its connection after a while, if its body is large", async () => {
    api = await start({}, { connectionLimits: { ...CONNECTION_LIMITS, lingerMs: 200 } });
    const { socket, ended } = await open();
    socket.write(head({ "content-length": FILE_BYTES_MAX, "content-digest": "x" }));
    const sending = globalThis.setInterval(() => socket.write(Buffer.alloc(1000)), 10);
    expect(await ended).toMatch(/^HTTP\/1\.1 400 /);
    clearInterval(sending);
  });
});

describe("Expect: 100-continue", () => {
  test("is told to go on when the body is wanted, and not before", async () => {
    api = await start();
    const gate = gated();
    const { socket, received, ended } = await open();
    socket.write(head({ expect: "100-continue", connection: "close" }));
    await gate.begun;
    expect(received()).toBe("");
    gate.open();
    await expect.poll(received).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    socket.write(BYTES);
    expect(await ended).toMatch(/HTTP\/1\.1 200 /);
  });

  test("is not told to go on for what was answered before", async () => {
    api = await start();
    expect((await put()).status).toBe(200);
    const { socket, ended } = await open();
    socket.write(head({ expect: "100-continue" }));
    expect(await ended).toMatch(/^HTTP\/1\.1 200 .*idempotent-replayed: true/s);
  });

  test("works for bodies that are parsed, which are wanted once their headers are right", async () => {
    api = await start();
    const json = { "content-type": "application/json", expect: "100-continue", "content-digest": null };
    const post = (headers: object) => head({ ...json, ...headers }).replace(`PUT ${PATH}`, "POST /v1/boxes");
    const [good, bad] = [await open(), await open()];
    bad.socket.write(post({ authorization: null }));
    expect(await bad.ended).toMatch(/^HTTP\/1\.1 401 /);
    const body = '{"color":"red"}';
    good.socket.write(post({ "content-length": body.length, connection: "close" }));
    await expect.poll(good.received).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    good.socket.write(body);
    expect(await good.ended).toMatch(/HTTP\/1\.1 201 /);
  });
});
