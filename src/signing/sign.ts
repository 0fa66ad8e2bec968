import { createHmac, createSecretKey, type KeyObject } from "node:crypto";
import { STANDARD_HEADERS, standardKey } from "./standard-webhooks.ts";
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
 * The same secret as Standard Webhooks has it: the key is what the base64 after `whsec_` stands for. Null: that is not
 * 24 to 64 bytes.
 * @throws WebhookVerificationError `secret_missing` or `secret_empty`
 */
export function importStandardKey(secret: string): SigningKey | null {
  checkSecret(secret);
  const key = standardKey(secret);
  return key && createSecretKey(key);
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
  const { timestampSeconds } = input;
  const signatures = digests(input, `${timestampSeconds}.`, "hex").map((digest) => `v1=${digest}`);
  return [`t=${timestampSeconds}`, ...signatures].join(",");
}

/**
 * The headers of Standard Webhooks for exactly these bytes.
 * @param input.id of the message, without a full stop
 * @param input.keys from importStandardKey, in order
 * @throws RangeError as signatureHeader
 */
export function standardSignatureHeaders(input: {
  readonly id: string;
  readonly timestampSeconds: number;
  readonly body: Uint8Array;
  readonly keys: readonly SigningKey[];
}): Record<(typeof STANDARD_HEADERS)[keyof typeof STANDARD_HEADERS], string> {
  const { id, timestampSeconds } = input;
  const signatures = digests(input, `${id}.${timestampSeconds}.`, "base64").map((digest) => `v1,${digest}`);
  return {
    [STANDARD_HEADERS.id]: id,
    [STANDARD_HEADERS.timestamp]: String(timestampSeconds),
    [STANDARD_HEADERS.signature]: signatures.join(" "),
  };
}

function digests(
  input: {
    readonly timestampSeconds: number;
    readonly body: Uint8Array;
    readonly keys: readonly SigningKey[];
  },
  prefix: string,
  encoding: "hex" | "base64",
): readonly string[] {
  const { timestampSeconds, body, keys } = input;
  if (!Number.isSafeInteger(timestampSeconds) || timestampSeconds < 0) {
    throw new RangeError(`The timestamp must be Unix time in whole seconds, but is ${timestampSeconds}.`);
  }
  if (keys.length === 0) throw new RangeError("At least one signing key is required.");
  return keys.map((key) =>
    createHmac("sha256", key as KeyObject)
      .update(prefix)
      .update(body)
      .digest(encoding),
  );
}
