import { importSigningKey, WebhookVerificationError } from "../signing/index.ts";
import { Mistake } from "./mistake.ts";

/** @throws Mistake for an empty one: it would otherwise only show with the first webhook */
export function refuseBadSecrets(secrets: readonly string[]): void {
  try {
    for (const secret of secrets) importSigningKey(secret);
  } catch (error) {
    if (error instanceof WebhookVerificationError) throw new Mistake(error.message, { cause: error });
    throw error;
  }
}
