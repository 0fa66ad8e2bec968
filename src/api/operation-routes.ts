import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { within } from "./deadline.ts";
import { matchesEntityTag } from "./entity-tags.ts";
import { fingerprintOf, readIdempotencyKey } from "./idempotency.ts";
import type { Write, WriteOnce } from "./idempotent-write.ts";
import { JSON_BODY_BYTES_MAX } from "./limits.ts";
import type { Operation, OperationRequest } from "./operation.ts";
import { routerPath } from "./operation-registry.ts";
import { raisedCodes } from "./problem-catalogue.ts";
import { Problem } from "./problems.ts";
import { beginRequest, contextOf, msLeft, readTraceparent } from "./request-context.ts";
import { admittedCaller, type Gate } from "./request-guards.ts";
import { compileRequestReader, refuseMediaType } from "./request-validation.ts";
import { type Answer, compileAnswer, successHeaders } from "./responses.ts";

type RouteOptions<Tx> = {
  readonly gate: Gate;
  readonly writeOnce: WriteOnce<Tx>;
  /** Check what handlers return against what they declare: for tests. */
  readonly isChecking: boolean;
};

type Checked = OperationRequest<unknown, unknown, unknown, string>;

/** One route for one operation: admit, read the request, do the work, answer. */
export function addOperationRoute<Tx>(
  app: FastifyInstance,
  operation: Operation<Tx>,
  options: RouteOptions<Tx>,
): void {
  const { gate, writeOnce, isChecking } = options;
  const { work, holdsSecret, key: operationKey } = operation;
  const readRequest = compileRequestReader(operation);
  const toAnswer = compileAnswer(operation, isChecking);
  const send = compileSend(operation);

  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    beginRequest(request, operationKey);
    await gate.admit(operation, request, reply);
    // Looked at before the body is: without it there is nothing to be done with the body.
    if (work.kind !== "read") readIdempotencyKey(idempotencyHeader(request));
  }

  async function answerChecking(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    try {
      return await answer(request, reply);
    } catch (error) {
      throw undeclared(operation, error) ?? error;
    }
  }

  async function answer(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const checked = checkedRequest(request);
    const waitMs = msLeft(contextOf(request));
    switch (work.kind) {
      case "read": {
        const result = await within(waitMs, "the read", work.handle(checked));
        return send(request, reply, toAnswer(result), false);
      }
      case "write": {
        const perform = async (tx: Tx): Promise<Answer> => toAnswer(await work.handle(checked, tx));
        const written = await writeOnce.inTransaction(writeOf(request, checked), waitMs, perform);
        return send(request, reply, written.answer, written.isReplayed);
      }
      case "call_out": {
        const perform = async (): Promise<Answer> => toAnswer(await work.handle(checked));
        const bounds = { waitMs, deadlineMs: work.deadlineMs };
        const written = await writeOnce.aroundCall(writeOf(request, checked), bounds, perform);
        return send(request, reply, written.answer, written.isReplayed);
      }
      case "retired":
        throw new Problem("route_retired");
      default:
        throw new Error(`Unknown kind of work: ${JSON.stringify(work satisfies never)}`);
    }
  }

  function checkedRequest(request: FastifyRequest): Checked {
    const { key, accountId } = admittedCaller(contextOf(request));
    const { params, query, headers } = request;
    const body = request.body as Buffer | undefined;
    refuseMediaType(headers, body?.length ?? 0);
    return {
      ...readRequest({ params, query, body }),
      accountId,
      caller: { keyId: key.id, isStaff: key.accountId === null },
      requestId: request.id,
      traceparent: readTraceparent(request.headers.traceparent),
      problem: (code, errors = []) => new Problem(code, { errors }),
    };
  }

  function writeOf(request: FastifyRequest, checked: Checked): Write {
    const { params, query, body, accountId, caller, requestId } = checked;
    const idempotencyKey = readIdempotencyKey(idempotencyHeader(request));
    const fingerprint = fingerprintOf({ operationKey, params, query, body });
    const claim = { accountId, keyId: caller.keyId, idempotencyKey, operationKey, fingerprint };
    return { claim, holdsSecret, caller, requestId, params, body };
  }

  app.route({
    method: operation.method === "GET" ? ["GET", "HEAD"] : [operation.method],
    url: routerPath(operation.path),
    bodyLimit: operation.body?.bytesMax ?? JSON_BODY_BYTES_MAX,
    onRequest: admit,
    handler: isChecking ? answerChecking : answer,
  });
}

/** A problem that the operation's document does not know is our fault. Null for any other error. */
function undeclared<Tx>(operation: Operation<Tx>, error: unknown): Error | null {
  if (!(error instanceof Problem) || raisedCodes(operation).includes(error.code)) return null;
  return new Error(`Operation ${operation.key} does not declare ${error.code}.`, { cause: error });
}

function idempotencyHeader(request: FastifyRequest): string | undefined {
  const header = request.headers["idempotency-key"];
  return typeof header === "string" ? header : undefined;
}

type Send = (
  request: FastifyRequest,
  reply: FastifyReply,
  answer: Answer,
  isReplayed: boolean,
) => FastifyReply;

function compileSend<Tx>(operation: Operation<Tx>): Send {
  const always = successHeaders(operation);
  return (request, reply, answer, isReplayed) => {
    reply.headers(always);
    if (isReplayed) reply.header("idempotent-replayed", "true");
    if (answer.etag !== null) {
      reply.header("etag", answer.etag);
      const ifNoneMatch = request.headers["if-none-match"];
      if (ifNoneMatch !== undefined && matchesEntityTag(ifNoneMatch, answer.etag)) {
        return reply.code(304).send();
      }
    }
    reply.code(answer.status).headers(answer.headers);
    return answer.body === null ? reply.send() : reply.send(answer.body);
  };
}
