import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKey } from "./api-keys.ts";
import { ANSWER_WITHIN_MS, REQUEST_ID_CHARS_MAX } from "./limits.ts";

/** What becomes known of one request while it is answered. */
export type RequestContext = {
  /** The operation's key; `page` for what needs no API key, `none` where no route answers. */
  readonly operationKey: string;
  readonly key: ApiKey | null;
  readonly accountId: string | null;
  readonly problemCode: string | null;
  /** Milliseconds spent so far waiting for the functions that were handed in. */
  readonly waitedMs: number;
};

/** One answered request: for metrics, and for one wide log line. It holds no secret. */
export type CompletedRequest = {
  readonly operationKey: string;
  readonly method: string;
  readonly status: number;
  /** Null for a success. */
  readonly problemCode: string | null;
  readonly durationMs: number;
  readonly requestId: string;
  /** The caller's trace; null: none. */
  readonly traceparent: string | null;
  /** Null without a valid key. */
  readonly keyId: string | null;
  /** Null where no account is known. */
  readonly accountId: string | null;
};

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

const contexts = new WeakMap<FastifyRequest, Mutable<RequestContext>>();

export function beginRequest(request: FastifyRequest, operationKey: string): Mutable<RequestContext> {
  const context = { operationKey, key: null, accountId: null, problemCode: null, waitedMs: 0 };
  contexts.set(request, context);
  return context;
}

/** Requests that no hook has seen (an undecodable address) get theirs here. */
export function contextOf(request: FastifyRequest): Mutable<RequestContext> {
  return contexts.get(request) ?? beginRequest(request, "none");
}

/** What is left of the time within which every answer is given. */
export function msLeft(context: RequestContext): number {
  return ANSWER_WITHIN_MS - context.waitedMs;
}

export function completedRequest(request: FastifyRequest, reply: FastifyReply): CompletedRequest {
  const { operationKey, key, accountId, problemCode } = contextOf(request);
  return {
    operationKey,
    method: request.method,
    status: reply.statusCode,
    problemCode,
    durationMs: reply.elapsedTime,
    requestId: request.id,
    traceparent: readTraceparent(request.headers.traceparent),
    keyId: key?.id ?? null,
    accountId,
  };
}

const ACCEPTED = new RegExp(`^[\\x20-\\x7e]{1,${REQUEST_ID_CHARS_MAX}}$`);

/** The id that a request is known by: the caller's where it is acceptable, else a fresh one. */
export function requestIdOf(header: string | undefined, newRequestId: () => string): string {
  return header !== undefined && ACCEPTED.test(header) ? header : newRequestId();
}

/** Whether the caller sent an id that was not taken over. An empty header counts as absent. */
export function isRefusedRequestId(header: string | undefined): boolean {
  return header !== undefined && header !== "" && !ACCEPTED.test(header);
}

/** The header's one form (W3C Trace Context): version, trace id, parent id, flags; ids of zeros say nothing. */
const FORM = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The caller's trace. Null for none, and for one that is malformed: a trace must not be what makes a request fail. */
export function readTraceparent(header: string | readonly string[] | undefined): string | null {
  return typeof header === "string" && FORM.test(header) ? header : null;
}
