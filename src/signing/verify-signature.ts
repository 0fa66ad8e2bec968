import { createHmac, timingSafeEqual } from "node:crypto";
import { noSignatureMatches } from "./mismatch.ts";
import { importSigningKey } from "./sign.ts";
import { type HeaderValue, parseSignatureHeader } from "./signature-header.ts";
import { systemNowSeconds } from "./system-clock.ts";
import {
  checkClock,
  checkedBody,
  checkedSecrets,
  checkTimestamp,
  TOLERANCE_SECONDS_DEFAULT,
} from "./verification-input.ts";

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

/**
 * Returns when the bytes were signed, with one of the secrets, less than the tolerance away from now.
 *
 * @throws WebhookVerificationError of any code but `body_not_an_event` and `web_crypto_missing`
 */
export function verifySignature(input: VerifySignatureInput): void {
  const { toleranceSeconds = TOLERANCE_SECONDS_DEFAULT, nowSeconds = systemNowSeconds() } = input;
  const secrets = checkedSecrets(input.secrets);
  checkClock(toleranceSeconds, nowSeconds);
  const body = checkedBody(input.body);
  const header = parseSignatureHeader(input.header);
  checkTimestamp(header.timestampSeconds, toleranceSeconds, nowSeconds);

  const signatures = header.signatures.map((signature) => Buffer.from(signature, "hex"));
  let matches = 0;
  for (const secret of secrets) {
    const expected = createHmac("sha256", importSigningKey(secret))
      .update(`${header.timestampText}.`)
      .update(body)
      .digest();
    // Every pair is compared, so that the time tells neither which matched nor how nearly.
    for (const signature of signatures) matches += Number(timingSafeEqual(expected, signature));
  }
  if (matches === 0) throw noSignatureMatches(secrets);
}
