import { readFile } from "node:fs/promises";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AddedRoute, Kernel } from "../api/kernel.ts";
import { beginRequest } from "../api/request-context.ts";

const EMBED_SCRIPT = { method: "GET", path: "/console/embed.js" } as const satisfies AddedRoute;

/** Where a frame's own cookie says who frames it, for pages that no session is known for. */
const FRAMER_COOKIE = "__Host-sp-frame";

/** A frame of another site gets no strict cookie; partitioned, it is that site's alone. */
export const FRAMED_COOKIE = { sameSite: "none", partitioned: true } as const;

/** The script of pages that show the console in a frame: at one address for good, for every origin. */
export async function addEmbedScript(pages: FastifyInstance, kernel: Kernel): Promise<readonly AddedRoute[]> {
  const bytes = await readFile(new URL("./assets/embed.mjs", import.meta.url));
  pages.route({
    method: ["GET", "HEAD"],
    url: EMBED_SCRIPT.path,
    onRequest: async (request, reply) => {
      beginRequest(request, "console");
      await kernel.admit(request, reply);
    },
    handler: async (_request, reply) =>
      reply
        .headers({
          "content-type": "text/javascript; charset=utf-8",
          "cache-control": "public, max-age=3600",
          "cross-origin-resource-policy": "cross-origin",
        })
        .send(bytes),
  });
  return [EMBED_SCRIPT];
}

/**
 * Who frames a page for which no session is known; null: nobody who may. All who may are never named together: they
 * are the operator's customers.
 */
export type Framers = {
  /** Of a link's page, which a frame is opened with. */
  ofLink(request: FastifyRequest): string | null;
  /** What that page's form gave back. */
  ofForm(form: URLSearchParams): string | null;
  /** Of a page that a frame shows later on. */
  ofPage(request: FastifyRequest): string | null;
  /** For `ofPage`. */
  keep(reply: FastifyReply, origin: string): void;
};

export function createFramers(ancestors: readonly string[]): Framers {
  const known = (origin: string | null | undefined) => ancestors.find((one) => one === origin) ?? null;
  return {
    ofLink: ({ headers }) => known(originOf(headers.referer)),
    ofForm: (form) => known(form.get("embed")),
    ofPage: ({ cookies }) => known(cookies[FRAMER_COOKIE]),
    keep: (reply, origin) => {
      reply.setCookie(FRAMER_COOKIE, origin, { path: "/", secure: true, httpOnly: true, ...FRAMED_COOKIE });
    },
  };
}

function originOf(url: string | undefined): string | null {
  return url !== undefined && URL.canParse(url) ? new URL(url).origin : null;
}
