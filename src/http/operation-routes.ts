import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { sharerOf } from "../base/model/account-places.ts";
import { matchesEntityTag } from "./bytes.ts";
import { readContentHeaders, type Streaming, sendContent } from "./content-answer.ts";
import { readIdempotencyKey } from "./idempotent-write.ts";
import { JSON_BODY_BYTES_MAX } from "./limits.ts";
import type { Operation } from "./operation.ts";
import { routerPath } from "./operation-registry.ts";
import type { Asked, Perform } from "./perform.ts";
import { createIncomingBody } from "./received-body.ts";
import { beginRequest, contextOf, msLeft, traceparentOf } from "./request-context.ts";
import { authorizedPrincipal, type RequestGuards } from "./request-guards.ts";
import { refuseMediaType } from "./request-validation.ts";
import { type OperationResponse, successHeaders } from "./responses.ts";
import { type OnGone, onDisconnectOf } from "./turns.ts";

/** One route for one operation: authorize, perform, respond. */
export function addOperationRoute(
  app: FastifyInstance,
  operation: Operation,
  guards: RequestGuards,
  perform: Perform,
  streaming: Streaming,
): void {
  const always = successHeaders(operation);
  const isRead = operation.work.kind === "read";
  const streamed = operation.body?.kind === "stream" ? operation.body : null;

  async function guard(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    beginRequest(request, operation.key, true);
    await guards.guardOperation(operation, request, reply);
    // Checked before the body is read: without a key the body is of no use.
    if (!isRead) readIdempotencyKey(request.headers["idempotency-key"]);
    if (streamed !== null) readContentHeaders(streamed, request.headers);
  }

  async function ask(request: FastifyRequest, onGone: OnGone) {
    const principal = authorizedPrincipal(contextOf(request));
    const { params, query, headers } = request;
    const body = request.body as Buffer | undefined;
    refuseMediaType(headers, body?.length ?? 0);
    const asked: Asked = {
      params,
      query,
      body,
      idempotencyKey: isRead ? null : readIdempotencyKey(request.headers["idempotency-key"]),
      requestId: request.id,
      traceparent: traceparentOf(request),
      waitMs: msLeft(contextOf(request)),
      onGone,
      confirmKey: () => guards.confirmKey(request),
    };
    const stream =
      streamed && createIncomingBody(request.raw, readContentHeaders(streamed, headers), streaming);
    const { response, isReplayed } = await perform(principal, stream ? { ...asked, stream } : asked);
    return { response, isReplayed, principal, waitMs: asked.waitMs };
  }

  async function handle(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { response, isReplayed, principal, waitMs } = await ask(
      request,
      onDisconnectOf(request, reply),
    ).finally(() => contextOf(request).bufferedBody?.giveBack());
    reply.headers(always);
    const { content } = response;
    if (content === undefined) return send(request, reply, response, isReplayed);
    return await sendContent(request, reply, {
      ...streaming,
      content,
      sharer: sharerOf(principal.accountId ?? principal.caller.keyId, principal.caller),
      waitMs,
      confirm: async () => {
        await guards.confirmKey(request);
        await ask(request, () => undefined);
      },
    });
  }

  const add = (scope: FastifyInstance) =>
    scope.route({
      method: operation.method === "GET" ? ["GET", "HEAD"] : [operation.method],
      url: routerPath(operation.path),
      bodyLimit: operation.body?.bytesMax ?? JSON_BODY_BYTES_MAX,
      onRequest: guard,
      handler: handle,
    });
  if (streamed === null) add(app);
  else
    app.register(async (scope) => {
      // The body is left where it is.
      scope.removeAllContentTypeParsers();
      scope.addContentTypeParser("*", (_request, _body, done) => done(null));
      add(scope);
    });
}

function send(
  request: FastifyRequest,
  reply: FastifyReply,
  { status, headers, body, etag }: OperationResponse,
  isReplayed: boolean,
): FastifyReply {
  if (isReplayed) reply.header("idempotent-replayed", "true");
  if (etag !== null) {
    reply.header("etag", etag);
    if (matchesEntityTag(request.headers["if-none-match"], etag)) return reply.code(304).send();
  }
  reply.code(status).headers(headers);
  return body === null ? reply.send() : reply.send(body);
}
