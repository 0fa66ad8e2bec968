import { createHash, randomBytes } from "node:crypto";
import fastifyCookie from "@fastify/cookie";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { readIdempotencyKey } from "../api/idempotency.ts";
import type { AddedRoute, AddRoutes, Kernel } from "../api/kernel.ts";
import { Problem } from "../api/problems.ts";
import { beginRequest, contextOf, msLeft, readTraceparent } from "../api/request-context.ts";
import type { ConsoleSession } from "../model/console.ts";
import { type Assets, addAssets } from "./assets.ts";
import { enterPage, leftPage, linkPage } from "./entry-pages.ts";
import { formOf, refuseForeignPost, sendPage } from "./guards.ts";
import { document, type Frame } from "./page.ts";
import { problemPage } from "./problem-page.ts";
import type { Asking, Screen, View } from "./screen.ts";
import { screens } from "./screens.ts";
import { cookieName, type SessionStore } from "./session.ts";

export type ConsoleOptions = {
  readonly sessions: SessionStore;
  /** Under which browsers reach the service. */
  readonly publicUrl: string;
  readonly analysisRetentionMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

const ENTRY_ROUTES = [
  { method: "GET", path: "/console/enter" },
  { method: "POST", path: "/console/enter" },
  { method: "GET", path: "/console/left" },
] as const satisfies readonly AddedRoute[];

const TOKEN = /^[A-Za-z0-9_-]{43}$/;

/** The console's pages, which run the operations in the name of whoever holds a session. */
export function createConsole(options: ConsoleOptions): AddRoutes {
  return async (app, kernel) => {
    const added: AddedRoute[] = [];
    await app.register(async (pages) => {
      await pages.register(fastifyCookie);
      const assets = await addAssets(pages, kernel);
      pages.setErrorHandler((error, request, reply) => sendProblem(kernel, assets, error, request, reply));
      addEntry(pages, kernel, options, assets);
      for (const screen of screens) addScreen(pages, kernel, options, assets, screen);
      added.push(
        ...Object.values(assets).map((path) => ({ method: "GET", path }) as const),
        ...ENTRY_ROUTES,
        ...screens.map(({ method, path }) => ({ method, path: `/console/a/{account_id}${path}` })),
      );
    });
    return added;
  };
}

/** A link's way in: its GET changes nothing, so whoever only looks at links (a mail scanner) uses none up. */
function addEntry(
  pages: FastifyInstance,
  kernel: Kernel,
  { sessions, publicUrl }: ConsoleOptions,
  assets: Assets,
): void {
  const admit = async (request: FastifyRequest, reply: FastifyReply) => {
    beginRequest(request, "console");
    await kernel.admit(request, reply);
  };
  pages.get("/console/enter", { onRequest: admit }, async (_request, reply) =>
    sendPage(reply, null, 200, document(bareFrame(assets), enterPage()).text),
  );
  pages.post("/console/enter", { onRequest: admit }, async (request, reply) => {
    refuseForeignPost(request, publicUrl);
    const token = formOf(request).get("t") ?? "";
    const secret = randomBytes(32).toString("base64url");
    const entered = TOKEN.test(token)
      ? await sessions.enter(digestOf(token), digestOf(secret))
      : ({ kind: "unknown" } as const);
    if (entered.kind !== "entered") {
      return sendPage(reply, null, 403, document(bareFrame(assets), linkPage(entered.kind)).text);
    }
    const session = await sessions.find(digestOf(secret));
    const isFramed = session?.embedOrigin != null;
    reply.setCookie(cookieName(entered.accountId), secret, {
      path: "/",
      secure: true,
      httpOnly: true,
      // A frame of another site gets no strict cookie; partitioned, it is that site's alone.
      sameSite: isFramed ? "none" : "strict",
      partitioned: isFramed,
    });
    return reply.redirect(`/console/a/${entered.accountId}${entered.path ?? "/deliveries"}`, 303);
  });
  pages.get("/console/left", { onRequest: admit }, async (_request, reply) =>
    sendPage(reply, null, 200, document(bareFrame(assets), leftPage()).text),
  );
}

function addScreen(
  pages: FastifyInstance,
  kernel: Kernel,
  options: ConsoleOptions,
  assets: Assets,
  screen: Screen,
): void {
  const { sessions, publicUrl } = options;
  pages.route<{ Params: Record<string, string>; Querystring: View["query"] }>({
    method: screen.method === "GET" ? ["GET", "HEAD"] : [screen.method],
    url: `/console/a/:account_id${screen.path.replaceAll(/\{(\w+)\}/g, ":$1")}`,
    onRequest: async (request, reply) => {
      const context = beginRequest(request, "console");
      if (screen.method === "POST") refuseForeignPost(request, publicUrl);
      const session = await sessionOf(request, sessions);
      if (session === null) {
        await kernel.admit(request, reply);
        throw new Problem("unauthorized");
      }
      held.set(request, session);
      context.accountId = session.accountId;
      context.sessionId = session.id;
      await kernel.countSession(request, reply, session.id);
      // A page that refreshes itself says so: that is nobody's doing.
      if (request.headers["x-refresh"] === undefined) {
        sessions.noteUse(session.id).catch(() => undefined);
      }
    },
    handler: async (request, reply) => {
      const session = held.get(request)!;
      const view = viewOf(kernel, options, session, request, screen);
      const shown = await screen.show(view);
      if ("goTo" in shown) return reply.redirect(shown.goTo, 303);
      const isRefreshed = screen.method === "GET";
      const frame = { assets, session, base: view.base, path: request.url, isRefreshed };
      return sendPage(reply, session, shown.status ?? 200, document(frame, shown).text);
    },
  });
}

const held = new WeakMap<FastifyRequest, ConsoleSession>();

/** Of the account in the path, whole: cookies of several accounts may be there. */
async function sessionOf(request: FastifyRequest, sessions: SessionStore): Promise<ConsoleSession | null> {
  const { account_id = "" } = request.params as Record<string, string>;
  const secret = request.cookies[cookieName(account_id)] ?? "";
  if (!TOKEN.test(secret)) return null;
  const session = await sessions.find(digestOf(secret));
  return session?.accountId === account_id ? session : null;
}

function viewOf(
  kernel: Kernel,
  { sessions, analysisRetentionMs, now }: ConsoleOptions,
  session: ConsoleSession,
  request: FastifyRequest,
  screen: Screen,
): View {
  const { account_id: accountId = "", ...params } = request.params as Record<string, string>;
  const caller = {
    // Whom idempotency keys belong to: without a key, the session itself.
    keyId: session.keyId ?? session.id,
    isStaff: session.accountId === null,
    scopes: session.permissions,
    session: { id: session.id, viewer: session.viewerLabel, hasKey: session.keyId !== null },
  };
  const askWithHeaders = async <Body>(operationKey: string, asking: Asking = {}) => {
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
    const { headers } = response;
    return { body: (response.body === null ? null : JSON.parse(response.body.toString())) as Body, headers };
  };
  return {
    session,
    accountId,
    base: `/console/a/${accountId}`,
    params,
    query: request.query as View["query"],
    form: screen.method === "POST" ? formOf(request) : new URLSearchParams(),
    leave: () => sessions.end(session.id),
    may: (scope) => session.permissions.has(scope),
    ask: async (operationKey, asking) => (await askWithHeaders<never>(operationKey, asking)).body,
    askWithHeaders,
    analysisRetentionMs,
    nowMs: now(),
  };
}

function sendProblem(
  kernel: Kernel,
  assets: Assets,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const told = kernel.tell(error, request);
  const session = held.get(request) ?? null;
  const frame: Frame =
    session?.accountId == null
      ? bareFrame(assets)
      : {
          assets,
          session,
          base: `/console/a/${session.accountId}`,
          path: request.url,
          isRefreshed: request.method === "GET",
        };
  reply.headers(told.headers);
  sendPage(reply, session, told.status, document(frame, problemPage(told, request.id)).text);
}

function bareFrame(assets: Assets): Frame {
  return { assets, session: null, base: null, path: null, isRefreshed: false };
}

function digestOf(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}
