import { hash } from "node:crypto";
import xxhash from "xxhash-wasm";

const { h64, h64Raw } = await xxhash();

/** WebAssembly memory never shrinks, so longer bodies (a few analyses) are hashed elsewhere. */
const FAST_BYTES_MAX = 1_048_576;

/**
 * A strong tag of these bytes and of what goes `besides` them. Not a cryptographic hash: it takes a sixth of
 * SHA-256's time, and whoever forges two responses with one tag fools only himself.
 */
export function entityTag(bytes: Uint8Array, besides = ""): string {
  const tag =
    bytes.byteLength <= FAST_BYTES_MAX ? h64Raw(bytes).toString(36) : hash("sha256", bytes, "base64url");
  return quoteEntityTag(besides === "" ? tag : `${tag}.${h64(besides).toString(36)}`);
}

/** `opaque` must not contain quotes or control characters. */
export function quoteEntityTag(opaque: string): string {
  if (!/^[\x21\x23-\x7e]+$/.test(opaque))
    throw new RangeError("An entity tag holds printable ASCII without quotes.");
  return `"${opaque}"`;
}

const TAG_IN_LIST = /(?:W\/)?("[\x21\x23-\x7e\x80-\xff]*")/g;

/** Whether If-None-Match names `tag`: a list, weak or strong alike, or `*`. */
export function matchesEntityTag(ifNoneMatch: string, tag: string): boolean {
  if (ifNoneMatch.trim() === "*") return true;
  for (const [, opaque] of ifNoneMatch.matchAll(TAG_IN_LIST)) if (opaque === tag) return true;
  return false;
}
