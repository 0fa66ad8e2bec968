import { WebhookVerificationError } from "./verification-error.ts";

/** Nothing of the secret is told but whether it looks like one. */
export function noSignatureMatches(secrets: readonly string[]): WebhookVerificationError {
  const looksDamaged = secrets.some((secret) => secret !== secret.trim() || !secret.startsWith("whsec_"));
  return new WebhookVerificationError(
    "no_signature_matches",
    "No signature in the header belongs to this body and secret. Check that the body is the raw bytes as they " +
      "arrived, and that the secret is this account's, in this environment, with all its text from whsec_ on" +
      (looksDamaged
        ? "; a secret given here does not begin with whsec_ or has white space around it."
        : ". If both are right, the request does not come from the service."),
  );
}
