import { readFile } from "node:fs/promises";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AddedRoute, Kernel } from "../api/kernel.ts";
import { beginRequest } from "../api/request-context.ts";

const EMBED_SCRIPT = { method: "GET", path: "/console/embed.js" } as const satisfies AddedRoute;

/** Where a frame's own cookie says who frames it, for pages that no session is known for. */
const FRAMER_COOKIE = "__Host-sp-frame";

const OWN = { path: "/", secure: true, httpOnly: true } as const;
const STRICT = { ...OWN, sameSite: "strict" } as const;
/** A frame of another site gets no strict cookie; partitioned, it is that site's alone. */
const PARTITIONED = { ...OWN, sameSite: "none", partitioned: true } as const;

/**
 * Sets a cookie of a page that is framed, or is not. A frame of the same site gets both kinds, and so does a tab beside
 * it: of two with one name the older one would count, so it goes. First, because to some browsers they are the same.
 *
 * @param framer null: nobody frames the page @param keptSeconds without it: for as long as the browser is open
 */
export function setCookie(
  reply: FastifyReply,
  framer: string | null,
  name: string,
  value: string,
  keptSeconds?: number,
): void {
  const [kind, other] = framer === null ? [STRICT, PARTITIONED] : [PARTITIONED, STRICT];
  if (reply.request.cookies[name] !== undefined)
    reply.header("set-cookie", reply.server.serializeCookie(name, "", { ...other, maxAge: 0 }));
  reply.setCookie(name, value, { ...kind, ...(keptSeconds !== undefined && { maxAge: keptSeconds }) });
}

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
    keep: (reply, origin) => setCookie(reply, origin, FRAMER_COOKIE, origin),
  };
}

function originOf(url: string | undefined): string | null {
  return url !== undefined && URL.canParse(url) ? new URL(url).origin : null;
}
