import type { FastifyReply } from "fastify";
import type { Assets } from "./assets.ts";
import { sendPage } from "./guards.ts";
import { type Html, html, type Part } from "./html.ts";
import { buttonForm } from "./parts.ts";
import type { Page } from "./screen.ts";
import { type Seen, STAFF_PATH } from "./site.ts";
import { zoneChoice } from "./time-zones.ts";
import { momentOf } from "./times.ts";

/** A page that is one box. @param attributes of the box */
export function notice(title: string, body: Part, attributes: Part = null): Page {
  const main = html`<section class="notice"${attributes}>
<h1>${title}</h1>
${body}
</section>`;
  return { title, heading: null, main };
}

/** Tells the page around a frame. */
export const SESSION_ENDED = html` data-session-ended`;

/** What stands around a page's content. */
export type Frame = {
  readonly assets: Assets;
  /** Null: nobody is known. `path`: the page's own address. */
  readonly seen: (Pick<Seen, "session" | "base"> & { readonly path: string }) | null;
  /** Whether the same address, asked for again, is this page as it is by then; what a form answered is not. */
  readonly isRefreshed: boolean;
  /** The origin of the page that may show it in a frame; null: none. */
  readonly framer: string | null;
};

/** Of a page that nobody is known for. */
export function bareFrame(assets: Assets, framer: string | null = null): Frame {
  return { assets, seen: null, isRefreshed: false, framer };
}

const TABS = [
  { path: "/deliveries", name: "Deliveries", scope: "webhooks:read" },
  { path: "/replays", name: "Replays", scope: "webhooks:replay" },
  { path: "/endpoint", name: "Endpoint", scope: "webhooks:read" },
  { path: "/audit", name: "Changes", scope: "audit:read", isOfAccount: true },
  { path: "/keys", name: "Keys", scope: "keys:write" },
] as const;

const STAFF_TABS = [
  { path: STAFF_PATH, name: "Support", scope: "staff:read" },
  { path: `${STAFF_PATH}/audit`, name: "Audit", scope: "audit:read" },
] as const;

const KEYS = [
  { key: "/", does: "search" },
  { key: "j", does: "next row" },
  { key: "k", does: "previous row" },
  { key: "Enter", does: "open the row" },
  { key: "r", does: "replay" },
  { key: "?", does: "these keys" },
] as const;

/** Sends a whole page. */
export function sendDocument(reply: FastifyReply, frame: Frame, page: Page): FastifyReply {
  return sendPage(reply, frame.framer, page.status ?? 200, document(frame, page).text);
}

/**
 * A page is painted once its last element, `#keys`, is there, in browsers that can wait: in a part of it, what ends on
 * the right or stands in the middle is elsewhere.
 */
function document(frame: Frame, page: Page): Html {
  const { assets, seen, framer } = frame;
  const session = seen?.session ?? null;
  const isOfStaff = session !== null && session.accountId === null;
  return html`<!doctype html>
<html lang="en" data-theme="${session?.theme ?? "system"}"${framer !== null && html` data-embed="${framer}"`}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${page.title}${session?.accountName != null && html` · ${session.accountName}`} · Sealpost</title>
<link rel="expect" href="#keys" blocking="render">
<link rel="stylesheet" href="${assets["console.css"]}">
<script type="module" src="${assets[seen === null ? "enter.mjs" : "console.mjs"]}"></script>
${framer !== null && html`<script type="module" src="${assets["framed.mjs"]}"></script>`}
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
${seen !== null && (isOfStaff ? staffHeader(seen) : header(seen))}
<div id="banner" role="status" aria-live="polite" hidden${isOfStaff && STAFF_ENDED}></div>
${mainElement(frame, page)}
${seen !== null && keys()}
</body>
</html>
`;
}

/** What a refresh replaces. Of the session only its time zones show in it: it may answer others' refreshes, too. */
export function mainElement({ assets, seen, isRefreshed }: Frame, page: Page): Html {
  const { title, heading = title, up, beside = null, main, status } = page;
  // What is wrong with a form's fields stays wrong, and who corrects them is left alone.
  const isLive = isRefreshed && status === undefined;
  return html`<main id="main" tabindex="-1"${isLive && html` data-morph="${assets["idiomorph.mjs"]}"`}>
${seen !== null && pausedLine(seen)}${isRefreshed && seen !== null && tools(seen)}
${up !== undefined && html`<nav class="way" aria-label="Back"><a href="${up.href}">${up.name}</a></nav>`}
${heading !== null && html`<div class="head"><h1>${heading}</h1>${beside}</div>`}
${main}
</main>`;
}

const STAFF_ENDED = html` data-ended="This session has ended: reload the page to sign in again."`;

type Known = NonNullable<Frame["seen"]>;

function header(seen: Known): Html {
  const { session, base } = seen;
  return html`<header class="top">
<span class="mark" aria-hidden="true">◈</span>
<span class="account">${session.accountName}</span>
<nav aria-label="Console">${tabsOf(seen)}</nav>
<span class="viewer">${session.viewerLabel ?? ""}</span>
<form method="post" action="${base}/leave"><button class="quiet">Leave</button></form>
</header>`;
}

/** Of staff's pages; of an account's with its name and its own tabs below. */
function staffHeader(seen: Known): Html {
  const { permissions, accountName, viewerLabel } = seen.session;
  const here = seen.path.split("?", 1)[0];
  const tabs = STAFF_TABS.filter(({ scope }) => permissions.has(scope));
  return html`<header class="staff">
<div class="top">
<span class="mark" aria-hidden="true">◈</span>
<nav aria-label="Support">${tabs.map(({ path, name }) => tab(path, name, path === here))}</nav>
<span class="viewer">${viewerLabel ?? "a staff key"}</span>
<form method="post" action="${STAFF_PATH}/leave"><button class="quiet">Sign out</button></form>
</div>
${
  accountName !== null &&
  html`<div class="top of-account">
<span class="account">${accountName}</span>
<nav aria-label="Account">${tabsOf(seen)}</nav>
</div>`
}
</header>`;
}

/** To the first page that whoever looks may see. */
export function homeLink({ session: { permissions }, base }: Known): Html | null {
  const first = TABS.find(({ scope }) => permissions.has(scope));
  if (base === STAFF_PATH) return html`<a class="button" href="${STAFF_PATH}">Back to support</a>`;
  return first
    ? html`<a class="button" href="${base}${first.path}">Back to ${first.name.toLowerCase()}</a>`
    : null;
}

function tabsOf({ session: { permissions, userId }, base, path: here }: Known): readonly Html[] {
  const mine = TABS.filter((tab) => permissions.has(tab.scope) && !("isOfAccount" in tab && userId !== null));
  return mine.map(({ path, name }) => tab(base + path, name, here.startsWith(base + path)));
}

function tab(href: string, name: string, isHere: boolean): Html {
  return html`<a href="${href}"${isHere && html` aria-current="page"`}>${name}</a>`;
}

/**
 * What can be done about a page itself. It is in `<main>`, so that it is refreshed like the times that it tells of.
 * What refreshes is a script, which says in the button how it stands; without one there is nothing to see.
 */
function tools({ session, path }: Known): Html {
  return html`<div class="tools">${zoneChoice(session, path)}
<button type="button" class="live"><span aria-hidden="true"></span> <span></span></button></div>`;
}

/** Above everything but the endpoint's own page, which says more of it. */
function pausedLine({ session, base, path }: Known): Html | null {
  const { pausedAt, timeZone, permissions } = session;
  if (pausedAt === null || path.startsWith(`${base}/endpoint`)) return null;
  return html`<div class="paused"><strong class="warn">❚❚ The endpoint is paused</strong>
<span>since ${momentOf(pausedAt, timeZone)}: its deliveries are held, and nothing is lost.</span>
${permissions.has("webhooks:write") && buttonForm(`${base}/endpoint/resume`, "Resume")}</div>`;
}

/** Shown by a key. */
function keys(): Html {
  return html`<dialog id="keys" aria-labelledby="keys-title">
<h2 id="keys-title">Keys</h2>
<dl>${KEYS.map(({ key, does }) => html`<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
<form method="dialog"><button>Close</button></form>
</dialog>`;
}
