import type { ClientBase, Pool } from "pg";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import { type Publication, PublishRefusedError, publishAnalyses } from "../store/publications.ts";

// Part of `sealpost/publish`: tells a refusal from a failure.
export { PublishRefusedError };

export type PublishOptions = {
  /** W3C Trace Context `traceparent`, sent with the webhook. */
  readonly traceparent?: string | null;
  readonly unsafeAllowedTargets?: UnsafeAllowedTargets;
};

/**
 * Publishes completed analyses in the caller's transaction (a transactional outbox): pass the client that has begun it,
 * and they are delivered if and only if it commits. Unlike the SQL function it calls, it checks each webhook_url
 * against all rules.
 *
 * @returns delivery ids in input order
 * @throws PublishRefusedError for the first invalid element; then none is published
 */
export async function publish(
  database: ClientBase | Pool,
  publications: readonly Publication[],
  options: PublishOptions = {},
): Promise<readonly string[]> {
  const judged = publications.map((publication, index) => {
    if (publication.webhookUrl == null) return publication;
    const verdict = judgeTargetUrl(publication.webhookUrl, options);
    if (verdict.verdict === "allow") return { ...publication, webhookUrl: verdict.href };
    const message = `analysis at index ${index}: its webhook_url is refused: ${verdict.message}`;
    throw new PublishRefusedError("target_refused", index, message, verdict.message, null);
  });
  return await publishAnalyses(database, judged, options.traceparent ?? null);
}
