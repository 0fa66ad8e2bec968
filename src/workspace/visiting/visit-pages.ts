import { escapeHtml, type HtmlPage } from "../../api/html-page.ts";
import type { ShownVersion } from "./rendering.ts";

/** A page's own: its title, and what its Markdown says. */
export function shownPage({ title, html }: ShownVersion): HtmlPage {
  return { title, body: `<main>\n<h1>${escapeHtml(title)}</h1>\n${html}</main>` };
}

export const UNKNOWN_LINK = note(
  "There is no such page",
  "Check that you have the whole link. If you have, ask whoever gave it to you for another one.",
);

/** Nobody is told why. */
export const LINK_OVER = note(
  "This link does not work any more",
  "It has expired, was opened as often as it may be, or was withdrawn. Ask whoever gave it to you for another one.",
);

export const NOT_AHEAD = note(
  "This page is not loaded ahead",
  "Every time that it is opened counts. Open it once you want to read it.",
);

/** @param fault what was wrong with the password that was sent; null: none was sent */
export function passwordForm(fault: string | null): HtmlPage {
  const title = "This page asks for a password";
  const told = fault === null ? "" : `<p id="fault" role="alert">${escapeHtml(fault)}</p>\n`;
  const described = fault === null ? "" : ' aria-describedby="fault"';
  // Without an action a form is sent to its own page.
  const form = `<form method="post">
<p><label for="password">Password</label><br>
<input id="password" name="password" type="password" required autofocus autocomplete="current-password"${described}>
<button type="submit">Open</button></p>
</form>`;
  return { title, body: `<main>\n<h1>${title}</h1>\n${told}${form}\n</main>` };
}

/** A page of one sentence or two. */
export function note(title: string, text: string): HtmlPage {
  return { title, body: `<main>\n<h1>${escapeHtml(title)}</h1>\n<p>${escapeHtml(text)}</p>\n</main>` };
}
