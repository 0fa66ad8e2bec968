import { type Html, html } from "./html.ts";

/** To the page after this one. */
export function older(href: string): Html {
  return html`<nav class="pages" aria-label="Pages"><a rel="next" href="${href}">Older →</a></nav>`;
}

/** Where the script says what is new; `href` shows it. Without this, rows come in as they come. */
export function newer(href: string): Html {
  return html`<p class="newer" hidden><a href="${href}"></a></p>`;
}
