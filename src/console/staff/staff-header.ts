import type { ConsoleSession } from "../../base/model/console.ts";
import { type Html, html } from "../html.ts";
import { STAFF_PATH } from "./staff-sites.ts";

const TABS = [
  { path: STAFF_PATH, name: "Support", scope: "staff:read" },
  { path: `${STAFF_PATH}/audit`, name: "Audit", scope: "audit:read" },
] as const;

/** Of staff's pages; of an account's with its name and its own tabs below. @param accountTabs null: of no account */
export function staffHeader(
  { permissions, accountName, viewerLabel }: ConsoleSession,
  accountTabs: readonly Html[] | null,
  path: string | null,
): Html {
  const here = path?.split("?", 1)[0];
  const tabs = TABS.filter(({ scope }) => permissions.has(scope)).map((tab) => {
    return html`<a href="${tab.path}"${tab.path === here && html` aria-current="page"`}>${tab.name}</a>`;
  });
  return html`<header class="staff">
<div class="top">
<span class="mark" aria-hidden="true">◈</span>
<nav aria-label="Support">${tabs}</nav>
<span class="viewer">${viewerLabel ?? "a staff key"}</span>
<form method="post" action="${STAFF_PATH}/leave"><button class="quiet">Sign out</button></form>
</div>
${
  accountTabs !== null &&
  html`<div class="top of-account">
<span class="account">${accountName}</span>
<nav aria-label="Account">${accountTabs}</nav>
</div>`
}
</header>`;
}
