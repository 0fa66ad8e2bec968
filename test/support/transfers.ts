// Large files up and down, and what they take of the memory of the process that they pass through.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { request } from "node:http";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { peakOf, rssBytes } from "./child-processes.ts";

export type Transfers = {
  readonly idleBytes: number;
  readonly peakBytes: number;
  /** Bytes that arrived at each end. */
  readonly uploaded: number;
  readonly downloaded: number;
  readonly uploadMs: number;
  readonly downloadMs: number;
};

const CHUNK = Buffer.alloc(65_536, "upload");

/** A file of `bytes` up and down again, `atOnce` of them side by side. */
export async function transferThrough(bytes: number, atOnce = 1): Promise<Transfers> {
  const child = spawn(process.execPath, [fileURLToPath(new URL("transfer-process.ts", import.meta.url))], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    const [line] = await once(createInterface(child.stdout), "line");
    const { url, key } = JSON.parse(String(line)) as { url: string; key: string };
    const digest = digestOf(bytes);
    // What the first requests take they would take for any.
    await upload(url, key, 1_000_000, digestOf(1_000_000), "warm");
    await download(url, key);
    const readBytes = () => rssBytes(child.pid!);
    const moved = { uploaded: 0, downloaded: 0, uploadMs: 0, downloadMs: 0 };
    const idleBytes = await readBytes();
    const peakBytes = await peakOf(readBytes, async () => {
      const all = Array.from({ length: atOnce }, (_, n) => `k-${n}`);
      const startedAt = performance.now();
      moved.uploaded = sum(await Promise.all(all.map((k) => upload(url, key, bytes, digest, k))));
      const between = performance.now();
      moved.downloaded = sum(await Promise.all(all.map(() => download(url, key))));
      moved.uploadMs = between - startedAt;
      moved.downloadMs = performance.now() - between;
    });
    return { idleBytes, peakBytes, ...moved };
  } finally {
    child.kill();
  }
}

function* chunksOf(bytes: number): Generator<Buffer> {
  for (let left = bytes; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, left);
}

function digestOf(bytes: number): string {
  const hash = createHash("sha256");
  for (const chunk of chunksOf(bytes)) hash.update(chunk);
  return `sha-256=:${hash.digest("base64")}:`;
}

async function upload(
  url: string,
  key: string,
  bytes: number,
  digest: string,
  idempotencyKey: string,
): Promise<number> {
  const headers = {
    ...{ authorization: `Bearer ${key}`, "idempotency-key": idempotencyKey },
    ...{ "content-length": bytes, "content-digest": digest },
  };
  const asked = request(url, { method: "PUT", headers });
  const answering = once(asked, "response");
  await pipeline(Readable.from(chunksOf(bytes), { objectMode: false }), asked);
  const [response] = await answering;
  const body = JSON.parse(await text(response)) as { bytes: number };
  return body.bytes;
}

async function download(url: string, key: string): Promise<number> {
  const asked = request(url, { headers: { authorization: `Bearer ${key}` } });
  asked.end();
  const [response] = await once(asked, "response");
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  return bytes;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all + one, 0);
}
