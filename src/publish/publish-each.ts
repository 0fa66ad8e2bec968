import type { ClientBase } from "pg";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import { type PublishResult, publishEach as publishEachAllowed } from "../store/publications.ts";
import { type Publication, PublishRefusedError } from "../store/publish-call.ts";
import { judgePublication } from "./judge-publication.ts";

/**
 * Publishes analyses that have nothing to do with each other, in one transaction: each is published or refused by
 * itself.
 *
 * @returns results in input order
 */
export async function publishEach(
  tx: ClientBase,
  publications: readonly (Publication & { readonly traceparent: string | null })[],
  options: { readonly unsafeAllowedTargets?: UnsafeAllowedTargets },
): Promise<readonly PublishResult[]> {
  const verdicts = publications.map((publication) => judgePublication(publication, options, 0));
  const allowed = verdicts.flatMap((verdict) => (verdict instanceof PublishRefusedError ? [] : [verdict]));
  const results = allowed.length === 0 ? [] : await publishEachAllowed(tx, allowed);
  let next = 0;
  return verdicts.map((verdict) =>
    verdict instanceof PublishRefusedError ? { refusal: verdict } : results[next++]!,
  );
}
