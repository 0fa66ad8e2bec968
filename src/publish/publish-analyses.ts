import { parseUnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import {
  type Publication,
  type PublishingDatabase,
  PublishRefusedError,
  publishAnalyses,
} from "../store/publish-call.ts";
import { judgePublication } from "./judge-publication.ts";
import { type PublishOptions, requireMembers } from "./members.ts";

// The entry of the package that pipelines install, sealpost-publish.
export { PUBLISH_REFUSAL_CODES, type PublishRefusalCode } from "../store/publish-call.ts";
export { type Publication, type PublishingDatabase, type PublishOptions, PublishRefusedError };

/**
 * Publishes completed analyses in the caller's transaction (a transactional outbox): pass the client that has begun it,
 * and they are delivered if and only if it commits. Unlike the SQL function it calls, it checks each webhook_url
 * against all rules.
 *
 * @returns delivery ids in input order
 * @throws PublishRefusedError for the first invalid element; then none is published
 * @throws TypeError when what is passed is not an array, or an option is unknown
 */
export async function publish(
  database: PublishingDatabase,
  publications: readonly Publication[],
  options: PublishOptions = {},
): Promise<readonly string[]> {
  requireMembers(publications, options);
  const unsafeAllowedTargets = parseUnsafeAllowedTargets(options.unsafeAllowedTargets ?? []);
  const judged = publications.map((publication, index) => {
    const verdict = judgePublication(publication, { unsafeAllowedTargets }, index);
    if (verdict instanceof PublishRefusedError) throw verdict;
    return verdict;
  });
  return await publishAnalyses(database, judged, options.traceparent ?? null);
}
