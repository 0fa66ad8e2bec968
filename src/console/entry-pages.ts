import type { Framer } from "./embedding.ts";
import { type Html, html } from "./html.ts";

type Page = { readonly title: string; readonly main: Html };

/** Its script takes the token out of the address and posts it. @param framer who shows it in a frame */
export function enterPage(framer: Framer | null): Page {
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
export function linkPage(kind: keyof typeof SAID): Page {
  const { title, text } = SAID[kind];
  return { title, main: notice(title, text) };
}

export function leftPage(): Page {
  const title = "You have left the console";
  return { title, main: notice(title, "To come back, open it again from where you came from.") };
}

function notice(title: string, text: string): Html {
  return html`<section class="notice" data-session-ended>
<h1>${title}</h1>
<p>${text}</p>
</section>`;
}
