/**
 * `rejected`: the request is not a genuine, fresh event; answer 400.
 * `misuse`: the receiver's own code or configuration is wrong and nothing was verified; answer 500,
 * so that the event is retried once the receiver is fixed.
 */
export type WebhookVerificationErrorKind = "rejected" | "misuse";

const KINDS = {
  header_missing: "rejected",
  header_malformed: "rejected",
  timestamp_too_old: "rejected",
  timestamp_ahead: "rejected",
  no_signature_matches: "rejected",
  body_not_an_event: "rejected",
  body_already_parsed: "misuse",
  secret_missing: "misuse",
  secret_empty: "misuse",
  tolerance_invalid: "misuse",
  clock_invalid: "misuse",
  web_crypto_missing: "misuse",
} as const satisfies Record<string, WebhookVerificationErrorKind>;

/** Stable: safe to switch on. A new code means a new minor version of the library. */
export type WebhookVerificationErrorCode = keyof typeof KINDS;

/** Every code, for exhaustive handling. */
export const WEBHOOK_VERIFICATION_ERROR_CODES = Object.freeze(
  Object.keys(KINDS),
) as readonly WebhookVerificationErrorCode[];

/** Why a delivery was not accepted, and how to fix it. Never contains a secret or a signature, so it is safe to log. */
export class WebhookVerificationError extends Error {
  override readonly name = "WebhookVerificationError";
  readonly code: WebhookVerificationErrorCode;
  readonly kind: WebhookVerificationErrorKind;
  /** The status to answer with. Frameworks that use an error's `statusCode` (express, fastify) do so by default. */
  readonly statusCode: 400 | 500;

  constructor(code: WebhookVerificationErrorCode, message: string, options?: { cause: unknown }) {
    super(message, options);
    this.code = code;
    this.kind = KINDS[code];
    this.statusCode = this.kind === "rejected" ? 400 : 500;
  }
}

/** Reveals nothing of the secret but whether it looks like one. */
export function noSignatureMatches(secrets: readonly string[]): WebhookVerificationError {
  const looksDamaged = secrets.some((secret) => secret !== secret.trim() || !secret.startsWith("whsec_"));
  return new WebhookVerificationError(
    "no_signature_matches",
    "No signature in the header matches this body and secret. Check that the body is the raw bytes as received, " +
      "and that the secret belongs to this account and environment and is complete, whsec_ included" +
      (looksDamaged
        ? "; a secret passed here does not start with whsec_ or has whitespace around it."
        : ". If both are right, the request was not sent by the service."),
  );
}
