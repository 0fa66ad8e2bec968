import { parseChallenge, parseEvent, type WebhookEvent } from "./event.ts";
import { noSignatureMatches, WebhookVerificationError } from "./verification-error.ts";
import {
  checkInput,
  signatureInput,
  type VerifySignatureInput,
  type VerifyWebhookInput,
} from "./verification-input.ts";

export { createMemoryInbox, type DeliveryInbox } from "./delivery-inbox.ts";
export type { Analysis, AnalysisFailed, AnalysisSucceeded, WebhookEvent } from "./event.ts";
export { type HeaderValue, type RequestHeaders, SIGNATURE_HEADER } from "./signature-header.ts";
export {
  WEBHOOK_VERIFICATION_ERROR_CODES,
  WebhookVerificationError,
  type WebhookVerificationErrorCode,
  type WebhookVerificationErrorKind,
} from "./verification-error.ts";
export type { VerifySignatureInput, VerifyWebhookInput } from "./verification-input.ts";

/**
 * As in the Node entry, but with Web Crypto: resolves if the bytes were signed with one of the secrets, less than the
 * tolerance away from now.
 * @throws WebhookVerificationError (as a rejection) with any code except `body_not_an_event`
 */
export async function verifySignature(input: VerifySignatureInput): Promise<void> {
  await verifiedBody(input);
}

/**
 * As in the Node entry, but with Web Crypto: verifies a delivery and resolves to its event.
 * @throws WebhookVerificationError (as a rejection); answer 400 if its `kind` is `rejected`, 500 if it is `misuse`
 */
export async function verifyWebhook(input: VerifyWebhookInput): Promise<WebhookEvent> {
  return parseEvent(await verifiedBody(signatureInput(input)));
}

/**
 * As in the Node entry, but with Web Crypto: verifies a request and, if it is a challenge, resolves to the text to
 * answer with a 200; null: it is none, so call verifyWebhook.
 * @throws WebhookVerificationError (as a rejection) as verifyWebhook, but never `body_not_an_event`
 */
export async function readChallenge(input: VerifyWebhookInput): Promise<string | null> {
  return parseChallenge(await verifiedBody(signatureInput(input)));
}

/** Returns a copy: the caller may reuse its buffer while the digest is awaited. */
async function verifiedBody(input: VerifySignatureInput): Promise<Uint8Array> {
  const { body, header, secrets, keys } = checkInput(input);
  const prefix = new TextEncoder().encode(header.signedPrefix);
  const message = new Uint8Array(prefix.length + body.length);
  message.set(prefix);
  message.set(body, prefix.length);

  let matches = 0;
  for (const key of keys) {
    const expected = await hmacSha256(key, message);
    for (const signature of header.signatures) matches += Number(equalInConstantTime(expected, signature));
  }
  if (matches === 0) throw noSignatureMatches(secrets);
  return message.subarray(prefix.length);
}

async function hmacSha256(
  bytes: Uint8Array<ArrayBuffer>,
  message: Uint8Array<ArrayBuffer>,
): Promise<Uint8Array> {
  const subtle = globalThis.crypto?.subtle;
  if (subtle === undefined) {
    throw new WebhookVerificationError(
      "web_crypto_missing",
      "This runtime has no Web Crypto. On Node, import sealpost-receiver instead of sealpost-receiver/web; in a " +
        "browser, serve the page over HTTPS.",
    );
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", key, message));
}

/** Not `subtle.verify`: it would hash the whole body again for every signature in the header. */
function equalInConstantTime(left: Uint8Array, right: Uint8Array): boolean {
  let difference = left.length ^ right.length;
  for (let at = 0; at < left.length; at += 1) difference |= left[at]! ^ right[at]!;
  return difference === 0;
}
