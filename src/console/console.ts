import fastifyCookie from "@fastify/cookie";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { FindOrigin } from "../base/model/events.ts";
import { readIdempotencyKey } from "../http/idempotent-write.ts";
import type { AddedRoute, AddRoutes, Kernel } from "../http/kernel.ts";
import { routerPath } from "../http/operation-registry.ts";
import { Problem } from "../http/problems.ts";
import { beginRequest, contextOf, msLeft, readTraceparent } from "../http/request-context.ts";
import { type Assets, addAssets } from "./assets.ts";
import { addEmbedScript, createFramers, type Framers } from "./embedding.ts";
import { addEntry } from "./entry.ts";
import { formOf, refuseForeignPost, sendFile, sendPage } from "./guards.ts";
import type { Html } from "./html.ts";
import { bareFrame, document, type Frame, mainElement, problemPage } from "./page.ts";
import { type AnswerRefresh, createAnswerRefresh, createGather, type Gather, isRefresh } from "./refresh.ts";
import type { Asking, Screen, View } from "./screen.ts";
import { screens } from "./screens.ts";
import { accountSite, type Seen, type SessionStore, type Site } from "./site.ts";
import { addSignIn, sendSignIn } from "./staff/sign-in.ts";
import { staffAccountScreens, staffScreens } from "./staff/staff-screens.ts";
import { type ReadAssertion, staffAccountSite, staffSite } from "./staff/staff-sites.ts";
import { addTimeZones } from "./time-zones.ts";

export type ConsoleOptions = {
  readonly sessions: SessionStore;
  /** Under which browsers reach the service. */
  readonly publicUrl: string;
  readonly analysisRetentionMs: number;
  /** Of a run. */
  readonly attemptsMax: number;
  /** What the audit log can tell of, by operations' keys and names like those. */
  readonly audited: readonly string[];
  /** Origins that may show an account's console in a frame. */
  readonly ancestors: readonly string[];
  /** For the links of those; see framerTag. */
  readonly secretsKey: Uint8Array;
  /** Of support staff, by a proxy in front; null: there is none. */
  readonly readAssertion: ReadAssertion | null;
  readonly findOrigin: FindOrigin;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

/** After which a page that could not be had is asked for again. */
const REFRESH_SECONDS = 5;

/** The console's pages, which run the operations in the name of whoever holds a session. */
export function createConsole(options: ConsoleOptions): AddRoutes {
  return async (app, kernel) => {
    const added: AddedRoute[] = [];
    await app.register(async (pages) => {
      await pages.register(fastifyCookie);
      const assets = await addAssets(pages, kernel);
      const framers = createFramers(options.ancestors, options.secretsKey);
      pages.setErrorHandler((error, request, reply) =>
        sendProblem(kernel, assets, framers, error, request, reply),
      );
      added.push(
        ...Object.values(assets).map((path) => ({ method: "GET", path }) as const),
        ...(await addEmbedScript(pages, kernel)),
        ...addEntry(pages, kernel, options, assets, framers),
        ...addTimeZones(pages, kernel, options.publicUrl, framers),
      );
      const refreshing = { gather: createGather(), answer: createAnswerRefresh() };
      const addScreens = (pages: FastifyInstance, site: Site, screens: readonly Screen[]) => {
        for (const screen of screens) addScreen(pages, kernel, options, assets, refreshing, site, screen);
        added.push(...screens.map(({ method, path }) => ({ method, path: `${site.path}${path}` })));
      };
      addScreens(pages, accountSite(options.sessions), screens);
      await pages.register(async (staffPages) => {
        staffPages.setErrorHandler(async (error, request, reply) => {
          const isUnknown = error instanceof Problem && error.code === "unauthorized";
          if (isUnknown)
            return await sendSignIn(
              options,
              bareFrame(assets),
              kernel.describe(error, request),
              request,
              reply,
            );
          sendProblem(kernel, assets, null, error, request, reply);
        });
        added.push(...addSignIn(staffPages, kernel, options, bareFrame(assets)));
        addScreens(staffPages, staffSite(options), staffScreens);
        addScreens(staffPages, staffAccountSite(options), staffAccountScreens);
      });
    });
    return added;
  };
}

function addScreen(
  pages: FastifyInstance,
  kernel: Kernel,
  options: ConsoleOptions,
  assets: Assets,
  refreshing: { readonly gather: Gather; readonly answer: AnswerRefresh },
  site: Site,
  screen: Screen,
): void {
  const { sessions, publicUrl } = options;
  const isRefreshed = screen.method === "GET";
  pages.route<{ Params: Record<string, string>; Querystring: View["query"] }>({
    method: screen.method === "GET" ? ["GET", "HEAD"] : [screen.method],
    url: routerPath(`${site.path}${screen.path}`),
    onRequest: async (request, reply) => {
      const context = beginRequest(request, "console");
      if (screen.method === "POST") refuseForeignPost(request, publicUrl);
      if (isRefreshed && isRefresh(request)) await refreshing.gather();
      const seen = await site.find(request);
      if (seen === null) {
        await kernel.admit(request, reply);
        throw new Problem("unauthorized");
      }
      const { session, accountId } = seen;
      held.set(request, seen);
      context.accountId = accountId;
      context.sessionId = session.id;
      await kernel.countSession(request, reply, session);
      if (!isRefresh(request)) {
        sessions.noteUse(session.id).catch(() => undefined);
      }
      if (seen.isAccountUnknown) throw new Problem("not_found");
    },
    handler: async (request, reply) => {
      const seen = held.get(request)!;
      const { session } = seen;
      const view = viewOf(kernel, options, seen, request, screen);
      const frame = {
        assets,
        session,
        base: view.base,
        path: request.url,
        isRefreshed,
        framer: session.embedOrigin,
      };
      const refuse = async () => {
        const now = await site.find(request);
        const mayStill = (scope: string) => now?.session.permissions.has(scope) ?? false;
        if (now === null || ![...session.permissions].every(mayStill)) throw new Problem("unauthorized");
      };
      if (isRefreshed && isRefresh(request)) {
        const around = (main: Html) => mainElement(frame, main);
        return await refreshing.answer(request, reply, { seen, view, show: screen.show, refuse, around });
      }
      const shown = await screen.show(view);
      if ("goTo" in shown) return reply.redirect(shown.goTo, 303);
      if ("file" in shown) return sendFile(reply, shown.file, refuse);
      const { text } = document(frame, shown);
      return sendPage(reply, session.embedOrigin, shown.status ?? 200, text);
    },
  });
}

const held = new WeakMap<FastifyRequest, Seen>();

function viewOf(
  kernel: Kernel,
  { sessions, publicUrl, analysisRetentionMs, attemptsMax, audited, findOrigin, now }: ConsoleOptions,
  { session, accountId, base }: Seen,
  request: FastifyRequest,
  screen: Screen,
): View {
  const { account_id: _, ...params } = request.params as Record<string, string>;
  const caller = {
    // Whom idempotency keys belong to: without a key, the session itself.
    keyId: session.keyId ?? session.id,
    isStaff: session.accountId === null,
    // Whoever looks is known by a label; what they see is what the key's user sees.
    userId: session.userId,
    scopes: session.permissions,
    session: { id: session.id, viewer: session.viewerLabel, hasKey: session.keyId !== null },
  };
  const askForResponse = async (operationKey: string, asking: Asking = {}) => {
    const { params = {}, query = {}, body, idempotencyKey = null } = asking;
    const { response } = await kernel.ask(
      operationKey,
      { caller, accountId },
      {
        params,
        query,
        body: body === undefined ? undefined : Buffer.from(JSON.stringify(body)),
        // A form's, which anybody can have written.
        idempotencyKey: idempotencyKey === null ? null : readIdempotencyKey(idempotencyKey),
        requestId: request.id,
        traceparent: readTraceparent(request.headers.traceparent),
        waitMs: msLeft(contextOf(request)),
      },
    );
    return response;
  };
  const askForText = async (operationKey: string, asking?: Asking) =>
    (await askForResponse(operationKey, asking)).body?.toString() ?? "";
  const askWithHeaders = async <Body>(operationKey: string, asking?: Asking) => {
    const { body, headers } = await askForResponse(operationKey, asking);
    return { body: (body === null ? null : JSON.parse(body.toString())) as Body, headers };
  };
  return {
    session,
    accountId,
    base,
    params,
    query: request.query as View["query"],
    form: screen.method === "POST" ? formOf(request) : new URLSearchParams(),
    leave: () => sessions.end(session.id),
    may: (scope) => session.permissions.has(scope),
    isOfAccount: session.userId === null,
    ask: async (operationKey, asking) => (await askWithHeaders<never>(operationKey, asking)).body,
    askWithHeaders,
    askForText,
    publicUrl,
    analysisRetentionMs,
    attemptsMax,
    audited,
    findOrigin: async (published) => (accountId === null ? null : await findOrigin(accountId, published)),
    nowMs: now(),
  };
}

function sendProblem(
  kernel: Kernel,
  assets: Assets,
  /** Null: nobody may frame it. */
  framers: Framers | null,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const problem = kernel.describe(error, request);
  const seen = held.get(request) ?? null;
  const session = seen?.session ?? null;
  const framer = session === null ? (framers?.ofPage(request) ?? null) : session.embedOrigin;
  const frame: Frame =
    seen === null
      ? bareFrame(assets, framer)
      : { assets, session, base: seen.base, path: request.url, isRefreshed: false, framer };
  reply.headers(problem.headers);
  // By the browser itself: here nobody has read anything yet, and there may be no session to run a script for.
  if (request.method === "GET" && problem.status === 503) reply.header("refresh", REFRESH_SECONDS);
  sendPage(reply, framer, problem.status, document(frame, problemPage(problem, request.id)).text);
}
