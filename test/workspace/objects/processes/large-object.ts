// Puts a large object and reads it again: how fast, and how much memory it takes at most, besides what one small object
// takes.
import { performance } from "node:perf_hooks";
import { crc32 } from "node:zlib";
import type { ObjectStore } from "../../../../src/workspace/objects/object-store.ts";
import { openAt } from "../../support/object-stores.ts";

const [, , address = "", bytes = ""] = process.argv;
const CHUNK_BYTES = 64 * 1_024;

/** Fresh memory for every chunk, as from a socket. */
async function* chunksOf(sizeBytes: number, onChunk: (chunk: Buffer) => void) {
  for (let start = 0; start < sizeBytes; start += CHUNK_BYTES) {
    const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, sizeBytes - start), start / CHUNK_BYTES);
    onChunk(chunk);
    yield chunk;
  }
}

async function putAndGet(store: ObjectStore, sizeBytes: number) {
  let put = 0;
  const startedAt = performance.now();
  const body = chunksOf(sizeBytes, (chunk) => {
    put = crc32(chunk, put);
  });
  await store.put("large", body, sizeBytes);
  const putAt = performance.now();
  let got = 0;
  for await (const chunk of (await store.get("large")).body) got = crc32(chunk as Buffer, got);
  const gotAt = performance.now();
  if (put !== got) throw new Error("what was read is not what was put");
  const speed = (ms: number) => Math.round(sizeBytes / 1_000 / ms);
  return { putMegabytesPerSecond: speed(putAt - startedAt), getMegabytesPerSecond: speed(gotAt - putAt) };
}

const peakBytes = () => process.resourceUsage().maxRSS * 1_024;

const store = await openAt(JSON.parse(address));
await putAndGet(store, CHUNK_BYTES);
const atFirst = peakBytes();
const speeds = await putAndGet(store, Number(bytes));
console.log(JSON.stringify({ ...speeds, grownBytes: peakBytes() - atFirst }));
await store.close();
