import type { FastifyReply, FastifyRequest } from "fastify";
import { entityTag, matchesEntityTag } from "../api/entity-tags.ts";
import { withoutKeys } from "./forms.ts";

/** A page's own script asks for it again: that is nobody's doing. */
export function isRefresh({ headers }: FastifyRequest): boolean {
  return headers["x-refresh"] !== undefined;
}

/**
 * Whether the script has this very page, as the tag says that it keeps; no cache keeps a page. The keys of its forms
 * are new each time, and those that it has will do.
 */
export function isUnchanged(request: FastifyRequest, reply: FastifyReply, page: string): boolean {
  const tag = entityTag(Buffer.from(withoutKeys(page)));
  reply.header("etag", tag);
  return matchesEntityTag(request.headers["if-none-match"] ?? "", tag);
}
