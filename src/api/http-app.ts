import { type IncomingMessage, type Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import * as limits from "./limits.ts";
import { invalidRequest } from "./problems.ts";
import { requestIdOf } from "./request-context.ts";

export type HttpAppOptions = {
  /** Nobody's, everybody's, so many proxies', or those addresses' word on the client's address is taken. */
  readonly trustProxy: boolean | number | string;
  readonly newRequestId: () => string;
  /** What is not HTTP, or did not come in time: there is no request to speak of. */
  readonly onClientError: (error: Error, socket: Socket) => void;
  /** A request whose address cannot be decoded or is too long to be one of ours. */
  readonly onUnroutableUrl: (error: Error, request: FastifyRequest, reply: FastifyReply) => Promise<void>;
};

/** Fastify as this API wants it: bounds on everything, bodies as bytes, and none of its own words in an answer. */
export function createHttpApp(options: HttpAppOptions): FastifyInstance {
  const { trustProxy, newRequestId, onClientError, onUnroutableUrl } = options;
  const app: FastifyInstance = Fastify({
    logger: false,
    trustProxy: typeof trustProxy === "number" ? (_address, hop) => hop < trustProxy : trustProxy,
    exposeHeadRoutes: false,
    // Its 503 while it closes is no problem document; what is still asked then is still answered.
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
  // Every body arrives as bytes; the operation's declaration says what becomes of them.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
  // A connection that is about to be closed says so, lest its client send the next request into the void.
  let isClosing = false;
  app.addHook("preClose", (done) => {
    isClosing = true;
    done();
  });
  app.addHook("onSend", (_request, reply, payload, done) => {
    if (isClosing) reply.header("connection", "close");
    done(null, payload);
  });
  // A client that expects what we do not know (Expect: …) is answered like any other, not with a bare 417.
  app.server.on("checkExpectation", (request, response) => app.server.emit("request", request, response));
  app.server.on("connect", (request, socket) => respondToConnect(app.server, request, socket as Socket));
  return app;
}

/**
 * A CONNECT is answered like any request whose address does not exist. Node hands its connection over without a
 * response to write to and without watching it any longer, and would close it without a word.
 */
function respondToConnect(server: Server, request: IncomingMessage, socket: Socket): void {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  response.on("finish", () => socket.destroySoon());
  // A client that goes before its answer is nobody's fault; unheard, the error would end the process.
  socket.on("error", () => socket.destroy());
  server.emit("request", request, response);
}

/** HTTP/1.1 wants a Host on every request; probes still speak 1.0 without one. */
export function refuseMissingHost(request: FastifyRequest): void {
  if (request.headers.host !== undefined || request.raw.httpVersion !== "1.1") return;
  throw invalidRequest("header.host", "Missing.");
}
