import { hash } from "node:crypto";
import xxhash from "xxhash-wasm";

const { h64, h64Raw } = await xxhash();

/**
 * A WebAssembly module keeps what memory it has once needed: only what is shorter, as lists and all but a few analyses
 * are, is hashed there.
 */
const FAST_BYTES_MAX = 1_048_576;

/**
 * A strong tag of exactly these bytes, and of what goes `besides` them where something does. By a hash that is no
 * cryptographic one, at a sixth of SHA-256's time, which was a fifteenth of a page of the log's: whoever can make two
 * answers of one tag deceives nobody but himself.
 */
export function entityTag(bytes: Uint8Array, besides = ""): string {
  const tag =
    bytes.byteLength <= FAST_BYTES_MAX ? h64Raw(bytes).toString(36) : hash("sha256", bytes, "base64url");
  return quoteEntityTag(besides === "" ? tag : `${tag}.${h64(besides).toString(36)}`);
}

/** `opaque` holds no quote and no control character, so that it can stand between quotes. */
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
