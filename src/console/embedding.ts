import type { FastifyReply, FastifyRequest } from "fastify";
import { framerTag } from "../base/model/console.ts";
import { keysOf, type SecretsKey } from "../base/model/secrets-key.ts";

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

/**
 * Who frames a page for which no session is known; null: nobody who may. Asked for by tags, which only links have: the
 * origins are the operator's customers, and a page that answered whether one is among them would tell whoever guesses.
 */
export type Framers = ReturnType<typeof createFramers>;

export function createFramers(ancestors: readonly string[], secretsKey: SecretsKey) {
  const keys = keysOf(secretsKey);
  const tagOf = (origin: string) => framerTag(keys[0], origin);
  const origins = new Map(ancestors.flatMap((origin) => keys.map((key) => [framerTag(key, origin), origin])));
  const ofTag = (tag: unknown) => origins.get(String(tag)) ?? null;
  return {
    /** Of a link's page, which a frame is opened with, and of what its form answers. */
    ofTag,
    /** Of a page that a frame shows later on. */
    ofPage: ({ cookies }: FastifyRequest) => ofTag(cookies[FRAMER_COOKIE]),
    /** For `ofPage`. */
    keep: (reply: FastifyReply, origin: string) => setCookie(reply, origin, FRAMER_COOKIE, tagOf(origin)),
  };
}
