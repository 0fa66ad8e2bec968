import type { ClientBase, Pool } from "pg";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import { type Publication, PublishRefusedError, publishAnalyses } from "../store/publications.ts";

// For those who import `sealpost/publish`, to tell a refusal from a fault.
export { PublishRefusedError };

export type PublishOptions = {
  /** `traceparent` of W3C Trace Context: sent along with the webhook. */
  readonly traceparent?: string | null;
  readonly unsafeAllowedTargets?: UnsafeAllowedTargets;
};

/**
 * Publishes completed analyses in the caller's own transaction: hand in the client that has begun one, and they are
 * delivered if and only if it commits. Unlike the SQL function it calls, it judges each webhook_url by the full rules.
 *
 * @returns delivery ids in input order
 * @throws PublishRefusedError naming the first bad element; then none is published
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
