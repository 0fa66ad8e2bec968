import { hash } from "node:crypto";

/** A strong tag of exactly these bytes, and of what goes `besides` them where something does. */
export function entityTag(bytes: string | Uint8Array, besides = ""): string {
  const tag = hash("sha256", bytes, "base64url");
  return quoteEntityTag(besides === "" ? tag : `${tag}.${hash("sha256", besides, "base64url")}`);
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
