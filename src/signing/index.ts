export { createMemoryInbox, type DeliveryInbox } from "./delivery-inbox.ts";
export type { Analysis, AnalysisFailed, AnalysisSucceeded, WebhookEvent } from "./event.ts";
export { type PullWebhooksOptions, pullWebhooks, WebhookPullError } from "./pull.ts";
export {
  importSigningKey,
  importStandardKey,
  type SigningKey,
  signatureHeader,
  standardSignatureHeaders,
} from "./sign.ts";
export { type HeaderValue, type RequestHeaders, SIGNATURE_HEADER } from "./signature-header.ts";
export {
  WEBHOOK_VERIFICATION_ERROR_CODES,
  WebhookVerificationError,
  type WebhookVerificationErrorCode,
  type WebhookVerificationErrorKind,
} from "./verification-error.ts";
export type { VerifySignatureInput, VerifyWebhookInput } from "./verification-input.ts";
export { readChallenge, verifySignature, verifyWebhook } from "./verify.ts";
