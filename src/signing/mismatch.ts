import { WebhookVerificationError } from "./verification-error.ts";

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
