// What the receiver library has of node:crypto, for browsers and edge runtimes: pack.ts bundles it into the package,
// which has it there in Node's place. Not Web Crypto: the same functions would return promises, and whoever did not
// await one would let forgeries pass.
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";

/** Nothing that prints it shows the secret. */
class SecretKey {
  readonly type = "secret";
  readonly #bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  hmac() {
    return hmac.create(sha256, this.#bytes);
  }
}

const bytesOf = (data: string | Uint8Array) =>
  typeof data === "string" ? new TextEncoder().encode(data) : data;
const base64Of = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes));
const hexOf = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** A text is UTF-8. */
export function createSecretKey(secret: string | Uint8Array): SecretKey {
  return new SecretKey(bytesOf(secret).slice());
}

/** There is SHA-256 alone. */
export function createHmac(_algorithm: "sha256", key: SecretKey | Uint8Array) {
  const hash = (key instanceof SecretKey ? key : new SecretKey(key)).hmac();
  const digest = (encoding?: "hex" | "base64") => {
    const bytes = hash.digest();
    return encoding === undefined ? bytes : encoding === "hex" ? hexOf(bytes) : base64Of(bytes);
  };
  const update = (data: string | Uint8Array) => {
    hash.update(bytesOf(data));
    return { update, digest };
  };
  return { update, digest };
}

/** @throws RangeError if they are not of one length */
export function timingSafeEqual(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) throw new RangeError("Input buffers must have the same byte length");
  let difference = 0;
  for (let at = 0; at < left.length; at += 1) difference |= left[at]! ^ right[at]!;
  return difference === 0;
}

/** From 0 to below `max`, at most 2^32, of which it is a small part: of that the lowest are a little likelier. */
export function randomInt(max: number): number {
  return globalThis.crypto.getRandomValues(new Uint32Array(1))[0]! % max;
}

export function randomUUID(): string {
  return globalThis.crypto.randomUUID();
}
