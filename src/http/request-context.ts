import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKey } from "./api-keys.ts";
import { ANSWER_WITHIN_MS, REQUEST_ID_CHARS_MAX } from "./limits.ts";

/** What is known of a request while it is handled. */
export type RequestContext = {
  /** The operation's key; `page` for public pages, `console` for its pages, `none` where no route matches. */
  readonly operationKey: string;
  readonly key: ApiKey | null;
  readonly accountId: string | null;
  /** Of the console; null: none. */
  readonly sessionId: string | null;
  readonly problemCode: string | null;
  /** It was refused for what all keys and sessions of its account have asked. */
  readonly isAccountLimited: boolean;
  /** Milliseconds spent so far waiting for injected functions. */
  readonly waitedMs: number;
};

/** A completed request, for metrics and one wide log line. It holds no secret. */
export type CompletedRequest = {
  readonly operationKey: string;
  readonly method: string;
  readonly status: number;
  /** Null for a success. */
  readonly problemCode: string | null;
  /** It was refused for what all keys and sessions of its account have asked. */
  readonly isAccountLimited: boolean;
  readonly durationMs: number;
  readonly requestId: string;
  /** The caller's trace; null: none. */
  readonly traceparent: string | null;
  /** Null without a valid key. */
  readonly keyId: string | null;
  /** Null where no account is known. */
  readonly accountId: string | null;
  /** Of the console; null: none. */
  readonly sessionId: string | null;
};

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

const contexts = new WeakMap<FastifyRequest, Mutable<RequestContext>>();

export function beginRequest(request: FastifyRequest, operationKey: string): Mutable<RequestContext> {
  const context = {
    operationKey,
    key: null,
    accountId: null,
    sessionId: null,
    problemCode: null,
    isAccountLimited: false,
    waitedMs: 0,
  };
  contexts.set(request, context);
  return context;
}

/** Requests that no hook has seen (an undecodable URL) get theirs here. */
export function contextOf(request: FastifyRequest): Mutable<RequestContext> {
  return contexts.get(request) ?? beginRequest(request, "none");
}

/** What is left of the time budget of a request. */
export function msLeft(context: RequestContext): number {
  return ANSWER_WITHIN_MS - context.waitedMs;
}

export function completedRequest(request: FastifyRequest, reply: FastifyReply): CompletedRequest {
  const { operationKey, key, accountId, sessionId, problemCode, isAccountLimited } = contextOf(request);
  return {
    operationKey,
    method: request.method,
    status: reply.statusCode,
    problemCode,
    isAccountLimited,
    durationMs: reply.elapsedTime,
    requestId: request.id,
    traceparent: readTraceparent(request.headers.traceparent),
    keyId: key?.id ?? null,
    accountId,
    sessionId,
  };
}

const ACCEPTED = new RegExp(`^[\\x20-\\x7e]{1,${REQUEST_ID_CHARS_MAX}}$`);

/** A key or a signing secret that got into the wrong header: ids are logged and kept. */
const SECRET = /_(?:test|live)_[\w-]{40}|whsec_/;

/** The request's id: the caller's if it is valid, else a fresh one. */
export function requestIdOf(header: string | undefined, newRequestId: () => string): string {
  return header !== undefined && isAcceptable(header) ? header : newRequestId();
}

/** Whether the caller sent an invalid id. An empty header counts as absent. */
export function isRefusedRequestId(header: string | undefined): boolean {
  return header !== undefined && header !== "" && !isAcceptable(header);
}

function isAcceptable(header: string): boolean {
  return ACCEPTED.test(header) && !SECRET.test(header);
}

/** W3C Trace Context: version, trace id, parent id, flags; all-zero ids are invalid. */
const FORM = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** The caller's trace; null if missing or malformed, because a bad trace must not fail a request. */
export function readTraceparent(header: string | readonly string[] | undefined): string | null {
  return typeof header === "string" && FORM.test(header) ? header : null;
}
