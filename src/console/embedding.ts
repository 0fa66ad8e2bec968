import { readFile } from "node:fs/promises";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { framerTag } from "../base/model/console.ts";
import type { Kernel } from "../http/kernel.ts";
import { admitting } from "./guards.ts";

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
export async function addEmbedScript(pages: FastifyInstance, kernel: Kernel): Promise<void> {
  const bytes = await readFile(new URL("./assets/embed.mjs", import.meta.url));
  pages.route({
    method: ["GET", "HEAD"],
    url: "/console/embed.js",
    onRequest: admitting(kernel),
    handler: async (_request, reply) =>
      reply
        .headers({
          "content-type": "text/javascript; charset=utf-8",
          "cache-control": "public, max-age=3600",
          "cross-origin-resource-policy": "cross-origin",
        })
        .send(bytes),
  });
}

/** An origin, and what names it to browsers and links. */
export type Framer = { readonly origin: string; readonly tag: string };

/**
 * Who frames a page for which no session is known; null: nobody who may. Asked for by tags, which only links have: the
 * origins are the operator's customers, and a page that answered whether one is among them would tell whoever guesses.
 */
export type Framers = ReturnType<typeof createFramers>;

export function createFramers(ancestors: readonly string[], secretsKey: Uint8Array) {
  const tagOf = (origin: string) => framerTag(secretsKey, origin);
  const origins = new Map(ancestors.map((origin) => [tagOf(origin), origin]));
  const known = (tag: unknown) => origins.get(String(tag)) ?? null;
  return {
    /** Of a link's page, which a frame is opened with. */
    ofLink: ({ query }: FastifyRequest): Framer | null => {
      const tag = String((query as { readonly frame?: unknown }).frame);
      const origin = known(tag);
      return origin === null ? null : { origin, tag };
    },
    /** What that page's form gave back. */
    ofForm: (form: URLSearchParams) => known(form.get("embed")),
    /** Of a page that a frame shows later on. */
    ofPage: ({ cookies }: FastifyRequest) => known(cookies[FRAMER_COOKIE]),
    /** For `ofPage`. */
    keep: (reply: FastifyReply, origin: string) => setCookie(reply, origin, FRAMER_COOKIE, tagOf(origin)),
  };
}
