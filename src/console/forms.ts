import { randomUUID } from "node:crypto";
import { Problem } from "../http/problems.ts";
import { type Html, html } from "./html.ts";
import type { View } from "./screen.ts";

/** To the page after this one. */
export function older(href: string): Html {
  return html`<nav class="pages" aria-label="Pages"><a rel="next" href="${href}">Older →</a></nav>`;
}

/** Where the script says what is new; `href` shows it. Without this, rows come in as they come. */
export function newer(href: string): Html {
  return html`<p class="newer" hidden><a href="${href}"></a></p>`;
}

/** What every form carries: sent twice, it has its effect once. */
export function keyField(): Html {
  return html`<input type="hidden" name="_key" value="${randomUUID()}">`;
}

const KEY = /(<input type="hidden" name="_key" value=")[^"]*/g;

/** A page as it is apart from these. */
export function withoutKeys(page: string): string {
  return page.replaceAll(KEY, "$1");
}

/** The same page for somebody else: the keys of two people must not be taken for one. */
export function withNewKeys(page: string): string {
  return page.replaceAll(KEY, (_, before: string) => before + randomUUID());
}

/** @throws Problem 403 unless the session may; for pages whose only purpose is a form. */
export function refuseUnless({ may }: View, scope: string): void {
  if (!may(scope)) throw new Problem("access_denied");
}

/** What was asked for, or null where it is answered with this problem. */
export async function unless<Body>(code: string, asked: Promise<Body>): Promise<Body | null> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Problem && error.code === code) return null;
    throw error;
  }
}
