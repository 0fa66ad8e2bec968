export { importSigningKey, type SigningKey, signatureHeader } from "./sign.ts";
export { type HeaderValue, SIGNATURE_HEADER } from "./signature-header.ts";
export {
  WEBHOOK_VERIFICATION_ERROR_CODES,
  WebhookVerificationError,
  type WebhookVerificationErrorCode,
  type WebhookVerificationErrorKind,
} from "./verification-error.ts";
export { type VerifySignatureInput, verifySignature } from "./verify-signature.ts";
