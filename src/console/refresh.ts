import type { FastifyReply, FastifyRequest } from "fastify";
import { entityTag, matchesEntityTag } from "../http/bytes.ts";
import { withNewKeys, withoutKeys } from "./forms.ts";
import { sendFile, sendPage } from "./guards.ts";
import type { Html } from "./html.ts";
import type { Shown, View } from "./screen.ts";
import type { Seen } from "./site.ts";

/** A page's own script asks for it again: that is nobody's doing. */
export function isRefresh({ headers }: FastifyRequest): boolean {
  return headers["x-refresh"] !== undefined;
}

/** By which a refresh may be late: nobody waits for it. */
const TOGETHER_MS = 500;
/** So that answering them all does not keep other requests waiting. */
const TOGETHER_MAX = 32;

/** Resolves when a refresh may begin. */
export type Gather = () => Promise<void>;

/**
 * Lets refreshes begin together, half a second after the last ones did, or as soon as there are enough: those of one
 * moment share what they ask, and a hundred open pages cost little more than one. Whoever comes alone does not wait.
 *
 * Losing option: an answer that is kept for a second. It would be read before it is asked for, and a reader might miss
 * what was written in between, perhaps by another process.
 */
export function createGather(): Gather {
  let lastMs = Number.NEGATIVE_INFINITY;
  let waiting = 0;
  let next: { readonly begun: Promise<void>; readonly begin: () => void } | null = null;

  function plan() {
    const { promise: begun, resolve } = Promise.withResolvers<void>();
    const begin = () => {
      clearTimeout(timer);
      [next, waiting, lastMs] = [null, 0, performance.now()];
      resolve();
    };
    const timer = setTimeout(begin, Math.max(0, lastMs + TOGETHER_MS - performance.now()));
    return { begun, begin };
  }

  return () => {
    next ??= plan();
    const { begun, begin } = next;
    waiting += 1;
    if (waiting === TOGETHER_MAX) begin();
    return begun;
  };
}

/** What a refresh is answered with. */
type Refreshed =
  | Exclude<Shown, { readonly main: Html }>
  /** `<main>` without the keys of its forms. */
  | { readonly main: Buffer; readonly hasForms: boolean; readonly tag: string; readonly status: number };

export type Refresh = {
  readonly seen: Seen;
  readonly view: View;
  readonly show: (view: View) => Promise<Shown>;
  /** For files; see sendFile. */
  readonly refuse: () => Promise<void>;
  /** `<main>`, with its tags. */
  readonly around: (main: Html) => Html;
};

/** Answers a refresh: with `<main>` alone, or with 304 if the script has that, as the tag says that it keeps. */
export type AnswerRefresh = (
  request: FastifyRequest,
  reply: FastifyReply,
  refresh: Refresh,
) => Promise<FastifyReply>;

/**
 * Those who ask for the same in one turn of the event loop, and may do and see the same, are shown the same, read in
 * the name of the first of them. They come in one turn because one statement found and counted all their sessions.
 */
export function createAnswerRefresh(): AnswerRefresh {
  const turn = new Map<string, Promise<Refreshed>>();

  function share(key: string, refresh: Refresh): Promise<Refreshed> {
    const shared = turn.get(key);
    if (shared !== undefined) return shared;
    const refreshed = show(refresh);
    turn.set(key, refreshed);
    setImmediate(() => turn.delete(key));
    return refreshed;
  }

  return async (request, reply, refresh) => {
    const { session } = refresh.seen;
    const refreshed = await share(keyOf(request, refresh.seen), refresh);
    if ("goTo" in refreshed) return reply.redirect(refreshed.goTo, 303);
    if ("file" in refreshed) return sendFile(reply, refreshed.file, refresh.refuse);
    const { main, hasForms, tag, status } = refreshed;
    reply.header("etag", tag);
    if (matchesEntityTag(request.headers["if-none-match"] ?? "", tag))
      return sendPage(reply, session.embedOrigin, 304, null);
    return sendPage(reply, session.embedOrigin, status, hasForms ? withNewKeys(main.toString()) : main);
  };
}

async function show({ view, show, around }: Refresh): Promise<Refreshed> {
  const shown = await show(view);
  if (!("main" in shown)) return shown;
  const { text } = around(shown.main);
  const keyless = withoutKeys(text);
  const main = Buffer.from(keyless);
  return { main, hasForms: keyless !== text, tag: entityTag(main), status: shown.status ?? 200 };
}

/** The address names the account. */
function keyOf({ url }: FastifyRequest, { session, accountId }: Seen): string {
  const { userId, timeZone, linkTimeZone, permissions } = session;
  const isStaff = session.accountId === null;
  return JSON.stringify([
    url,
    accountId,
    isStaff,
    userId,
    timeZone,
    linkTimeZone,
    ...[...permissions].sort(),
  ]);
}
