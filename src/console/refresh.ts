import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import { entityTag, matchesEntityTag } from "../http/bytes.ts";
import { sendFile, sendPage } from "./guards.ts";
import { type Frame, mainElement } from "./page.ts";
import type { Page, Shown } from "./screen.ts";
import type { Seen } from "./site.ts";

/** A page's own script asks for it again: that is nobody's doing. */
export function isRefresh({ headers }: FastifyRequest): boolean {
  return headers["x-refresh"] !== undefined;
}

/** By which a refresh may be late: nobody waits for it. */
const TOGETHER_MS = 1_000;
/** So that answering them all does not keep other requests waiting. */
const TOGETHER_MAX = 32;

/**
 * Lets refreshes begin together, a second after the last ones did, or as soon as there are enough: those of one
 * moment share what they ask, and a hundred open pages cost little more than one. Whoever comes alone does not wait.
 *
 * Losing option: an answer that is kept for a second. It would be read before it is asked for, and a reader might miss
 * what was written in between, perhaps by another process.
 *
 * @returns resolves when a refresh may begin
 */
export function createGather(): () => Promise<void> {
  let lastMs = Number.NEGATIVE_INFINITY;
  let timer: NodeJS.Timeout;
  let waiting: (() => void)[] = [];

  function begin() {
    clearTimeout(timer);
    lastMs = performance.now();
    const all = waiting;
    waiting = [];
    for (const go of all) go();
  }

  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1)
        timer = setTimeout(begin, Math.max(0, lastMs + TOGETHER_MS - performance.now()));
      if (waiting.length === TOGETHER_MAX) begin();
    });
}

/** What a refresh is answered with: `<main>` without the keys of its forms. */
type Refreshed =
  | Exclude<Shown, Page>
  | { readonly main: Buffer; readonly hasForms: boolean; readonly tag: string; readonly status: number };

type Refresh = {
  readonly seen: Seen;
  readonly show: () => Promise<Shown>;
  readonly frame: Frame;
  /** For files; see sendFile. */
  readonly refuse: () => Promise<void>;
};

/**
 * Answers refreshes: with `<main>` alone, or with 304 if the script has that, as the tag says that it keeps. Those who
 * ask for the same in one turn of the event loop, and may do and see the same, are shown the same, read in the name of
 * the first of them. They come in one turn because one statement found and counted all their sessions.
 */
export function createAnswerRefresh() {
  const turn = new Map<string, Promise<Refreshed>>();

  function share(key: string, refresh: Refresh): Promise<Refreshed> {
    const shared = turn.get(key);
    if (shared !== undefined) return shared;
    const refreshed = read(refresh);
    turn.set(key, refreshed);
    setImmediate(() => turn.delete(key));
    return refreshed;
  }

  return async (request: FastifyRequest, reply: FastifyReply, refresh: Refresh): Promise<FastifyReply> => {
    const { framer } = refresh.frame;
    const refreshed = await share(keyOf(request, refresh.seen), refresh);
    if ("goTo" in refreshed) return reply.redirect(refreshed.goTo, 303);
    if ("file" in refreshed) return sendFile(reply, refreshed.file, refresh.refuse);
    const { main, hasForms, tag, status } = refreshed;
    reply.header("etag", tag);
    if (matchesEntityTag(request.headers["if-none-match"] ?? "", tag))
      return sendPage(reply, framer, 304, null);
    return sendPage(reply, framer, status, hasForms ? withNewKeys(main.toString()) : main);
  };
}

async function read({ show, frame }: Refresh): Promise<Refreshed> {
  const shown = await show();
  if (!("main" in shown)) return shown;
  const { text } = mainElement(frame, shown);
  const keyless = withoutKeys(text);
  const main = Buffer.from(keyless);
  return { main, hasForms: keyless !== text, tag: entityTag(main), status: shown.status ?? 200 };
}

const KEY = /(<input type="hidden" name="_key" value=")[^"]*/g;

/** A page as it is apart from the keys of its forms. */
export function withoutKeys(page: string): string {
  return page.replaceAll(KEY, "$1");
}

/** The same page for somebody else: the keys of two people must not be taken for one. */
function withNewKeys(page: string): string {
  return page.replaceAll(KEY, (_, before: string) => before + randomUUID());
}

/** The address names the account. */
function keyOf({ url }: FastifyRequest, { session, accountId }: Seen): string {
  const { userId, timeZone, linkTimeZone, permissions, pausedAt } = session;
  const [isStaff, hasKey] = [session.accountId === null, session.keyId !== null];
  const sight = [isStaff, hasKey, userId, timeZone, linkTimeZone, pausedAt, [...permissions].sort()];
  return JSON.stringify([url, accountId, sight]);
}
