import type { FastifyReply, FastifyRequest } from "fastify";
import { escapeHtml, type HtmlPage, sendHtml } from "../../http/html-page.ts";
import type { AddRoutes, Kernel } from "../../http/kernel.ts";
import { RETRY_AFTER_UNAVAILABLE_SECONDS } from "../../http/limits.ts";
import { Problem } from "../../http/problems.ts";
import { beginRequest, contextOf } from "../../http/request-context.ts";
import { type InTurn, onDisconnectOf, untilGone } from "../../http/turns.ts";
import { LINK_PATH, type ShownPage, type Visit, type Visitor, visitorsOf } from "./visits.ts";

/** A page's own: its title, and what its Markdown says. */
function shownPage({ title, html }: ShownPage): HtmlPage {
  return { title, body: `<h1>${escapeHtml(title)}</h1>\n${html}` };
}

const UNKNOWN_LINK = note(
  "There is no such page",
  "Check that you have the whole link. If you have, ask the person who gave it to you for another one.",
);

/** Nobody is told why. */
const LINK_OVER = note(
  "This link no longer works",
  "It has expired, was opened as often as it may be, or was withdrawn. Ask the person who gave it to you for " +
    "another one.",
);

const NOT_AHEAD = note(
  "This page is not preloaded",
  "Each opening counts. Open it when you want to read it.",
);

/** @param fault what was wrong with the password that was sent; null: none was sent */
function passwordForm(fault: string | null): HtmlPage {
  const title = "This page asks for a password";
  const alert = fault === null ? "" : `<p id="fault" role="alert">${escapeHtml(fault)}</p>\n`;
  const described = fault === null ? "" : ' aria-describedby="fault"';
  // Without an action a form is sent to its own page.
  const form = `<form method="post">
<p><label for="password">Password</label><br>
<input id="password" name="password" type="password" required autofocus autocomplete="current-password"${described}>
<button type="submit">Open</button></p>
</form>`;
  return { title, body: `<h1>${title}</h1>\n${alert}${form}`, isNotice: true };
}

/** A page of one sentence or two. */
function note(title: string, text: string): HtmlPage {
  return { title, body: `<h1>${escapeHtml(title)}</h1>\n<p>${escapeHtml(text)}</p>`, isNotice: true };
}

/** A password of 200 characters, each of four bytes, each of them escaped. */
const FORM_BYTES_MAX = 4_096;

export type VisitingOptions = {
  /** The one host whose pages these are, and which has no others; null: there are none. */
  readonly pagesUrl: string | null;
  readonly visit: (visitor: Visitor, inTurn: InTurn) => Promise<Visit>;
};

type WithToken = { Params: { token: string } };

/** `GET /p/{token}` shows a page, or asks for its password, which `POST /p/{token}` brings. */
export function createVisitingRoutes({ pagesUrl, visit }: VisitingOptions): AddRoutes {
  return async (app, kernel) => {
    if (pagesUrl === null) return;
    const { hostname } = new URL(pagesUrl);
    const isPagesHost = (request: FastifyRequest) => request.hostname.toLowerCase() === hostname;
    const url = `${LINK_PATH}/:token`;
    // Users write what this host shows, so it shows nothing of ours; and no other host shows what they write.
    app.addHook("onRequest", async (request, reply) => {
      const path = request.routeOptions.url ?? "";
      if (SHOWN_EVERYWHERE.has(path) || isPagesHost(request) === (path === url)) return;
      beginRequest(request, "page");
      await kernel.admit(request, reply);
      throw new Problem("not_found");
    });
    const onRequest = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
      beginRequest(request, "page");
      reply.headers(PAGE_HEADERS);
      await kernel.admit(request, reply);
    };
    const errorHandler = (error: unknown, request: FastifyRequest, reply: FastifyReply) =>
      sendProblem(kernel, error, request, reply);
    app.route<WithToken>({
      url,
      method: ["GET", "HEAD", "POST"],
      bodyLimit: FORM_BYTES_MAX,
      onRequest,
      errorHandler,
      handler: async (request, reply) => {
        const { params, ip, method } = request;
        const password = method === "POST" ? passwordIn(request) : null;
        if (password === null && isFetchedAhead(request)) return send(reply, 503, NOT_AHEAD);
        const hold = (accountId: string, bytes: number) => {
          Object.assign(contextOf(request), { accountId, sharer: visitorsOf(accountId) });
          kernel.holdAnswer(reply, bytes);
        };
        const visitor = { token: params.token, password, address: ip, hold, isAsking: method === "HEAD" };
        const onGone = onDisconnectOf(request, reply);
        return sendVisit(
          reply,
          await untilGone(onGone, (gone) => visit({ ...visitor, gone }, kernel.inTurn)),
        );
      },
    });
  };
}

/** What balancers and browsers ask every host for. */
const SHOWN_EVERYWHERE: ReadonlySet<string> = new Set(["/healthz", "/readyz", "/favicon.ico"]);

/** No cross-origin-opener-policy: to the HTML standard, a sandboxed page that has one is a network error. */
const PAGE_HEADERS = {
  "cache-control": "no-store",
  // The link is a secret: no other site is told where its visitor came from.
  "referrer-policy": "no-referrer",
  "x-robots-tag": "noindex",
  "cross-origin-resource-policy": "same-origin",
};

/** By a browser that guesses what its user opens next. It asks again then; this would be a visit, perhaps the last. */
function isFetchedAhead({ headers }: FastifyRequest): boolean {
  return /^prefetch\b/i.test(String(headers["sec-purpose"] ?? headers.purpose ?? ""));
}

/** Of the page's own form. */
function passwordIn({ headers, body }: FastifyRequest): string {
  const type = headers["content-type"] ?? "";
  if (!/^application\/x-www-form-urlencoded\b/i.test(type)) throw new Problem("unsupported_media_type");
  return new URLSearchParams(String(body ?? "")).get("password") ?? "";
}

function sendVisit(reply: FastifyReply, visit: Visit): FastifyReply {
  switch (visit.kind) {
    case "open":
      return send(reply, 200, visit.shown === null ? EMPTY : shownPage(visit.shown));
    case "unknown":
      return send(reply, 404, UNKNOWN_LINK);
    case "over":
      return send(reply, 410, LINK_OVER);
    case "asks":
      return sendForm(reply, 200, null);
    case "wrong":
      return sendForm(reply, 403, "That is not the password.");
    case "limited": {
      const minutes = Math.ceil(visit.retryAfterSeconds / 60);
      reply.header("retry-after", String(visit.retryAfterSeconds));
      return sendForm(
        reply,
        429,
        `There were too many wrong passwords. Try again in ${minutes} minute${minutes === 1 ? "" : "s"}.`,
      );
    }
    default:
      throw new Error(`Unknown visit ${JSON.stringify(visit satisfies never)}`);
  }
}

const EMPTY: HtmlPage = { title: "", body: "" };

function send(reply: FastifyReply, status: number, page: HtmlPage): FastifyReply {
  return sendHtml(reply.code(status), page, { isSandboxed: true });
}

function sendForm(reply: FastifyReply, status: number, fault: string | null): FastifyReply {
  return sendHtml(reply.code(status), passwordForm(fault), { isSandboxed: true, hasForm: true });
}

/** Visitors are people: they get a page, not a problem document. */
function sendProblem(
  kernel: Kernel,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { status, title, headers } = kernel.describe(error, request);
  const again = status === 429 || status >= 500 ? "Try again in a moment." : "Go back and try again.";
  reply.headers(headers);
  if (status === 503) reply.header("retry-after", RETRY_AFTER_UNAVAILABLE_SECONDS);
  return send(reply, status, note(title, again));
}
