export { createMemoryInbox, type DeliveryInbox } from "./delivery-inbox.ts";
export type { Analysis, AnalysisFailed, AnalysisSucceeded, WebhookEvent } from "./event.ts";
export { type PullWebhooksOptions, pullWebhooks } from "./pull.ts";
export { WebhookPullError } from "./pull-error.ts";
export { importSigningKey, type SigningKey, signatureHeader } from "./sign.ts";
export { type HeaderValue, SIGNATURE_HEADER } from "./signature-header.ts";
export {
  WEBHOOK_VERIFICATION_ERROR_CODES,
  WebhookVerificationError,
  type WebhookVerificationErrorCode,
  type WebhookVerificationErrorKind,
} from "./verification-error.ts";
export type { VerifySignatureInput } from "./verification-input.ts";
export { verifySignature, verifyWebhook } from "./verify.ts";
export type { VerifyWebhookInput } from "./webhook-input.ts";
