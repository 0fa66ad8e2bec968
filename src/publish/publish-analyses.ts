import type { ClientBase, Pool } from "pg";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import {
  type Publication,
  PublishRefusedError,
  type PublishResult,
  publishAnalyses,
  publishEach as publishEachAllowed,
} from "../store/publications.ts";

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
    const verdict = judge(publication, options, index);
    if (verdict instanceof PublishRefusedError) throw verdict;
    return verdict;
  });
  return await publishAnalyses(database, judged, options.traceparent ?? null);
}

/**
 * The same for analyses that have nothing to do with each other: each is published or refused by itself.
 *
 * @returns results in input order
 */
export async function publishEach(
  tx: ClientBase,
  publications: readonly (Publication & { readonly traceparent: string | null })[],
  options: Pick<PublishOptions, "unsafeAllowedTargets">,
): Promise<readonly PublishResult[]> {
  const verdicts = publications.map((publication) => judge(publication, options, 0));
  const allowed = verdicts.flatMap((verdict) => (verdict instanceof PublishRefusedError ? [] : [verdict]));
  const results = allowed.length === 0 ? [] : await publishEachAllowed(tx, allowed);
  let next = 0;
  return verdicts.map((verdict) =>
    verdict instanceof PublishRefusedError ? { refusal: verdict } : results[next++]!,
  );
}

/** The publication with its webhook_url in normal form. */
function judge<P extends Publication>(
  publication: P,
  options: Pick<PublishOptions, "unsafeAllowedTargets">,
  index: number,
): P | PublishRefusedError {
  if (publication.webhookUrl == null) return publication;
  const verdict = judgeTargetUrl(publication.webhookUrl, options);
  if (verdict.verdict === "allow") return { ...publication, webhookUrl: verdict.href };
  const message = `analysis at index ${index}: its webhook_url is refused: ${verdict.message}`;
  return new PublishRefusedError("target_refused", index, message, verdict.message, null);
}
