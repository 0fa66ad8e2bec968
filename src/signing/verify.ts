import { createHmac, timingSafeEqual } from "node:crypto";
import { parseEvent, type WebhookEvent } from "./event.ts";
import { noSignatureMatches } from "./mismatch.ts";
import { importSigningKey } from "./sign.ts";
import { checkInput, type VerifySignatureInput } from "./verification-input.ts";
import { signatureInput, type VerifyWebhookInput } from "./webhook-input.ts";

/**
 * Returns when the bytes were signed, with one of the secrets, less than the tolerance away from now.
 *
 * @throws WebhookVerificationError of any code but `body_not_an_event` and `web_crypto_missing`
 */
export function verifySignature(input: VerifySignatureInput): void {
  verifiedBody(input);
}

/**
 * The event of a delivery that was signed with the secret, or one of the secrets, and is fresh.
 *
 * @throws WebhookVerificationError answer 400 when its `kind` is `rejected`, 500 when it is `misuse`
 */
export function verifyWebhook(input: VerifyWebhookInput): WebhookEvent {
  return parseEvent(verifiedBody(signatureInput(input)));
}

function verifiedBody(input: VerifySignatureInput): Uint8Array {
  const { body, header, secrets } = checkInput(input);
  let matches = 0;
  for (const secret of secrets) {
    const expected = createHmac("sha256", importSigningKey(secret))
      .update(`${header.timestampText}.`)
      .update(body)
      .digest();
    // Every pair is compared, so that the time tells neither which matched nor how nearly.
    for (const signature of header.signatures) matches += Number(timingSafeEqual(expected, signature));
  }
  if (matches === 0) throw noSignatureMatches(secrets);
  return body;
}
