// Bodies of objects: bytes that are nowhere the same, in whatever chunks, and what is wrong with some.
import { createHash, randomBytes } from "node:crypto";
import { buffer } from "node:stream/consumers";
import type { ObjectStore } from "../../../src/workspace/objects/object-store.ts";

/** Whichever part is missing, doubled or elsewhere changes them. */
export function uniqueBytes(length: number): Buffer {
  return randomBytes(length);
}

export async function* inChunks(bytes: Uint8Array, chunkBytes = 60_000): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += chunkBytes)
    yield bytes.subarray(start, start + chunkBytes);
}

export async function putBytes(store: ObjectStore, key: string, bytes: Uint8Array): Promise<void> {
  await store.put(key, inChunks(bytes), bytes.length);
}

export async function readBytes(store: ObjectStore, key: string): Promise<Buffer> {
  return await buffer((await store.get(key)).body);
}

/** Short, so that a failing comparison does not print megabytes. */
export function digest(bytes: Uint8Array): string {
  return `${bytes.length} ${createHash("sha256").update(bytes).digest("hex").slice(0, 16)}`;
}
