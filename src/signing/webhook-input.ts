import type { HeaderValue } from "./signature-header.ts";
import type { VerifySignatureInput } from "./verification-input.ts";

interface DeliveryInput {
  /** The raw request body: bytes, not a string and not a parsed object. */
  readonly rawBody: Uint8Array | ArrayBuffer;
  /** The value of the `extract-signature` header. */
  readonly header: HeaderValue;
  /** Reject timestamps this many seconds or more away from now. Default 300. */
  readonly toleranceSeconds?: number | undefined;
  /** A Date, or Unix time in seconds. Default: the system clock. */
  readonly now?: Date | number | undefined;
}

/** The account's signing secret. The type allows undefined (an unset variable); at run time it is refused. */
interface OneSecret {
  readonly secret: string | undefined;
  readonly secrets?: undefined;
}

/** During a rotation: the new and the old one. */
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
