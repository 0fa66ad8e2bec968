import { randomBytes } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AddedRoute, Kernel } from "../api/kernel.ts";
import { beginRequest } from "../api/request-context.ts";
import type { Assets } from "./assets.ts";
import { type Framers, setCookie } from "./embedding.ts";
import { enterPage, leftPage, linkPage } from "./entry-pages.ts";
import { formOf, refuseForeignPost, sendPage } from "./guards.ts";
import { bareFrame, document } from "./page.ts";
import { cookieName, digestOf, SECRET, type SessionStore } from "./session.ts";

const ENTRY_ROUTES = [
  { method: "GET", path: "/console/enter" },
  { method: "POST", path: "/console/enter" },
  { method: "GET", path: "/console/left" },
] as const satisfies readonly AddedRoute[];

export type EntryOptions = {
  readonly sessions: SessionStore;
  readonly publicUrl: string;
};

/** A link's way in: its GET changes nothing, so whoever only looks at links (a mail scanner) uses none up. */
export function addEntry(
  pages: FastifyInstance,
  kernel: Kernel,
  { sessions, publicUrl }: EntryOptions,
  assets: Assets,
  framers: Framers,
): readonly AddedRoute[] {
  const onRequest = async (request: FastifyRequest, reply: FastifyReply) => {
    beginRequest(request, "console");
    await kernel.admit(request, reply);
  };
  pages.get("/console/enter", { onRequest }, async (request, reply) => {
    const framer = framers.ofLink(request);
    const origin = framer?.origin ?? null;
    return sendPage(reply, origin, 200, document(bareFrame(assets, origin), enterPage(framer)).text);
  });
  pages.post("/console/enter", { onRequest }, async (request, reply) => {
    refuseForeignPost(request, publicUrl);
    const form = formOf(request);
    const token = form.get("t") ?? "";
    const secret = randomBytes(32).toString("base64url");
    const entered = SECRET.test(token)
      ? await sessions.enter(digestOf(token), digestOf(secret))
      : ({ kind: "unknown" } as const);
    // Null, too, where the key of a link has been revoked.
    const session = entered.kind === "entered" ? await sessions.find(digestOf(secret)) : null;
    if (entered.kind !== "entered" || session === null) {
      const framer = framers.ofForm(form);
      const kind = entered.kind === "entered" ? "unknown" : entered.kind;
      return sendPage(reply, framer, 403, document(bareFrame(assets, framer), linkPage(kind)).text);
    }
    const framer = session.embedOrigin;
    setCookie(reply, framer, cookieName(entered.accountId), secret);
    if (framer !== null) framers.keep(reply, framer);
    return reply.redirect(`/console/a/${entered.accountId}${entered.path ?? "/deliveries"}`, 303);
  });
  pages.get("/console/left", { onRequest }, async (request, reply) => {
    const framer = framers.ofPage(request);
    return sendPage(reply, framer, 200, document(bareFrame(assets, framer), leftPage()).text);
  });
  return ENTRY_ROUTES;
}
