import { digestSecret, newSecret } from "../http/api-keys.ts";
import { setCookie } from "./embedding.ts";
import { admitting, formOf, refuseForeignPost } from "./guards.ts";
import { html } from "./html.ts";
import { bareFrame, notice, SESSION_ENDED, sendDocument } from "./page.ts";
import { hidden } from "./parts.ts";
import type { Page } from "./screen.ts";
import { type ConsoleContext, cookieName, SECRET } from "./site.ts";

/** Its script takes the token out of the address and posts it. @param framerTag of who shows it in a frame */
function enterPage(framerTag: string | null): Page {
  return notice(
    "Opening the console",
    html`<form id="enter" method="post" action="/console/enter"><input type="hidden" name="t">
${framerTag !== null && hidden("embed", framerTag)}
<noscript><p>Opening a link needs JavaScript, once. After that the console works without it.</p></noscript>
<p id="missing" hidden>This address is not complete: open the console from where you got the link.</p>
<p id="blocked" hidden>Your browser blocks cookies for this part of the page:
<a target="_blank" rel="noopener">open the console in a new tab</a>.</p>
</form>`,
  );
}

const AGAIN = "Go back to where you came from and open it again.";
const SAID = {
  used: { title: "This link has been used", text: `A link opens the console once. ${AGAIN}` },
  expired: { title: "This link has expired", text: `A link is valid for a minute. ${AGAIN}` },
  unknown: { title: "This link is not valid", text: `Perhaps a part of it got lost. ${AGAIN}` },
  left: { title: "You have left the console", text: "To come back, open it again from where you came from." },
} as const;

function endPage(kind: keyof typeof SAID): Page {
  const { title, text } = SAID[kind];
  return notice(title, html`<p>${text}</p>`, SESSION_ENDED);
}

/** A link's way in: its GET changes nothing, so whoever only looks at links (a mail scanner) uses none up. */
export function addEntry({ pages, kernel, options, assets, framers }: ConsoleContext): void {
  const { sessions, publicUrl } = options;
  const onRequest = admitting(kernel);
  pages.get("/console/enter", { onRequest }, async (request, reply) => {
    const { frame: tag } = request.query as { readonly frame?: unknown };
    const framer = framers.ofTag(tag);
    return sendDocument(reply, bareFrame(assets, framer), enterPage(framer && String(tag)));
  });
  pages.post("/console/enter", { onRequest }, async (request, reply) => {
    refuseForeignPost(request, publicUrl);
    const form = formOf(request);
    const token = form.get("t") ?? "";
    const secret = newSecret();
    const entered = SECRET.test(token)
      ? await sessions.enter(digestSecret(token), digestSecret(secret))
      : null;
    // Null, too, where the key of a link has been revoked.
    const session = entered?.kind === "entered" ? await sessions.find(digestSecret(secret)) : null;
    if (entered?.kind !== "entered" || session === null) {
      const framer = framers.ofTag(form.get("embed"));
      const kind = entered === null || entered.kind === "entered" ? "unknown" : entered.kind;
      return sendDocument(reply, bareFrame(assets, framer), { ...endPage(kind), status: 403 });
    }
    const framer = session.embedOrigin;
    setCookie(reply, framer, cookieName(entered.accountId), secret);
    if (framer !== null) framers.keep(reply, framer);
    return reply.redirect(`/console/a/${entered.accountId}${entered.path ?? "/deliveries"}`, 303);
  });
  pages.get("/console/left", { onRequest }, async (request, reply) => {
    return sendDocument(reply, bareFrame(assets, framers.ofPage(request)), endPage("left"));
  });
}
