// A file of its own: the types of the package that pipelines install must not lead to those of egress.
import { judgeTargetUrl, type TargetUrlOptions } from "../egress/rules/target-url.ts";
import { type Publication, PublishRefusedError } from "./publish-call-sql.ts";

/** The publication with its webhook_url in normal form, or why that is refused. */
export function judgePublication<P extends Publication>(
  publication: P,
  options: TargetUrlOptions,
  index: number,
): P | PublishRefusedError {
  if (publication.webhookUrl == null) return publication;
  const verdict = judgeTargetUrl(publication.webhookUrl, options);
  if (verdict.verdict === "allow") return { ...publication, webhookUrl: verdict.href };
  const message = `analysis at index ${index}: its webhook_url is refused: ${verdict.message}`;
  return new PublishRefusedError("target_refused", index, message, verdict.message, null);
}
