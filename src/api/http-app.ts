import { type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import * as limits from "./limits.ts";
import { invalidRequest } from "./problems.ts";
import { requestIdOf } from "./request-context.ts";

export type HttpAppOptions = {
  /** Whose X-Forwarded-For is trusted: nobody's, everybody's, that of so many proxies, or of those addresses. */
  readonly trustProxy: boolean | number | string;
  readonly newRequestId: () => string;
  /** Malformed HTTP, or a request that did not arrive in time: there is no request object. */
  readonly onClientError: (error: Error, socket: Socket) => void;
  /** A request whose URL cannot be decoded or is too long for any route. */
  readonly onUnroutableUrl: (error: Error, request: FastifyRequest, reply: FastifyReply) => Promise<void>;
};

/** Fastify as this API needs it: limits on everything, bodies as bytes, and no error texts of its own. */
export function createHttpApp(options: HttpAppOptions): FastifyInstance {
  const { trustProxy, newRequestId, onClientError, onUnroutableUrl } = options;
  const app: FastifyInstance = Fastify({
    logger: false,
    trustProxy: typeof trustProxy === "number" ? (_address, hop) => hop < trustProxy : trustProxy,
    exposeHeadRoutes: false,
    // Its 503 while closing is no problem document; late requests are still served.
    return503OnClosing: false,
    routerOptions: { maxParamLength: limits.PATH_PARAM_CHARS_MAX },
    bodyLimit: limits.JSON_BODY_BYTES_MAX,
    requestTimeout: limits.REQUEST_WITHIN_MS,
    keepAliveTimeout: limits.KEEP_ALIVE_MS,
    http: {
      headersTimeout: limits.HEADERS_WITHIN_MS,
      connectionsCheckingInterval: limits.CONNECTIONS_CHECKED_EVERY_MS,
      // Node would answer with a bare 400; `refuseMissingHost` answers with a problem.
      requireHostHeader: false,
    },
    genReqId: (request) => {
      const header = request.headers["x-request-id"];
      return requestIdOf(typeof header === "string" ? header : undefined, newRequestId);
    },
    clientErrorHandler: onClientError,
    frameworkErrors: (error, request, reply) => void onUnroutableUrl(error, request, reply),
  });
  // Every body arrives as bytes; the operation's declaration says how to parse it.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
  // Announced while closing, so clients don't reuse a closing socket.
  let isClosing = false;
  app.addHook("preClose", (done) => {
    isClosing = true;
    done();
  });
  app.addHook("onSend", (_request, reply, payload, done) => {
    if (isClosing) reply.header("connection", "close");
    done(null, payload);
  });
  // An unknown Expect header is ignored, not answered with a bare 417.
  app.server.on("checkExpectation", (request, response) => app.server.emit("request", request, response));
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
  response.assignSocket(socket);
  response.on("finish", () => socket.destroySoon());
  // The client may disconnect first; an unhandled error would end the process.
  socket.on("error", () => socket.destroy());
  server.emit("request", request, response);
}

/** HTTP/1.1 requires Host; probes may still speak 1.0 without one. */
export function refuseMissingHost(request: FastifyRequest): void {
  if (request.headers.host !== undefined || request.raw.httpVersion !== "1.1") return;
  throw invalidRequest("header.host", "Missing.");
}
