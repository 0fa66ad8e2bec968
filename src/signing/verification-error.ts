/**
 * `rejected`: the request is not a genuine, fresh event; answer 400.
 * `misuse`: the receiver's own code or configuration is at fault and nothing was judged; answer 500,
 * so that the event is delivered again once the receiver is mended.
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

/** Stable: receivers may switch on it. A new code is a new minor version of the library. */
export type WebhookVerificationErrorCode = keyof typeof KINDS;

/** Every code, for those who want to be exhaustive. */
export const WEBHOOK_VERIFICATION_ERROR_CODES = Object.freeze(
  Object.keys(KINDS),
) as readonly WebhookVerificationErrorCode[];

/**
 * Why a delivery was not accepted. The message says what was found and what to do about it; it never holds
 * a secret or a signature, so it may be logged.
 */
export class WebhookVerificationError extends Error {
  override readonly name = "WebhookVerificationError";
  readonly code: WebhookVerificationErrorCode;
  readonly kind: WebhookVerificationErrorKind;
  /** What to answer. Frameworks that read an error's `statusCode` (express, fastify) do so by themselves. */
  readonly statusCode: 400 | 500;

  constructor(code: WebhookVerificationErrorCode, message: string, options?: { cause: unknown }) {
    super(message, options);
    this.code = code;
    this.kind = KINDS[code];
    this.statusCode = this.kind === "rejected" ? 400 : 500;
  }
}
