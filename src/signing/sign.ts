import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { checkSecret } from "./verification-input.ts";

/** A signing secret made ready: an imported key signs in a fifth of the time that a text needs. */
export type SigningKey = KeyObject;

/**
 * The HMAC key is the whole text of the secret in UTF-8, `whsec_` included; nothing is decoded.
 *
 * @throws WebhookVerificationError `secret_missing` or `secret_empty`
 */
export function importSigningKey(secret: string): SigningKey {
  checkSecret(secret);
  return createSecretKey(secret, "utf8");
}

/**
 * The value of the signature header for exactly these bytes: one `v1` per key, in the order of the keys.
 *
 * @param input.timestampSeconds Unix time in whole seconds
 * @param input.keys one, or, while a rotated secret still holds, the current and then the old
 * @throws RangeError when the timestamp is not a whole number or no key is given
 */
export function signatureHeader(input: {
  readonly timestampSeconds: number;
  readonly body: Uint8Array;
  readonly keys: readonly SigningKey[];
}): string {
  const { timestampSeconds, body, keys } = input;
  if (!Number.isSafeInteger(timestampSeconds) || timestampSeconds < 0) {
    throw new RangeError(`The timestamp must be Unix time in whole seconds, and is ${timestampSeconds}.`);
  }
  if (keys.length === 0) throw new RangeError("At least one signing key is needed, and none was given.");
  let header = `t=${timestampSeconds}`;
  for (const key of keys) {
    header += `,v1=${createHmac("sha256", key).update(`${timestampSeconds}.`).update(body).digest("hex")}`;
  }
  return header;
}
