import { Readable } from "node:stream";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Kernel } from "../http/kernel.ts";
import { Problem } from "../http/problems.ts";
import { beginRequest } from "../http/request-context.ts";
import type { ShownFile } from "./screen.ts";

/**
 * Every page's policy: nothing from elsewhere, no inline script or style, no script that writes HTML, framed by the one
 * origin that the session's link named.
 */
function pageHeaders(framer: string | null): Readonly<Record<string, string>> {
  return {
    "content-security-policy": [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "img-src 'self'",
      "connect-src 'self'",
      "form-action 'self'",
      "base-uri 'none'",
      `frame-ancestors ${framer ?? "'none'"}`,
      "require-trusted-types-for 'script'",
      "trusted-types sealpost",
    ].join("; "),
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
  };
}

/** The first step of routes that need no session: counted by their address, like a request with no valid key. */
export function admitting(kernel: Kernel) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    beginRequest(request, "console");
    await kernel.admit(request, reply);
  };
}

/**
 * SameSite is no defence against sibling origins. A browser says where a POST comes from: in Sec-Fetch-Site, or, if it
 * knows that not, in Origin.
 *
 * @throws Problem 403 unless it comes from a page of ours
 */
export function refuseForeignPost(request: FastifyRequest, publicUrl: string): void {
  const { "sec-fetch-site": site, origin } = request.headers;
  const isOurs = site === undefined ? origin === new URL(publicUrl).origin : site === "same-origin";
  if (!isOurs) throw new Problem("access_denied");
}

/** A page's form, as bytes came. Of several fields of one name the list. */
export function formOf(request: FastifyRequest): URLSearchParams {
  const type = request.headers["content-type"] ?? "";
  if (!/^application\/x-www-form-urlencoded\b/i.test(type)) throw new Problem("unsupported_media_type");
  return new URLSearchParams(((request.body as Buffer | undefined) ?? Buffer.alloc(0)).toString());
}

/**
 * A file is read for as long as somebody takes it, perhaps for hours: each of its parts is for who may still see it.
 *
 * @param refuse throws once they may not
 */
export function sendFile(
  reply: FastifyReply,
  { name, type, parts }: ShownFile,
  refuse: () => Promise<void>,
): FastifyReply {
  async function* partsUnlessRefused() {
    for await (const part of parts()) {
      await refuse();
      yield part;
    }
  }
  const disposition = `attachment; filename="${name}"`;
  return reply
    .headers({ ...pageHeaders(null), "content-type": type, "content-disposition": disposition })
    .send(Readable.from(reply.request.method === "HEAD" ? [] : partsUnlessRefused()));
}

/** @param framer the origin that may frame it; null: none @param page null: none, such as with 304 */
export function sendPage(
  reply: FastifyReply,
  framer: string | null,
  status: number,
  page: string | Buffer | null,
): FastifyReply {
  reply.code(status).headers(pageHeaders(framer));
  if (page === null) return reply.send();
  const bytes = typeof page === "string" ? Buffer.from(page) : page;
  return reply.header("content-type", "text/html; charset=utf-8").send(bytes);
}
