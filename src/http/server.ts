import type { Socket } from "node:net";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { AccountPlaces } from "../base/model/account-places.ts";
import type { FindSpaces } from "../base/model/reader.ts";
import { AccountNews } from "./account-news.ts";
import { type AuthenticateOptions, createAuthenticate } from "./api-keys.ts";
import { createHoldAnswer, createReadBody } from "./buffered-bodies.ts";
import { withDeadline } from "./deadline.ts";
import { createHttpApp, type HttpAppOptions, refuseAmbiguousHeaders } from "./http-app.ts";
import { createIdempotentWrites, type IdempotencyOptions } from "./idempotent-write.ts";
import type { AddRoutes, Kernel } from "./kernel.ts";
import * as limits from "./limits.ts";
import type { Transaction } from "./operation.ts";
import { type OperationRegistry, watchAllowedMethods } from "./operation-registry.ts";
import { addOperationRoute } from "./operation-routes.ts";
import { compilePerform, type Perform } from "./perform.ts";
import { explainProblem, Problem, type TranslateError } from "./problems.ts";
import { addPublicPages, type PageOptions } from "./public-routes.ts";
import { addressBucket, createRateLimits, type RateLimitOptions } from "./rate-limits.ts";
import {
  beginRequest,
  type CompletedRequest,
  completedRequest,
  contextOf,
  msLeft,
} from "./request-context.ts";
import { createRequestGuards, type RequestGuardOptions } from "./request-guards.ts";
import { type CheckOutcome, createProblemRenderer, problemFrom } from "./responses.ts";
import { createThreadTurns, createTransferPlaces, createTurns } from "./turns.ts";

export type ApiOptions = PageOptions &
  AuthenticateOptions &
  RateLimitOptions &
  RequestGuardOptions &
  IdempotencyOptions &
  Omit<HttpAppOptions, "readBody" | "holdAnswer" | "onClientError" | "onUnroutableUrl"> & {
    readonly registry: OperationRegistry;
    readonly translateError: TranslateError;
    readonly findSpaces: FindSpaces<Transaction>;
    /** Tells reads that wait; absent: nothing ever does. */
    readonly news?: AccountNews;
    /** Requests at work on the database at a time; absent: WORK_PLACES_MAX. */
    readonly workPlacesMax?: number;
    /** Absent: those of limits.ts. */
    readonly transferLimits?: limits.TransferLimits;
    /** Absent: what operations come to is not compared with what they declare. */
    readonly check?: CheckOutcome | undefined;
    readonly onCompleted: (completed: CompletedRequest) => void;
    /** Called when the last request is answered and nothing listens any more. */
    readonly onClosed?: () => Promise<void>;
    /** Absent: none but the operations' and the public pages. */
    readonly addRoutes?: AddRoutes;
  };

/** The whole HTTP server: operations and public pages. Ready to listen. */
export async function createApi(options: ApiOptions): Promise<FastifyInstance> {
  const { registry, policies, newId, translateError, onInternalError, onCompleted } = options;
  const { transferLimits = limits.TRANSFER_LIMITS, news = new AccountNews(0, () => undefined) } = options;
  const renderProblem = createProblemRenderer(registry.problems, options.docsUrl);
  const rateLimits = createRateLimits(options);
  const authenticate = createAuthenticate(options);
  const guards = createRequestGuards(options, authenticate, rateLimits);
  const { workPlacesMax: placesMax = limits.WORK_PLACES_MAX } = options;
  const places = new AccountPlaces({ placesMax, lightMs: limits.LIGHT_WORK_MS });
  const inTurn = createTurns(places, "a request of the account's");
  const performing = {
    idempotentWrites: createIdempotentWrites(options, inTurn, transferLimits.renewEveryMs),
    inTurn,
    onThread: createThreadTurns(),
    lookAgain: createTurns(new AccountPlaces({ placesMax: limits.LOOKS_AGAIN_MAX }), "a read that was held"),
    uploads: createTransferPlaces("uploads", transferLimits.uploadsMax),
    news,
    findSpaces: options.findSpaces,
    translateError,
    check: options.check,
  };
  const noteProblem = (error: unknown, request: FastifyRequest): Problem => {
    const problem = problemFrom(translateError(error), registry.problems);
    if (problem.code === "internal_error") onInternalError(problem.cause, request.id);
    contextOf(request).problemCode = problem.code;
    return problem;
  };
  const sendProblem = (error: unknown, request: FastifyRequest, reply: FastifyReply): void => {
    const { status, headers, body } = renderProblem(noteProblem(error, request), request.id);
    guards.addRateLimitHeaders(request, reply);
    keepReading(request, reply);
    // Of an answer for which there was no room.
    reply.removeHeader("etag");
    reply.code(status).headers(headers).send(body);
  };

  /** A request that was let in because its key was valid not long ago is told no more than its key is good for. */
  const refusalOf = async (error: unknown, request: FastifyRequest): Promise<unknown> => {
    const context = contextOf(request);
    const { findKey } = context;
    if (findKey === null || !(error instanceof Problem)) return error;
    context.findKey = null;
    try {
      context.key = await withDeadline(msLeft(context), "authentication", findKey());
    } catch (failure) {
      return failure;
    }
    return context.key === null ? new Problem("unauthorized") : error;
  };

  const holdAnswer = createHoldAnswer(createTransferPlaces("answer-bytes", transferLimits.answerBytesMax));
  const app = createHttpApp({
    ...options,
    holdAnswer,
    readBody: createReadBody(createTransferPlaces("body-bytes", transferLimits.bufferedBodyBytesMax)),
    onClientError: (error, socket) => {
      const errors = [{ path: "http", message: explain(error.code) }];
      const requestId = newId();
      const { headers, body } = renderProblem(new Problem("invalid_request", { errors }), requestId);
      const bucket = addressBucket(socket.remoteAddress);
      const limit = rateLimits.lastKnown({ bucket, policy: policies.address }).headers;
      endBadRequest(socket, { ...headers, ...limit, "x-request-id": requestId }, body);
    },
    // Hooks do not run for a URL that cannot be decoded, so their work is done here.
    onUnroutableUrl: async (error, request, reply) => {
      addStandardHeaders(request, reply);
      const refusal = await guards.guardPublic(request, reply).then(
        () => error,
        (refused: unknown) => refused,
      );
      sendProblem(refusal, request, reply);
      onCompleted(completedRequest(request, reply));
    },
  });

  const allowedMethods = watchAllowedMethods(app);
  app.addHook("onRequest", (request, reply, done) => {
    addStandardHeaders(request, reply);
    refuseAmbiguousHeaders(request);
    // Rejected here and not in the handler, so that the body is not read.
    if (request.is404) refuseUnknown(request, reply).catch(done);
    else done();
  });
  // Or the end would wait for all who wait.
  app.addHook("preClose", (done) => {
    news.close();
    done();
  });
  app.addHook("onClose", async () => await options.onClosed?.());
  app.addHook("onResponse", (request, reply, done) => {
    const completed = completedRequest(request, reply);
    onCompleted(completed);
    contextOf(request).trace?.end(completed);
    done();
  });
  app.setErrorHandler(async (error, request, reply) => {
    sendProblem(await refusalOf(error, request), request, reply);
    return reply;
  });
  app.setNotFoundHandler(() => {
    throw new Problem("not_found");
  });

  const streaming = {
    ...transferLimits,
    downloads: createTransferPlaces("downloads", transferLimits.downloadsMax),
    onSourceFailure: onInternalError,
  };
  const performs = new Map<string, Perform>();
  for (const operation of registry.operations) {
    const perform = compilePerform(operation, performing);
    performs.set(operation.key, perform);
    addOperationRoute(app, operation, guards, perform, streaming);
  }
  addPublicPages(app, registry, options, guards);
  const kernel: Kernel = {
    inTurn,
    onThread: performing.onThread,
    holdAnswer,
    ask: async (operationKey, principal, asked) => {
      const perform = performs.get(operationKey);
      if (perform === undefined) throw new Error(`There is no operation ${operationKey}.`);
      return await perform(principal, asked);
    },
    admit: guards.guardPublic,
    countSession: guards.countSession,
    identify: (key, request) =>
      withDeadline(msLeft(contextOf(request)), "authentication", authenticate(`Bearer ${key}`).find()),
    describe: (error, request) => {
      const { code, errors, headers } = noteProblem(error, request);
      return { ...explainProblem(code, registry.problems[code]!), errors, headers };
    },
  };
  await options.addRoutes?.(app, kernel);

  async function refuseUnknown(request: FastifyRequest, reply: FastifyReply): Promise<never> {
    beginRequest(request, "none");
    await guards.guardPublic(request, reply);
    const [pathname = "/"] = request.url.split("?", 1);
    const allowed = allowedMethods(pathname);
    if (allowed.length === 0) throw new Problem("not_found");
    throw new Problem("method_not_allowed", { headers: { allow: allowed.join(", ") } });
  }

  await app.ready();
  return app;
}

/** There is no request yet. The platform has neither 408 nor 431, so all of these are 400. */
function explain(code: string | undefined): string {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return "The headers are larger than 16 KiB.";
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return "The request did not arrive in time.";
    default:
      return "The request is not well-formed HTTP/1.1.";
  }
}

function endBadRequest(socket: Socket, headers: Readonly<Record<string, string>>, body: Buffer): void {
  const lines = [
    "HTTP/1.1 400 Bad Request",
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `content-length: ${body.length}`,
    "connection: close",
  ];
  socket.end(`${lines.join("\r\n")}\r\n\r\n${body.toString()}`);
}

function addStandardHeaders(request: FastifyRequest, reply: FastifyReply): void {
  reply.header("x-request-id", request.id);
  reply.header("x-content-type-options", "nosniff");
}

/**
 * Fastify closes the connection after too large a body, and a client that is still sending then sees a reset instead
 * of the response. A body of bearable announced size is read to its end instead.
 */
function keepReading(request: FastifyRequest, reply: FastifyReply): void {
  const announced = Number(request.headers["content-length"] ?? Number.NaN);
  const isBearable = announced <= limits.REFUSED_BODY_BYTES_MAX;
  // Not otherwise: it would also silence Node, which closes a connection that was not told to go on.
  if (isBearable && reply.hasHeader("connection")) reply.removeHeader("connection");
}
