import { parseUnsafeAllowedTargets } from "../egress/rules/host.ts";
import { judgePublication } from "./judge-publication.ts";
import {
  type Publication,
  type PublishingDatabase,
  PublishRefusedError,
  publishAnalyses,
} from "./publish-call-sql.ts";

export type PublishOptions = {
  /** W3C Trace Context `traceparent`, sent with the webhook. */
  readonly traceparent?: string | null | undefined;
  /** For tests: private targets that the service's UNSAFE_ALLOWED_TARGETS allows, too. `host:port` or `*.name:port`. */
  readonly unsafeAllowedTargets?: readonly string[] | undefined;
};

const PUBLICATION_MEMBERS: Readonly<Record<keyof Publication, (value: unknown) => string | null>> = {
  accountId: (value) => (typeof value === "string" ? null : "must be the account's id, a string"),
  analysis: (value) =>
    typeof value === "string"
      ? null
      : "must be the analysis's exact JSON text, a string: it is sent as it is",
  webhookUrl: (value) => (value == null || typeof value === "string" ? null : "must be a URL, a string"),
};
const OPTIONS: readonly string[] = ["traceparent", "unsafeAllowedTargets"] satisfies (keyof PublishOptions)[];

/**
 * Callers in plain JavaScript have no compiler: a member that is spelled otherwise must not be ignored, or the webhook
 * goes somewhere else.
 *
 * @throws PublishRefusedError `invalid_request` for an element that is not a publication
 * @throws TypeError for what stands around the elements
 */
export function requireMembers(publications: unknown, options: unknown): void {
  if (!Array.isArray(publications)) {
    throw new TypeError("publish expects an array of publications: [{ accountId, analysis }].");
  }
  for (const [index, publication] of publications.entries()) {
    const fault = faultOf(publication);
    if (fault !== null) {
      const message = `publication at index ${index}: ${fault}`;
      throw new PublishRefusedError("invalid_request", index, message, "Correct the call.", null);
    }
  }
  const unknown = Object.keys(options ?? {}).find((name) => !OPTIONS.includes(name));
  if (unknown !== undefined) throw new TypeError(`publish has no ${unknownName("option", unknown, OPTIONS)}`);
}

function faultOf(publication: unknown): string | null {
  if (typeof publication !== "object" || publication === null) return "it is not an object";
  const names = Object.keys(PUBLICATION_MEMBERS);
  const unknown = Object.keys(publication).find((name) => !names.includes(name));
  if (unknown !== undefined) return `it has ${unknownName("an unknown member", unknown, names)}`;
  for (const [name, faultIn] of Object.entries(PUBLICATION_MEMBERS)) {
    const fault = faultIn((publication as Record<string, unknown>)[name]);
    if (fault !== null) return `its ${name} ${fault}`;
  }
  return null;
}

/** `webhook_url` and `webhookURL` are meant as `webhookUrl`. */
function unknownName(what: string, found: string, names: readonly string[]): string {
  const plain = (name: string) => name.replaceAll(/[^a-z0-9]/gi, "").toLowerCase();
  const meant = names.find((name) => plain(name) === plain(found));
  const hint = meant === undefined ? `the names are ${names.join(", ")}` : `did you mean ${meant}?`;
  return `${what} ${JSON.stringify(found)}: ${hint}${meant === undefined ? "." : ""}`;
}

// The entry of the package that pipelines install, sealpost-publish.
export { PUBLISH_REFUSAL_CODES, type PublishRefusalCode } from "./publish-call-sql.ts";
export { type Publication, type PublishingDatabase, PublishRefusedError };

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
