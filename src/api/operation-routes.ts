import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AccountNews } from "./account-news.ts";
import { withDeadline } from "./deadline.ts";
import { matchesEntityTag } from "./entity-tags.ts";
import { type HeldRead, holdRead } from "./held-read.ts";
import { fingerprintOf, readIdempotencyKey } from "./idempotency.ts";
import type { IdempotentWrites, Write } from "./idempotent-write.ts";
import { BODY_BYTES_PER_PLACE, BODY_PLACES_MAX, JSON_BODY_BYTES_MAX } from "./limits.ts";
import type {
  ErasedResult,
  ErasedWait,
  Operation,
  OperationRequest,
  Transaction,
  Work,
} from "./operation.ts";
import { routerPath } from "./operation-registry.ts";
import { raisedCodes } from "./problem-catalogue.ts";
import { Problem } from "./problems.ts";
import { beginRequest, contextOf, msLeft, readTraceparent } from "./request-context.ts";
import { authorizedCaller, type RequestGuards } from "./request-guards.ts";
import { compileRequestValidator, refuseMediaType } from "./request-validation.ts";
import { compileResponse, type OperationResponse, successHeaders } from "./responses.ts";
import type { WorkPlaces } from "./work-places.ts";
import type { BatchedWrite, PerformEach, WriteBatches } from "./write-batches.ts";

type RouteOptions = {
  readonly guards: RequestGuards;
  readonly idempotentWrites: IdempotentWrites;
  readonly createBatches: (performEach: PerformEach) => WriteBatches<unknown>;
  readonly places: WorkPlaces;
  /** Tells reads that wait. */
  readonly news: AccountNews;
  /** Check what handlers return against what they declare; for tests. */
  readonly isChecking: boolean;
};

type Valid = OperationRequest<unknown, unknown, unknown, string>;

/** One route for one operation: authorize, validate, do the work, respond. */
export function addOperationRoute(app: FastifyInstance, operation: Operation, options: RouteOptions): void {
  const { guards, idempotentWrites, createBatches, places, news, isChecking } = options;
  const { work, holdsSecret, key: operationKey } = operation;
  const validate = compileRequestValidator(operation);
  const toResponse = compileResponse(operation, isChecking);
  const send = compileSend(operation);
  const batches = work.kind === "batched_write" ? createBatches(respondEach(work)) : null;

  async function guard(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    beginRequest(request, operationKey);
    await guards.guardOperation(operation, request, reply);
    // Checked before the body is read: without a key the body is of no use.
    if (work.kind !== "read") readIdempotencyKey(idempotencyHeader(request));
  }

  async function handleChecked(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    try {
      return await handle(request, reply);
    } catch (error) {
      throw undeclared(operation, error) ?? error;
    }
  }

  async function handle(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const valid = validRequest(request);
    const waitMs = msLeft(contextOf(request));
    switch (work.kind) {
      case "read": {
        const look = (withinMs: number) => {
          const reading = places.run(valid.accountId, 1, withinMs, () => work.handle(valid));
          return withDeadline(withinMs, "the read", reading);
        };
        const result =
          work.waits === null
            ? await look(waitMs)
            : await holdRead(heldRead(work.waits, valid, look, reply), waitMs);
        return send(request, reply, toResponse(result), false);
      }
      case "write": {
        const perform = async (tx: Transaction) => toResponse(await work.handle(valid, tx));
        const written = await idempotentWrites.inTransaction(writeOf(request, valid), waitMs, perform);
        return send(request, reply, written.response, written.isReplayed);
      }
      case "batched_write": {
        const write = () => batches!.add(batchedWriteOf(work, request, valid), waitMs);
        const size = placesFor(request.body as Buffer | undefined);
        // A large one is not even read before its account's turn: that alone holds up everybody.
        const writing = size === 1 ? write() : places.run(valid.accountId, size, waitMs, write);
        const written = await withDeadline(waitMs, "the transaction", writing);
        return send(request, reply, written.response, written.isReplayed);
      }
      case "call_out": {
        const perform = async () => toResponse(await work.handle(valid));
        const bounds = { waitMs, deadlineMs: work.deadlineMs };
        const written = await idempotentWrites.aroundCall(writeOf(request, valid), bounds, perform);
        return send(request, reply, written.response, written.isReplayed);
      }
      case "retired":
        throw new Problem("route_retired");
      default:
        throw new Error(`Unknown kind of work: ${JSON.stringify(work satisfies never)}`);
    }
  }

  function heldRead(
    waits: ErasedWait,
    valid: Valid,
    look: (withinMs: number) => Promise<ErasedResult>,
    reply: FastifyReply,
  ): HeldRead {
    return {
      waits,
      news,
      accountId: valid.accountId,
      waitMs: waits.waitMs(valid),
      look,
      onGone: (end) => reply.raw.once("close", end),
    };
  }

  function respondEach({ handleEach }: Extract<Work, { kind: "batched_write" }>): PerformEach {
    return async (items, tx) => {
      const results = await handleEach(items, tx);
      return results.map((result) => (result instanceof Problem ? result : toResponse(result)));
    };
  }

  function validRequest(request: FastifyRequest): Valid {
    const { key, accountId } = authorizedCaller(contextOf(request));
    const { params, query, headers } = request;
    const body = request.body as Buffer | undefined;
    refuseMediaType(headers, body?.length ?? 0);
    return {
      ...validate({ params, query, body }),
      accountId,
      caller: { keyId: key.id, isStaff: key.accountId === null },
      requestId: request.id,
      traceparent: readTraceparent(request.headers.traceparent),
      problem: (code, errors = []) => new Problem(code, { errors }),
    };
  }

  function writeOf(request: FastifyRequest, valid: Valid): Write {
    const { params, query, body, accountId, caller, requestId } = valid;
    const idempotencyKey = readIdempotencyKey(idempotencyHeader(request));
    const fingerprint = fingerprintOf({ operationKey, params, query, body });
    const claim = { accountId, keyId: caller.keyId, idempotencyKey, operationKey, fingerprint };
    const places = placesFor(request.body as Buffer | undefined);
    return { claim, places, holdsSecret, caller, requestId, params, body };
  }

  function batchedWriteOf(
    { prepare }: Extract<Work, { kind: "batched_write" }>,
    request: FastifyRequest,
    valid: Valid,
  ): BatchedWrite<unknown> {
    const bytes = Buffer.isBuffer(valid.body) ? valid.body.length : 0;
    const write = writeOf(request, valid);
    try {
      return { ...write, ...prepare(valid), bytes };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return { ...write, item: error, name: null, bytes };
    }
  }

  app.route({
    method: operation.method === "GET" ? ["GET", "HEAD"] : [operation.method],
    url: routerPath(operation.path),
    bodyLimit: operation.body?.bytesMax ?? JSON_BODY_BYTES_MAX,
    onRequest: guard,
    handler: isChecking ? handleChecked : handle,
  });
}

function placesFor(body: Buffer | undefined): number {
  return Math.min(BODY_PLACES_MAX, 1 + Math.floor((body?.length ?? 0) / BODY_BYTES_PER_PLACE));
}

/** A problem that the operation does not declare is a bug of ours. Null for any other error. */
function undeclared(operation: Operation, error: unknown): Error | null {
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
  response: OperationResponse,
  isReplayed: boolean,
) => FastifyReply;

function compileSend(operation: Operation): Send {
  const always = successHeaders(operation);
  return (request, reply, response, isReplayed) => {
    reply.headers(always);
    if (isReplayed) reply.header("idempotent-replayed", "true");
    if (response.etag !== null) {
      reply.header("etag", response.etag);
      const ifNoneMatch = request.headers["if-none-match"];
      if (ifNoneMatch !== undefined && matchesEntityTag(ifNoneMatch, response.etag)) {
        return reply.code(304).send();
      }
    }
    reply.code(response.status).headers(response.headers);
    return response.body === null ? reply.send() : reply.send(response.body);
  };
}
