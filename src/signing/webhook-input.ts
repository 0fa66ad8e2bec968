import type { HeaderValue } from "./signature-header.ts";
import type { VerifySignatureInput } from "./verification-input.ts";

interface DeliveryInput {
  /** The request's body exactly as it arrived: bytes, neither a text nor a parsed object. */
  readonly rawBody: Uint8Array | ArrayBuffer;
  /** The value of the `extract-signature` header. */
  readonly header: HeaderValue;
  /** A timestamp this many seconds away from now, or more, is refused. 300 when left out. */
  readonly toleranceSeconds?: number | undefined;
  /** A Date, or Unix time in seconds. The system's clock when left out. */
  readonly now?: Date | number | undefined;
}

/** The account's signing secret; undefined is allowed to be written and is refused when it happens. */
interface OneSecret {
  readonly secret: string | undefined;
  readonly secrets?: undefined;
}

/** While a secret is being rotated: the new and the old. */
interface SeveralSecrets {
  readonly secrets: readonly string[];
  readonly secret?: undefined;
}

export type VerifyWebhookInput = DeliveryInput & (OneSecret | SeveralSecrets);

export function signatureInput(input: VerifyWebhookInput): VerifySignatureInput {
  const { now, secret, secrets } = input;
  return {
    body: input.rawBody,
    header: input.header,
    secrets: secrets ?? (secret === undefined ? [] : [secret]),
    toleranceSeconds: input.toleranceSeconds,
    nowSeconds: now instanceof Date ? now.getTime() / 1000 : now,
  };
}
