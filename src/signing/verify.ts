import { createHmac, timingSafeEqual } from "node:crypto";
import { parseChallenge, parseEvent, type WebhookEvent } from "./event.ts";
import { noSignatureMatches } from "./verification-error.ts";
import {
  checkInput,
  signatureInput,
  type VerifySignatureInput,
  type VerifyWebhookInput,
} from "./verification-input.ts";

/**
 * Returns if the bytes were signed with one of the secrets, less than the tolerance away from now.
 * @throws WebhookVerificationError with any code except `body_not_an_event` and `web_crypto_missing`
 */
export function verifySignature(input: VerifySignatureInput): void {
  verifiedBody(input);
}

/**
 * Verifies a delivery and returns its event: signed with one of the secrets, and fresh.
 * @throws WebhookVerificationError answer 400 if its `kind` is `rejected`, 500 if it is `misuse`
 */
export function verifyWebhook(input: VerifyWebhookInput): WebhookEvent {
  return parseEvent(verifiedBody(signatureInput(input)));
}

/**
 * Verifies a request as verifyWebhook does and, if it is a challenge, returns the text to answer with a 200: a service
 * may ask whether a receiver wants webhooks before it sends the first. Null: it is none, so call verifyWebhook.
 * @throws WebhookVerificationError as verifyWebhook, but never `body_not_an_event`
 */
export function readChallenge(input: VerifyWebhookInput): string | null {
  return parseChallenge(verifiedBody(signatureInput(input)));
}

function verifiedBody(input: VerifySignatureInput): Uint8Array {
  const { body, header, secrets, keys } = checkInput(input);
  let matches = 0;
  for (const key of keys) {
    const expected = createHmac("sha256", key).update(header.signedPrefix).update(body).digest();
    // Compare every pair, so that timing reveals neither which one matched nor how closely.
    for (const signature of header.signatures) matches += Number(timingSafeEqual(expected, signature));
  }
  if (matches === 0) throw noSignatureMatches(secrets);
  return body;
}
