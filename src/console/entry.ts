import { randomBytes } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AddedRoute, Kernel } from "../http/kernel.ts";
import { beginRequest } from "../http/request-context.ts";
import type { Assets } from "./assets.ts";
import { type Framer, type Framers, setCookie } from "./embedding.ts";
import { formOf, refuseForeignPost, sendPage } from "./guards.ts";
import { type Html, html } from "./html.ts";
import { bareFrame, document } from "./page.ts";
import { cookieName, digestOf, SECRET, type SessionStore } from "./site.ts";

type Page = { readonly title: string; readonly main: Html };

/** Its script takes the token out of the address and posts it. @param framer who shows it in a frame */
function enterPage(framer: Framer | null): Page {
  return {
    title: "Opening the console",
    main: html`<section class="notice">
<h1>Opening the console</h1>
<form id="enter" method="post" action="/console/enter"><input type="hidden" name="t">
${framer !== null && html`<input type="hidden" name="embed" value="${framer.tag}">`}
<noscript><p>Opening a link needs JavaScript, once. After that the console works without it.</p></noscript>
<p id="missing" hidden>This address is not complete: open the console from where you got the link.</p>
<p id="blocked" hidden>Your browser keeps no cookies for this part of the page:
<a target="_blank" rel="noopener">open the console in a new tab</a>.</p>
</form>
</section>`,
  };
}

const SAID = {
  used: {
    title: "This link has been used",
    text: "A link opens the console once. Go back to where you came from and open it again.",
  },
  expired: {
    title: "This link has expired",
    text: "A link is valid for a minute. Go back to where you came from and open it again.",
  },
  unknown: {
    title: "This link is not valid",
    text: "Perhaps a part of it got lost. Go back to where you came from and open it again.",
  },
} as const;

/** A link that opens nothing. */
function linkPage(kind: keyof typeof SAID): Page {
  const { title, text } = SAID[kind];
  return { title, main: notice(title, text) };
}

function leftPage(): Page {
  const title = "You have left the console";
  return { title, main: notice(title, "To come back, open it again from where you came from.") };
}

function notice(title: string, text: string): Html {
  return html`<section class="notice" data-session-ended>
<h1>${title}</h1>
<p>${text}</p>
</section>`;
}

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
