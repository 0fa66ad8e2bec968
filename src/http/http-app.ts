import { type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { HoldAnswer } from "./buffered-bodies.ts";
import { inSlices } from "./bytes.ts";
import {
  answerExpectations,
  type ConnectionObserver,
  createLimitedServer,
  type IsTrustedProxy,
} from "./connections.ts";
import * as limits from "./limits.ts";
import { invalidRequest } from "./problems.ts";
import { requestIdOf } from "./request-context.ts";

export type HttpAppOptions = ConnectionObserver & {
  /** Whose X-Forwarded-For is believed; null: nobody's. */
  readonly isTrustedProxy: IsTrustedProxy | null;
  /** Absent: those of limits.ts. */
  readonly connectionLimits?: limits.ConnectionLimits | undefined;
  /** For a request without an id. */
  readonly newId: () => string;
  readonly readBody: (request: FastifyRequest, payload: IncomingMessage) => Promise<Buffer>;
  readonly holdAnswer: HoldAnswer;
  /** Malformed HTTP, or a request that did not arrive in time: there is no request object. */
  readonly onClientError: (error: Error & { readonly code?: string }, socket: Socket) => void;
  /** A request whose URL cannot be decoded or is too long for any route. */
  readonly onUnroutableUrl: (error: Error, request: FastifyRequest, reply: FastifyReply) => Promise<void>;
};

/** Fastify as this API needs it: limits on everything, bodies as bytes, and no error texts of its own. */
export function createHttpApp(options: HttpAppOptions): FastifyInstance {
  const { isTrustedProxy, newId, readBody, holdAnswer, onClientError, onUnroutableUrl } = options;
  const app: FastifyInstance = Fastify({
    logger: false,
    trustProxy: isTrustedProxy ?? false,
    exposeHeadRoutes: false,
    // Its 503 while closing is no problem document; late requests are still served.
    return503OnClosing: false,
    routerOptions: { maxParamLength: limits.PATH_PARAM_CHARS_MAX },
    bodyLimit: limits.JSON_BODY_BYTES_MAX,
    serverFactory: (handle) => {
      const server = {
        ...options,
        isTrustedProxy: isTrustedProxy ?? (() => false),
        connectionLimits: options.connectionLimits ?? limits.CONNECTION_LIMITS,
        http: {
          headersTimeout: limits.HEADERS_WITHIN_MS,
          // Node would end uploads, too; see createLimitedServer.
          requestTimeout: 0,
          keepAliveTimeout: limits.KEEP_ALIVE_MS,
          connectionsCheckingInterval: limits.CONNECTIONS_CHECKED_EVERY_MS,
          // Node would answer with a bare 400; `refuseAmbiguousHeaders` answers with a problem.
          requireHostHeader: false,
        },
      };
      return createLimitedServer(server, (request, response) => {
        if (isTrustedProxy !== null) removeForwardedPorts(request);
        handle(request, response);
      });
    },
    genReqId: ({ headers }) => requestIdOf(headers, newId),
    clientErrorHandler: (error, socket) => {
      if (error.code === "ECONNRESET" || !socket.writable) socket.destroy();
      else onClientError(error, socket);
    },
    frameworkErrors: (error, request, reply) => void onUnroutableUrl(error, request, reply),
  });
  // Every body arrives as bytes; the operation's declaration says how to parse it.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", readBody);
  // Announced while closing, so clients don't reuse a closing socket.
  let isClosing = false;
  app.addHook("preClose", (done) => {
    isClosing = true;
    done();
  });
  app.addHook("onSend", async (request, reply, payload) => {
    if (isClosing) reply.header("connection", "close");
    if (!Buffer.isBuffer(payload) || payload.length <= limits.UNCOUNTED_ANSWER_BYTES_MAX) return payload;
    const place = request.method === "HEAD" ? null : holdAnswer(reply, payload.length);
    if (payload.length <= limits.UNSLICED_BODY_BYTES_MAX) return payload;
    reply.header("content-length", payload.length);
    return place && inSlices(payload, place.moved);
  });
  answerExpectations(app.server);
  app.server.on("connect", (request, socket) => respondToConnect(app.server, request, socket as Socket));
  return app;
}

/**
 * Treats CONNECT like any request for an unknown URL. Node hands over the raw socket without a response object and
 * would close it silently.
 */
function respondToConnect(server: Server, request: IncomingMessage, socket: Socket): void {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  try {
    response.assignSocket(socket);
  } catch {
    // The answer to an earlier request is under way. No client sends both at a time.
    return void socket.destroy();
  }
  response.on("finish", () => socket.destroySoon());
  // The client may disconnect first; an unhandled error would end the process.
  socket.on("error", () => socket.destroy());
  server.emit("request", request, response);
}

/** Some proxies write the client's port, too (`ip:port`, `[ipv6]:port`): each of its connections would be a client. */
function removeForwardedPorts({ headers }: IncomingMessage): void {
  const forwarded = headers["x-forwarded-for"];
  if (typeof forwarded !== "string") return;
  headers["x-forwarded-for"] = forwarded
    .split(",")
    .map((one) => {
      const [, ipv6, ipv4] = /^\s*(?:\[([^\]]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+)\s*$/.exec(one) ?? [];
      return ipv6 ?? ipv4 ?? one;
    })
    .join(",");
}

/** Node keeps the first of several; whoever is in front of us may go by another. */
const SINGLE_HEADERS: ReadonlySet<string> = new Set(["host", "authorization", "content-type"]);

/** Of each of those at most one. HTTP/1.1 requires a Host; probes may still speak 1.0 without any. */
export function refuseAmbiguousHeaders(request: FastifyRequest): void {
  const { rawHeaders, httpVersion } = request.raw;
  const seen = new Set<string>();
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!.toLowerCase();
    if (!SINGLE_HEADERS.has(name)) continue;
    if (seen.has(name)) throw invalidRequest(`header.${name}`, "There is more than one.");
    seen.add(name);
  }
  if (!seen.has("host") && httpVersion === "1.1") throw invalidRequest("header.host", "Missing.");
}
