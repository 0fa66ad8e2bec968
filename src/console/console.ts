import fastifyCookie from "@fastify/cookie";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { sharerOf } from "../base/model/account-places.ts";
import { addPage } from "../http/html-page.ts";
import { readIdempotencyKey } from "../http/idempotent-write.ts";
import type { AddRoutes, Kernel } from "../http/kernel.ts";
import { routerPath } from "../http/operation-registry.ts";
import { Problem } from "../http/problems.ts";
import { beginRequest, contextOf, msLeft, readTraceparent } from "../http/request-context.ts";
import { type Assets, addAssets } from "./assets.ts";
import { createFramers } from "./embedding.ts";
import { addEntry } from "./entry.ts";
import { admitting, formOf, refuseForeignPost, sendFile } from "./guards.ts";
import { bareFrame, type Frame, sendDocument } from "./page.ts";
import { problemPage } from "./problem-page.ts";
import { createAnswerRefresh, createGather, isRefresh } from "./refresh.ts";
import type { Asking, Screen, View } from "./screen.ts";
import { screens } from "./screens.ts";
import {
  accountSite,
  type ConsoleContext,
  type ConsoleOptions,
  type Seen,
  type Site,
  staffAccountSite,
  staffSite,
} from "./site.ts";
import { addSignIn, sendSignIn } from "./staff/sign-in.ts";
import { staffAccountScreens, staffScreens } from "./staff/staff-screens.ts";
import { addTimeZones } from "./time-zones.ts";

/** After which a page that could not be had is asked for again. */
const REFRESH_SECONDS = 5;

/** The console's pages, which run the operations in the name of whoever holds a session. */
export function createConsole(options: ConsoleOptions): AddRoutes {
  return async (app, kernel) => {
    await app.register(async (pages) => {
      await pages.register(fastifyCookie);
      const assets = await addAssets(pages, kernel);
      const framers = createFramers(options.ancestors, options.secretsKey);
      const context = { pages, kernel, options, assets, framers };
      pages.setErrorHandler((error, request, reply) =>
        sendProblem(context, framers.ofPage(request), error, request, reply),
      );
      addEntry(context);
      addTimeZones(context);
      for (const url of ["/console", "/console/*"]) addPage(pages, url, admitting(kernel), answerUnknown);
      const addScreen = screenAdder(context);
      for (const screen of screens) addScreen(pages, accountSite(options.sessions), screen);
      await pages.register(async (staffPages) => {
        staffPages.setErrorHandler(async (error, request, reply) => {
          const isUnknown = error instanceof Problem && error.code === "unauthorized";
          if (isUnknown) return await sendSignIn(context, kernel.describe(error, request), request, reply);
          return sendProblem(context, null, error, request, reply);
        });
        addSignIn({ ...context, pages: staffPages });
        for (const screen of staffScreens) addScreen(staffPages, staffSite(options), screen);
        for (const screen of staffAccountScreens) addScreen(staffPages, staffAccountSite(options), screen);
      });
    });
  };
}

/** Whatever else is asked for below the console: a page, because people ask for it. */
async function answerUnknown(): Promise<never> {
  throw new Problem("not_found");
}

function screenAdder({ kernel, options, assets }: ConsoleContext) {
  const { sessions, publicUrl } = options;
  const [gather, answerRefresh] = [createGather(), createAnswerRefresh()];

  return (pages: FastifyInstance, site: Site, screen: Screen): void => {
    const isRefreshed = screen.method === "GET";
    pages.route<{ Params: Record<string, string>; Querystring: View["query"] }>({
      method: isRefreshed ? ["GET", "HEAD"] : screen.method,
      url: routerPath(`${site.path}${screen.path}`),
      onRequest: async (request, reply) => {
        const context = beginRequest(request, "console");
        if (screen.method === "POST") refuseForeignPost(request, publicUrl);
        if (isRefreshed && isRefresh(request)) await gather();
        const seen = await site.find(request);
        if (seen === null) {
          await kernel.admit(request, reply);
          throw new Problem("unauthorized");
        }
        const { session, accountId } = seen;
        held.set(request, seen);
        context.accountId = accountId;
        context.sharer = sharerOf(accountId ?? session.id, session);
        context.sessionId = session.id;
        await kernel.countSession(request, reply, session);
        if (!isRefresh(request)) sessions.noteUse(session.id).catch(() => undefined);
        if (seen.isAccountUnknown) throw new Problem("not_found");
      },
      handler: async (request, reply) => {
        const seen = held.get(request)!;
        const { session } = seen;
        const show = () => screen.show(viewOf(kernel, options, seen, request, screen));
        const frame = frameOf(assets, seen, request, isRefreshed);
        const refuse = async () => {
          const now = await site.find(request);
          const mayStill = (scope: string) => now?.session.permissions.has(scope) ?? false;
          if (now === null || ![...session.permissions].every(mayStill)) throw new Problem("unauthorized");
        };
        if (isRefreshed && isRefresh(request))
          return await answerRefresh(request, reply, { seen, show, frame, refuse });
        const shown = await show();
        if ("goTo" in shown) return reply.redirect(shown.goTo, 303);
        if ("file" in shown) return sendFile(reply, shown.file, refuse);
        return sendDocument(reply, frame, shown);
      },
    });
  };
}

function frameOf(assets: Assets, seen: Seen, { url: path }: FastifyRequest, isRefreshed: boolean): Frame {
  return { assets, seen: { ...seen, path }, isRefreshed, framer: seen.session.embedOrigin };
}

const held = new WeakMap<FastifyRequest, Seen>();

function viewOf(
  kernel: Kernel,
  options: ConsoleOptions,
  { session, accountId, base }: Seen,
  request: FastifyRequest,
  screen: Screen,
): View {
  const { account_id: _, ...params } = request.params as Record<string, string>;
  const form = screen.method === "POST" ? formOf(request) : new URLSearchParams();
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
    const { params = {}, query = {}, body, idempotencyKey = form.get("_key"), isOfAll = false } = asking;
    const { response } = await kernel.ask(
      operationKey,
      { caller, accountId: isOfAll ? null : accountId },
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
  const askWithHeaders: View["askWithHeaders"] = async (operationKey, asking) => {
    const { body, headers } = await askForResponse(operationKey, asking);
    // What the operation's own schema describes, and its response is checked against in tests.
    return { body: body === null ? null : JSON.parse(body.toString()), headers };
  };
  const ask: View["ask"] = async (operationKey, asking) => (await askWithHeaders(operationKey, asking)).body;
  return {
    installation: options,
    session,
    accountId,
    base,
    params,
    query: request.query as View["query"],
    form,
    leave: () => options.sessions.end(session.id),
    may: (scope) => session.permissions.has(scope),
    isOfAccount: session.userId === null,
    hasKey: session.keyId !== null,
    ask,
    askWithHeaders,
    askForText: async (operationKey, asking) =>
      (await askForResponse(operationKey, asking)).body?.toString() ?? "",
    ...runsOf(options, { session, accountId }, ask),
    nowMs: options.now(),
  };
}

/** What can be told of workflows' runs: nothing outside of an account, nor where no area has them. */
function runsOf(
  { origins }: ConsoleOptions,
  { session: { userId }, accountId }: Pick<Seen, "session" | "accountId">,
  ask: View["ask"],
): Pick<View, "findOrigin" | "findRun" | "findWorkflows"> {
  if (origins === null || accountId === null) {
    return { findOrigin: async () => null, findRun: async () => null, findWorkflows: async () => new Map() };
  }
  return {
    findOrigin: (published) => origins.findOrigin(accountId, published),
    findRun: async (runId) =>
      userId === null
        ? await origins.findRun(accountId, runId)
        : await ask("workflows.runs.get", { params: { run_id: runId } }),
    findWorkflows: (published) => origins.findWorkflows({ accountId, userId }, published),
  };
}

/** @param framer may frame the page unless a session is known, whose own does; null: nobody may */
function sendProblem(
  { kernel, assets }: ConsoleContext,
  framer: string | null,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const problem = kernel.describe(error, request);
  const seen = held.get(request);
  const frame = seen === undefined ? bareFrame(assets, framer) : frameOf(assets, seen, request, false);
  reply.headers(problem.headers);
  // By the browser itself: here nobody has read anything yet, and there may be no session to run a script for.
  if (request.method === "GET" && problem.status === 503) reply.header("refresh", REFRESH_SECONDS);
  sendDocument(reply, frame, problemPage(problem, request.id, frame.seen));
}
