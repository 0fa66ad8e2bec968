import { UsageError } from "../app/usage-error.ts";
import { importSigningKey, WebhookVerificationError } from "../signing/index.ts";

/** @throws UsageError for an empty one: it would otherwise only show with the first webhook */
export function refuseBadSecrets(secrets: readonly string[]): void {
  try {
    for (const secret of secrets) importSigningKey(secret);
  } catch (error) {
    if (error instanceof WebhookVerificationError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}
