import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { checkSecret } from "./verification-input.ts";

/** Faster to sign with than the text. A KeyObject under a type of our own: receivers compile without @types/node. */
export interface SigningKey {
  readonly type: string;
}

/**
 * The HMAC key is the whole secret as UTF-8, `whsec_` included; nothing is decoded.
 * @throws WebhookVerificationError `secret_missing` or `secret_empty`
 */
export function importSigningKey(secret: string): SigningKey {
  checkSecret(secret);
  return createSecretKey(secret, "utf8");
}

/**
 * The signature header's value for exactly these bytes: one `v1` per key, in order.
 * @param input.timestampSeconds Unix time in seconds, an integer
 * @param input.keys one; during a rotation's overlap, the current and then the previous one
 * @throws RangeError if the timestamp is not a non-negative integer, or if there is no key
 */
export function signatureHeader(input: {
  readonly timestampSeconds: number;
  readonly body: Uint8Array;
  readonly keys: readonly SigningKey[];
}): string {
  const { timestampSeconds, body, keys } = input;
  if (!Number.isSafeInteger(timestampSeconds) || timestampSeconds < 0) {
    throw new RangeError(`The timestamp must be Unix time in whole seconds, but is ${timestampSeconds}.`);
  }
  if (keys.length === 0) throw new RangeError("At least one signing key is required.");
  const signatures = keys.map((key) => {
    const hmac = createHmac("sha256", key as KeyObject).update(`${timestampSeconds}.`);
    return `v1=${hmac.update(body).digest("hex")}`;
  });
  return [`t=${timestampSeconds}`, ...signatures].join(",");
}
