import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { inspect } from "node:util";
import { CreateMultipartUploadCommand, S3Client } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  ObjectNotFoundError,
  ObjectShareError,
  type ObjectStore,
  ObjectStoreAwayError,
} from "../../../src/workspace/objects/object-store.ts";
import type { S3Options } from "../../../src/workspace/objects/s3-connection.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../../support/database-proxy.ts";
import { patience } from "../../support/time-limits.ts";
import { digest, inChunks, putBytes, readBytes, uniqueBytes } from "../support/object-bodies.ts";
import { keysIn, openS3Store } from "../support/object-listing.ts";
import { type S3Server, startS3Server } from "../support/s3-server.ts";

const MEBIBYTE = 1_024 * 1_024;
const PART_BYTES = 5 * MEBIBYTE;
/** Short, for tests that wait for them; what is to succeed goes by the usual ones. */
const hasty = () => ({
  answerMs: patience(1_000),
  callMs: patience(3_000),
  stallMs: patience(500),
  connectMs: patience(1_000),
  partBytes: PART_BYTES,
});
const KEY = "spaces/a";
const TOMORROW = new Date(Date.now() + 86_400_000);

/** All that a log could show of an error. */
const everythingOf = (error: unknown) =>
  inspect(error, { depth: 20, showHidden: true }) + JSON.stringify(error, Object.getOwnPropertyNames(error));

describe("S3 (versitygw)", () => {
  let folder: string;
  let server: S3Server;
  let proxy: DatabaseProxy;
  let proxied: S3Options;
  let calm: ObjectStore;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "sealpost-s3-"));
    server = await startS3Server(folder);
    proxy = await startDatabaseProxy(server.options.endpoint ?? "");
    calm = openS3Store(server.options, { partBytes: PART_BYTES });
    proxied = { ...server.options, endpoint: proxy.url.replace(/\/$/, "") };
  });
  afterAll(async () => {
    await calm?.close();
    await proxy?.close();
    await server?.close();
    await rm(folder, { recursive: true });
  });

  test("that stands still ends a read, a put and every other call, and works again afterwards", async () => {
    const store = openS3Store(proxied, hasty());
    const bytes = uniqueBytes(3 * PART_BYTES);
    await putBytes(calm, KEY, bytes);
    const { body } = await store.get(KEY);
    await once(body, "readable");
    proxy.hang();
    await expect(buffer(body)).rejects.toThrow(/could not read "spaces\/a": no byte came within \d+ ms/);
    const all = await Promise.allSettled([
      store.stat(KEY),
      store.get(KEY),
      store.copy(KEY, "spaces/b"),
      store.remove(KEY),
      store.removeLeftovers(TOMORROW),
      putBytes(store, KEY, Buffer.from("small")),
      putBytes(store, KEY, bytes),
    ]);
    for (const ended of all) {
      expect(ended).toMatchObject({ status: "rejected", reason: expect.any(ObjectStoreAwayError) });
    }
    await proxy.restore();
    expect(digest(await readBytes(store, KEY))).toBe(digest(bytes));
    await store.close();
  });

  test("is not hurried by who reads slowly", async () => {
    const limits = hasty();
    const store = openS3Store(proxied, limits);
    const bytes = uniqueBytes(3 * PART_BYTES);
    await putBytes(calm, KEY, bytes);
    const { body } = await store.get(KEY);
    const chunks: Buffer[] = [];
    for await (const chunk of body) {
      chunks.push(chunk as Buffer);
      // Longer than S3 may stand still.
      if (chunks.length === 1) await new Promise((resolve) => setTimeout(resolve, 3 * limits.stallMs));
    }
    expect(digest(Buffer.concat(chunks))).toBe(digest(bytes));
    await store.close();
  });

  test("that cuts a read in the middle fails it, whatever has arrived", async () => {
    const store = openS3Store(proxied, hasty());
    await putBytes(calm, KEY, uniqueBytes(3 * PART_BYTES));
    const { body } = await store.get(KEY);
    await once(body, "readable");
    await proxy.cut();
    await expect(buffer(body)).rejects.toThrow(ObjectStoreAwayError);
    await expect(store.stat(KEY)).rejects.toThrow(ObjectStoreAwayError);
    await proxy.restore();
    expect((await store.stat(KEY)).sizeBytes).toBe(3 * PART_BYTES);
    await store.close();
  });

  test("that is cut off during a put leaves parts, which are removed", async () => {
    const store = openS3Store(proxied, { partBytes: PART_BYTES });
    async function* body() {
      yield uniqueBytes(2 * PART_BYTES + 1);
      await proxy.cut();
      yield uniqueBytes(PART_BYTES);
    }
    await expect(store.put("spaces/cut", body(), 3 * PART_BYTES + 1)).rejects.toThrow(ObjectStoreAwayError);
    await proxy.restore();
    expect(await store.removeLeftovers(TOMORROW)).toBe(1);
    expect(await keysIn(store, "spaces/cut")).toEqual([]);
    await store.close();
  });

  test.each([
    ["a wrong secret", { secretAccessKey: "planted-secret-that-is-wrong" }],
    ["an unknown key", { accessKeyId: "AKIAUNKNOWN" }],
    ["another region", { region: "eu-central-1" }],
    ["a bucket that is not there", { bucket: "elsewhere" }],
  ])("tells %s as an outage, without a word of the keys", async (_, wrong) => {
    const options = { ...server.options, ...wrong };
    const store = openS3Store(options);
    const all = await Promise.allSettled([
      store.stat(KEY),
      store.get(KEY),
      putBytes(store, KEY, Buffer.from("x")),
      store.copy(KEY, "spaces/b"),
      store.check(),
    ]);
    for (const ended of all) {
      expect(ended).toMatchObject({ status: "rejected", reason: expect.any(ObjectStoreAwayError) });
      expect(everythingOf(ended)).not.toMatch(/planted-secret|AKIA|Signature=/);
    }
    await store.close();
  });

  test("is told that nothing is there only where a bucket is", async () => {
    const store = openS3Store(server.options);
    await expect(store.stat("spaces/none")).rejects.toThrow(ObjectNotFoundError);
    await store.close();
  });

  test("has room for others, however many of one's puts are slow", async () => {
    const store = openS3Store(server.options, {
      heldBytesMax: 8 * PART_BYTES,
      partBytes: PART_BYTES,
      heldWaitMs: 200,
    });
    const hanging = new AbortController();
    let begun = 0;
    async function* slow() {
      begun += 1;
      await once(hanging.signal, "abort");
      yield* [];
    }
    const slowly = (n: number) =>
      store.put(`spaces/slow-${n}`, slow(), 2 * PART_BYTES, hanging.signal, "ada");
    const running = [slowly(1), slowly(2)];
    const ends = Promise.allSettled(running);
    await expect(slowly(3)).rejects.toThrow(ObjectShareError);
    await expect.poll(() => begun).toBe(2);
    const bytes = uniqueBytes(3 * PART_BYTES + 1);
    await store.put("spaces/other", inChunks(bytes), bytes.length, undefined, "bob");
    expect(digest(await readBytes(store, "spaces/other"))).toBe(digest(bytes));
    hanging.abort(new Error("enough"));
    await ends;
    await store.put("spaces/again", inChunks(bytes), bytes.length, undefined, "ada");
    await store.close();
  });

  test("is cleaned by several at once", async () => {
    const { endpoint, region, accessKeyId, secretAccessKey, bucket } = server.options;
    const credentials = { accessKeyId, secretAccessKey };
    const client = new S3Client({ endpoint: endpoint!, region, forcePathStyle: true, credentials });
    for (let n = 0; n < 30; n++)
      await client.send(new CreateMultipartUploadCommand({ Bucket: bucket, Key: `spaces/left-${n}` }));
    const counts = await Promise.all(Array.from({ length: 3 }, () => calm.removeLeftovers(TOMORROW)));
    expect(Math.max(...counts)).toBeGreaterThan(0);
    expect(await calm.removeLeftovers(TOMORROW)).toBe(0);
    client.destroy();
  });

  test("takes more puts at once than there is memory for, one after the other", async () => {
    const limits = { partBytes: PART_BYTES, heldBytesMax: 2 * PART_BYTES, heldWaitMs: 30_000 };
    const store = openS3Store(server.options, limits);
    const bodies = Array.from({ length: 8 }, () => uniqueBytes(2 * PART_BYTES + 1));
    await Promise.all(bodies.map((bytes, n) => putBytes(store, `spaces/at-once-${n}`, bytes)));
    for (const [n, bytes] of bodies.entries()) {
      expect(digest(await readBytes(store, `spaces/at-once-${n}`))).toBe(digest(bytes));
    }
    await store.close();
  });

  test("gives up a put that gets no memory in time", async () => {
    const store = openS3Store(server.options, { heldBytesMax: 10, heldWaitMs: 50 });
    const hanging = new AbortController();
    async function* never() {
      await once(hanging.signal, "abort");
      yield* [];
    }
    const first = store.put("spaces/first", never(), 10, hanging.signal, "ada");
    await expect(putBytes(store, "spaces/second", Buffer.from("x"))).rejects.toThrow(
      /too many are being stored/,
    );
    hanging.abort(new Error("enough"));
    await expect(first).rejects.toThrow("enough");
    await putBytes(store, "spaces/second", Buffer.from("x"));
    await store.close();
  });
});

describe("a server that is no S3", () => {
  let server: Server;
  let endpoint: string;

  async function listen(answer: string | null): Promise<void> {
    server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => answer !== null && socket.end(answer));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }
  const storeAt = () =>
    openS3Store(
      {
        bucket: "documents",
        endpoint,
        region: "us-east-1",
        isPathStyle: true,
        accessKeyId: "AKIAEXAMPLE",
        secretAccessKey: "planted-secret",
      },
      hasty(),
    );

  test.each([
    ["says nothing", null],
    ["hangs up", ""],
    ["speaks otherwise", "220 mail.example.com ESMTP\r\n"],
    ["answers with a page", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"],
    ["is ill", "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"],
    ["is busy", "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n"],
  ])("and %s is an outage", async (_, answer) => {
    await listen(answer);
    const store = storeAt();
    const asked = [
      store.check(),
      putBytes(store, KEY, Buffer.from("x")),
      store.get(KEY),
      store.stat(KEY),
      store.copy(KEY, "spaces/b"),
    ];
    for (const ended of await Promise.allSettled(asked)) {
      expect(ended).toMatchObject({ status: "rejected", reason: expect.any(ObjectStoreAwayError) });
      expect(everythingOf(ended)).not.toMatch(/planted-secret|AKIA/);
    }
    await store.close();
    server.close();
  });

  test.each([
    ["nothing", ""],
    ["a page of a proxy's", "<html><body>It works</body></html>"],
    ["XML of something else", '<?xml version="1.0"?><Something/>'],
    ["half a result", '<?xml version="1.0"?><CopyObjectResult><ETag>"0123"</ETag></CopyObjectResult>'],
  ])("and answers a copy with 200 and %s has not made it", async (_, answer) => {
    const web = createHttpServer((request, response) => {
      request.resume();
      const isSource = request.url?.includes("spaces/a");
      const isCopy = request.headers["x-amz-copy-source"] !== undefined;
      if (isCopy) response.end(answer);
      else
        response
          .setHeader("etag", '"0123"')
          .setHeader("content-length", isSource ? 5 : 4)
          .end();
    });
    await once(web.listen(0, "127.0.0.1"), "listening");
    endpoint = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
    const store = storeAt();
    await expect(store.copy(KEY, "spaces/b")).rejects.toThrow(ObjectStoreAwayError);
    await store.close();
    web.close();
  });
});
