import { type HeaderValue, type ParsedSignatureHeader, parseSignatureHeader } from "./signature-header.ts";
import { systemNowSeconds } from "./system-clock.ts";
import { WebhookVerificationError } from "./verification-error.ts";

const TOLERANCE_SECONDS_DEFAULT = 300;

// The year 5138 in seconds, and March 1973 in milliseconds: a number above it was meant as milliseconds.
const NOW_SECONDS_MAX = 100_000_000_000;

export interface VerifySignatureInput {
  /** The request's body exactly as it arrived. */
  readonly body: Uint8Array | ArrayBuffer;
  /** The value of the `extract-signature` header. */
  readonly header: HeaderValue;
  /** One, or several while a secret is being rotated; a signature by any of them is good. */
  readonly secrets: readonly string[];
  /** A timestamp this many seconds away from now, or more, is refused. 300 when left out. */
  readonly toleranceSeconds?: number | undefined;
  /** Unix time in seconds. The system's clock when left out. */
  readonly nowSeconds?: number | undefined;
}

/** What is left to do with it: find one signature that belongs to one secret. */
export interface CheckedInput {
  readonly body: Uint8Array;
  readonly header: ParsedSignatureHeader;
  readonly secrets: readonly string[];
}

/**
 * Everything about a delivery that can be judged without a key: the receiver's own mistakes first, so that a wrong
 * setting shows at the first request of any kind, then the header and the time.
 *
 * @throws WebhookVerificationError
 */
export function checkInput(input: VerifySignatureInput): CheckedInput {
  const { toleranceSeconds = TOLERANCE_SECONDS_DEFAULT, nowSeconds = systemNowSeconds() } = input;
  const secrets = checkedSecrets(input.secrets);
  checkClock(toleranceSeconds, nowSeconds);
  const body = checkedBody(input.body);
  const header = parseSignatureHeader(input.header);
  checkTimestamp(header.timestampSeconds, toleranceSeconds, nowSeconds);
  return { body, header, secrets };
}

/**
 * The secrets, each a text that holds something. A single string in place of the list is refused and not walked
 * through: its characters would each become a secret that anyone can guess.
 *
 * @throws WebhookVerificationError `secret_missing` or `secret_empty`
 */
function checkedSecrets(secrets: unknown): readonly string[] {
  if (!Array.isArray(secrets) || secrets.length === 0) {
    throw new WebhookVerificationError(
      "secret_missing",
      "No signing secret was given. Pass `secret` (one) or `secrets` (an array, while a secret is being rotated) " +
        "from your configuration.",
    );
  }
  for (const secret of secrets) checkSecret(secret);
  return secrets;
}

/** @throws WebhookVerificationError `secret_missing` or `secret_empty` */
export function checkSecret(secret: unknown): asserts secret is string {
  if (typeof secret !== "string") {
    throw new WebhookVerificationError(
      "secret_missing",
      `A signing secret is not a string but ${secret === null ? "null" : typeof secret}. ` +
        "Check that the configuration it is read from is set.",
    );
  }
  // HMAC pads its key with zero bytes, so that a key of zero bytes is the empty key.
  if (secret.replaceAll("\0", "").trim() === "") {
    throw new WebhookVerificationError(
      "secret_empty",
      "A signing secret is empty, and anyone could sign with it. Check that the configuration it is read from is set.",
    );
  }
}

/**
 * The bytes of the request's body, as a view on the same memory.
 *
 * @throws WebhookVerificationError `body_already_parsed`
 */
function checkedBody(body: unknown): Uint8Array {
  // Not `instanceof`: bytes may come from another realm (a test runner's, a worker's).
  if (ArrayBuffer.isView(body) && "BYTES_PER_ELEMENT" in body && body.BYTES_PER_ELEMENT === 1) {
    return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  }
  if (Object.prototype.toString.call(body) === "[object ArrayBuffer]") {
    return new Uint8Array(body as ArrayBuffer);
  }
  throw new WebhookVerificationError("body_already_parsed", bodyFinding(body));
}

function bodyFinding(body: unknown): string {
  if (typeof body === "string") {
    return (
      "The body is a string, already decoded. The signature covers the bytes as they were sent: pass the raw bytes " +
      "(a Buffer, Uint8Array or ArrayBuffer), or, where the platform gives only text, new TextEncoder().encode(text)."
    );
  }
  if (body === undefined || body === null) {
    return (
      `The body is ${body}. Read the request's raw bytes before anything else consumes them, and pass them as a ` +
      "Buffer, Uint8Array or ArrayBuffer."
    );
  }
  return (
    "The body is already parsed. The signature covers the bytes as they were sent, and JSON.stringify does not give " +
    "them back: switch the body parser off for this route (express.raw() in place of express.json(), a buffer " +
    "content-type parser in fastify, request.arrayBuffer() in place of request.json()) and pass the raw bytes."
  );
}

/**
 * Whether a timestamp is near enough to now; at the tolerance itself it no longer is.
 *
 * @throws WebhookVerificationError `timestamp_too_old`, `timestamp_ahead`, `tolerance_invalid` or `clock_invalid`
 */
function checkTimestamp(timestampSeconds: number, toleranceSeconds: number, nowSeconds: number): void {
  const ageSeconds = nowSeconds - timestampSeconds;
  if (ageSeconds >= toleranceSeconds) {
    throw new WebhookVerificationError(
      "timestamp_too_old",
      `The delivery was signed ${Math.round(ageSeconds)} s ago, and ${toleranceSeconds} s or more is refused, so ` +
        "that nobody can send an old delivery again. If this happens to fresh ones, set the receiver's clock (NTP), " +
        "and verify before the request waits in a queue.",
    );
  }
  if (-ageSeconds >= toleranceSeconds) {
    throw new WebhookVerificationError(
      "timestamp_ahead",
      `The delivery's timestamp is ${Math.round(-ageSeconds)} s ahead of the receiver's clock, and ` +
        `${toleranceSeconds} s or more is refused. Set the receiver's clock (NTP).`,
    );
  }
}

/** NaN compares as false with everything: unchecked, it would make every age pass. */
function checkClock(toleranceSeconds: unknown, nowSeconds: unknown): void {
  if (typeof toleranceSeconds !== "number" || !Number.isFinite(toleranceSeconds) || toleranceSeconds <= 0) {
    throw new WebhookVerificationError(
      "tolerance_invalid",
      "toleranceSeconds must be a number of seconds above 0. Leave it out for the usual 300.",
    );
  }
  if (typeof nowSeconds !== "number" || !(nowSeconds >= 0 && nowSeconds < NOW_SECONDS_MAX)) {
    throw new WebhookVerificationError(
      "clock_invalid",
      "The current time must be given in Unix seconds; Date.now() counts milliseconds. Leave it out to use the " +
        "system's clock.",
    );
  }
}
