import type { ConsoleSession, ConsoleZones } from "../base/model/console.ts";
import type { DescribedProblem } from "../http/kernel.ts";
import type { Assets } from "./assets.ts";
import { type Html, html } from "./html.ts";
import { staffHeader } from "./staff/staff-header.ts";
import { zoneChoice } from "./time-zones.ts";

/** An error, as a page: what it is, what to do, and what to tell support. */
export function problemPage(problem: DescribedProblem, requestId: string): { title: string; main: Html } {
  const hasEnded = problem.code === "unauthorized";
  const { title, meaning, remedy } = OWN_WORDS[problem.code] ?? problem;
  return {
    title,
    main: html`<section class="notice" data-problem="${problem.code}"${hasEnded && html` data-session-ended`}>
<h1>${title}</h1>
<p>${meaning}</p>
${problem.errors.length > 0 && html`<ul>${problem.errors.map(({ message }) => html`<li>${message}</li>`)}</ul>`}
<p>${remedy}</p>
<p class="fine">Request <code>${requestId}</code></p>
</section>`,
  };
}

/** In the console nobody has keys in hand, or sees members of a body. */
const OWN_WORDS: Readonly<Record<string, Pick<DescribedProblem, "title" | "meaning" | "remedy">>> = {
  unauthorized: {
    title: "This session has ended",
    meaning: "It was open for as long as it was meant to be, or it was ended.",
    remedy: "Open the console again from where you came from.",
  },
  invalid_request: {
    title: "Invalid request",
    meaning: "Something that was asked for is not valid.",
    remedy: "Go back, and correct it.",
  },
};

/** What stands around a page's content. */
export type Frame = {
  readonly assets: Assets;
  /** Null: nobody is known. */
  readonly session: ConsoleSession | null;
  /** `/console/a/ACCOUNT`, or of staff's pages; null without a session. */
  readonly base: string | null;
  /** The page's own address; null without a session. */
  readonly path: string | null;
  /** Whether the same address, asked for again, is this page as it is by then; what a form answered is not. */
  readonly isRefreshed: boolean;
  /** The origin of the page that may show it in a frame; null: none. */
  readonly framer: string | null;
};

/** Of a page that nobody is known for. */
export function bareFrame(assets: Assets, framer: string | null = null): Frame {
  return { assets, session: null, base: null, path: null, isRefreshed: false, framer };
}

const TABS = [
  { path: "/deliveries", name: "Deliveries", scope: "webhooks:read" },
  { path: "/replays", name: "Replays", scope: "webhooks:replay" },
  { path: "/endpoint", name: "Endpoint", scope: "webhooks:read" },
  { path: "/audit", name: "Changes", scope: "audit:read", isOfAccount: true },
] as const;

const KEYS = [
  { key: "/", does: "search" },
  { key: "j", does: "next row" },
  { key: "k", does: "row before" },
  { key: "Enter", does: "open the row" },
  { key: "r", does: "replay" },
  { key: "?", does: "these keys" },
] as const;

/** A whole page. */
export function document(frame: Frame, { title, main }: { title: string; main: Html }): Html {
  const { assets, session, framer } = frame;
  return html`<!doctype html>
<html lang="en" data-theme="${session?.theme ?? "system"}"${framer !== null && html` data-embed="${framer}"`}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}${session?.accountName != null && html` · ${session.accountName}`} · Sealpost</title>
<link rel="stylesheet" href="${assets["console.css"]}">
${session !== null && html`<script type="module" src="${assets["console.mjs"]}"></script>`}
${session === null && html`<script type="module" src="${assets["enter.mjs"]}"></script>`}
${framer !== null && html`<script type="module" src="${assets["framed.mjs"]}"></script>`}
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
${session !== null && frame.base !== null && headerOf(frame, session, frame.base)}
<div id="banner" role="status" aria-live="polite" hidden${session !== null && isStaff(session) && STAFF_ENDED}></div>
${mainElement(frame, main)}
${session !== null && keys()}
</body>
</html>
`;
}

/** What a refresh replaces. Of the session only its time zones show in it: it may answer others' refreshes, too. */
export function mainElement({ assets, session, path, isRefreshed }: Frame, main: Html): Html {
  return html`<main id="main" tabindex="-1"${isRefreshed && html` data-morph="${assets["idiomorph.mjs"]}"`}>
${isRefreshed && session !== null && tools(path, session)}
${main}
</main>`;
}

const STAFF_ENDED = html` data-ended="This session has ended: reload the page to sign in again."`;

function isStaff(session: ConsoleSession): boolean {
  return session.accountId === null;
}

function headerOf(frame: Frame, session: ConsoleSession, base: string): Html {
  if (!isStaff(session)) return header(frame, session, base);
  return staffHeader(session, session.accountName === null ? null : tabsOf(frame, session, base), frame.path);
}

function tabsOf({ path }: Frame, session: ConsoleSession, base: string): readonly Html[] {
  const { permissions, userId } = session;
  const mine = TABS.filter((tab) => permissions.has(tab.scope) && !("isOfAccount" in tab && userId !== null));
  return mine.map((tab) => {
    const isHere = path?.startsWith(`${base}${tab.path}`) ?? false;
    return html`<a href="${base}${tab.path}"${isHere && html` aria-current="page"`}>${tab.name}</a>`;
  });
}

function header(frame: Frame, session: ConsoleSession, base: string): Html {
  return html`<header class="top">
<span class="mark" aria-hidden="true">◈</span>
<span class="account">${session.accountName}</span>
<nav aria-label="Console">${tabsOf(frame, session, base)}</nav>
<span class="viewer">${session.viewerLabel ?? ""}</span>
<form method="post" action="${base}/leave"><button class="quiet">Leave</button></form>
</header>`;
}

/**
 * What can be done about a page itself. It is in `<main>`, so that it is refreshed like the times that it tells of.
 * What refreshes is a script, which says in the button how it stands; without one there is nothing to see.
 */
function tools(path: string | null, session: ConsoleZones): Html {
  return html`<div class="tools">${path !== null && zoneChoice(session, path)}
<button type="button" class="live"><span aria-hidden="true"></span> <span></span></button></div>`;
}

/** Shown by a key. */
function keys(): Html {
  return html`<dialog id="keys" aria-labelledby="keys-title">
<h2 id="keys-title">Keys</h2>
<dl>${KEYS.map(({ key, does }) => html`<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl>
<form method="dialog"><button>Close</button></form>
</dialog>`;
}
