import {
  type HeaderValue,
  type ParsedSignatureHeader,
  parseHeaders,
  parseSignatureHeader,
  type RequestHeaders,
} from "./signature-header.ts";
import { standardKey } from "./standard-webhooks.ts";
import { systemNowSeconds } from "./system-clock.ts";
import { WebhookVerificationError } from "./verification-error.ts";

const TOLERANCE_SECONDS_DEFAULT = 300;

// The year 5138 in seconds, March 1973 in milliseconds: anything above is in milliseconds by mistake.
const NOW_SECONDS_MAX = 100_000_000_000;

/** `headers`: all of the request's; where they have no `extract-signature`, those of Standard Webhooks count. */
type Signed =
  /** The value of the `extract-signature` header. */
  | { readonly header: HeaderValue; readonly headers?: undefined }
  | { readonly headers: RequestHeaders; readonly header?: undefined };

export type VerifySignatureInput = Signed & {
  /** The raw request body. */
  readonly body: Uint8Array | ArrayBuffer;
  /** One, or several during a rotation; a signature by any of them is valid. */
  readonly secrets: readonly string[];
  /** Reject timestamps this many seconds or more away from now. Default 300. */
  readonly toleranceSeconds?: number | undefined;
  /** Unix time in seconds. Default: the system clock. */
  readonly nowSeconds?: number | undefined;
};

interface DeliveryInput extends Pick<VerifySignatureInput, "toleranceSeconds"> {
  /** The raw request body: bytes, not a string and not a parsed object. */
  readonly rawBody: Uint8Array | ArrayBuffer;
  /** A Date, or Unix time in seconds. Default: the system clock. */
  readonly now?: Date | number | undefined;
}

/** During a rotation the new and the old one. Undefined (an unset variable) is refused at run time. */
export type Secrets =
  | { readonly secret: string | undefined; readonly secrets?: undefined }
  | { readonly secrets: readonly string[]; readonly secret?: undefined };

export type VerifyWebhookInput = Signed & DeliveryInput & Secrets;

export function signatureInput(input: VerifyWebhookInput): VerifySignatureInput {
  const { now, secret, secrets, headers, header } = input;
  return {
    body: input.rawBody,
    ...(headers === undefined ? { header } : { headers }),
    secrets: secrets ?? (secret === undefined ? [] : [secret]),
    toleranceSeconds: input.toleranceSeconds,
    nowSeconds: now instanceof Date ? now.getTime() / 1000 : now,
  };
}

/** Checked, except for the signatures. */
export interface CheckedInput {
  readonly body: Uint8Array;
  readonly header: ParsedSignatureHeader;
  readonly secrets: readonly string[];
  /** The secrets as keys of the header's scheme; what cannot be one is none. */
  readonly keys: readonly Uint8Array<ArrayBuffer>[];
}

/**
 * Checks everything that needs no key: the receiver's own settings first, so that a mistake shows on the first
 * request of any kind, then the header and the timestamp.
 * @throws WebhookVerificationError
 */
export function checkInput(input: VerifySignatureInput): CheckedInput {
  const { toleranceSeconds = TOLERANCE_SECONDS_DEFAULT, nowSeconds = systemNowSeconds() } = input;
  const secrets = checkedSecrets(input.secrets);
  checkClock(toleranceSeconds, nowSeconds);
  const body = checkedBody(input.body);
  const header =
    input.headers === undefined ? parseSignatureHeader(input.header) : parseHeaders(input.headers);
  checkTimestamp(header.timestampSeconds, toleranceSeconds, nowSeconds);
  const keyOf = header.isStandard ? standardKey : (secret: string) => new TextEncoder().encode(secret);
  const keys = secrets.map(keyOf).filter((key) => key !== null);
  return { body, header, secrets, keys };
}

/** A string is refused, not iterated: each character would become a secret that anyone can guess. */
function checkedSecrets(secrets: unknown): readonly string[] {
  if (!Array.isArray(secrets) || secrets.length === 0) {
    throw new WebhookVerificationError(
      "secret_missing",
      "No signing secret was passed. Check that it is set in your configuration, and pass it as `secret` or, during " +
        "a rotation, as `secrets` (an array).",
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
      `A signing secret is ${secret === null ? "null" : typeof secret}, not a string. ` +
        "Check that the configuration it comes from is set.",
    );
  }
  // HMAC pads its key with zero bytes, so a key of zero bytes equals the empty key.
  if (secret.replaceAll("\0", "").trim() === "") {
    throw new WebhookVerificationError(
      "secret_empty",
      "A signing secret is empty, so anyone could sign with it. Check that the configuration it comes from is set.",
    );
  }
}

/** The body's bytes, as a view of the same memory. @throws WebhookVerificationError `body_already_parsed` */
function checkedBody(body: unknown): Uint8Array {
  // Not `instanceof`: the bytes may come from another realm (a worker, a test runner).
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
      "The body is a string, but the signature covers the bytes that were sent. Pass the raw bytes (a Buffer, " +
      "Uint8Array or ArrayBuffer), or, if the platform provides only text, new TextEncoder().encode(text)."
    );
  }
  if (body === undefined || body === null) {
    return (
      `The body is ${body}. Read the raw request body before anything else consumes it, and pass it as a Buffer, ` +
      "Uint8Array or ArrayBuffer."
    );
  }
  return (
    "The body is already parsed. The signature covers the bytes that were sent, which JSON.stringify does not " +
    "restore. Turn off the body parser for this route (express.raw() instead of express.json(), a buffer " +
    "content-type parser in fastify, request.arrayBuffer() instead of request.json()) and pass the raw bytes."
  );
}

/** The tolerance is already too far. @throws WebhookVerificationError `timestamp_too_old` or `timestamp_ahead` */
function checkTimestamp(timestampSeconds: number, toleranceSeconds: number, nowSeconds: number): void {
  const ageSeconds = nowSeconds - timestampSeconds;
  if (ageSeconds >= toleranceSeconds) {
    throw new WebhookVerificationError(
      "timestamp_too_old",
      `The delivery was signed ${Math.round(ageSeconds)} s ago; ${toleranceSeconds} s or more is refused to prevent ` +
        "replay attacks. If this happens to fresh deliveries, correct the receiver's clock (NTP), and verify before " +
        "the request waits in a queue.",
    );
  }
  if (-ageSeconds >= toleranceSeconds) {
    throw new WebhookVerificationError(
      "timestamp_ahead",
      `The delivery's timestamp is ${Math.round(-ageSeconds)} s ahead of the receiver's clock; ` +
        `${toleranceSeconds} s or more is refused. Correct the receiver's clock (NTP).`,
    );
  }
}

/** NaN compares false with everything: unchecked, it would let any age pass. */
function checkClock(toleranceSeconds: unknown, nowSeconds: unknown): void {
  if (typeof toleranceSeconds !== "number" || !Number.isFinite(toleranceSeconds) || toleranceSeconds <= 0) {
    throw new WebhookVerificationError(
      "tolerance_invalid",
      "toleranceSeconds must be a positive number of seconds. Omit it for the default of 300.",
    );
  }
  if (typeof nowSeconds !== "number" || !(nowSeconds >= 0 && nowSeconds < NOW_SECONDS_MAX)) {
    throw new WebhookVerificationError(
      "clock_invalid",
      "The current time must be Unix time in seconds; Date.now() returns milliseconds. Omit it for the system clock.",
    );
  }
}
