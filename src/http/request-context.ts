import type { IncomingHttpHeaders } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Place } from "../base/model/account-places.ts";
import type { ApiKey } from "./api-keys.ts";
import { ANSWER_WITHIN_MS, REQUEST_ID_CHARS_MAX } from "./limits.ts";

/** A request's own place in its trace. */
export type RequestTrace = {
  readonly traceparent: string;
  readonly end: (request: CompletedRequest) => void;
};

/** Of a request that is let in, with its caller's trace. Null: that goes on as it came. */
export type BeginRequestTrace = (operationKey: string, traceparent: string | null) => RequestTrace | null;

/** What is known of a request while it is handled. */
export class RequestContext {
  /** The operation's key; `page` for public pages, `console` for its pages, `none` where no route matches. */
  readonly operationKey: string;
  /** It works with its body, which counts as in memory until it gives `bufferedBody` back. */
  readonly worksWithBody: boolean;
  bufferedBody: Place | null = null;
  key: ApiKey | null = null;
  /** `key` was valid not long ago: whoever refuses the request looks it up first. Null: it has been. */
  findKey: (() => Promise<ApiKey | null>) | null = null;
  /** Null where no account is known. */
  accountId: string | null = null;
  /** See `sharerOf`: whose memory it takes; null where no account is known. */
  sharer: string | null = null;
  /** Of the console; null: none. */
  sessionId: string | null = null;
  /** Null: the caller's trace goes on as it came, if there is one. */
  trace: RequestTrace | null = null;
  /** Null for a success. */
  problemCode: string | null = null;
  /** It was refused for what all keys and sessions of its account have asked. */
  isAccountLimited = false;
  /** Milliseconds spent so far waiting for injected functions. */
  waitedMs = 0;

  constructor(operationKey: string, worksWithBody: boolean) {
    this.operationKey = operationKey;
    this.worksWithBody = worksWithBody;
  }
}

const contexts = new WeakMap<FastifyRequest, RequestContext>();

export function beginRequest(
  request: FastifyRequest,
  operationKey: string,
  worksWithBody = false,
): RequestContext {
  const context = new RequestContext(operationKey, worksWithBody);
  contexts.set(request, context);
  return context;
}

/** Requests that no hook has seen (an undecodable URL) get theirs here. */
export function contextOf(request: FastifyRequest): RequestContext {
  return contexts.get(request) ?? beginRequest(request, "none");
}

/** What is left of the time budget of a request. */
export function msLeft(context: RequestContext): number {
  return ANSWER_WITHIN_MS - context.waitedMs;
}

/** A completed request, for metrics and one wide log line. It holds no secret. */
export type CompletedRequest = Readonly<ReturnType<typeof completedRequest>>;

export function completedRequest(request: FastifyRequest, reply: FastifyReply) {
  const { operationKey, key, accountId, sessionId, problemCode, isAccountLimited } = contextOf(request);
  return {
    operationKey,
    method: request.method,
    status: reply.statusCode,
    problemCode,
    isAccountLimited,
    durationMs: reply.elapsedTime,
    requestId: request.id,
    /** Null: it has none. */
    traceparent: traceparentOf(request),
    /** Null without a valid key. */
    keyId: key?.id ?? null,
    accountId,
    sessionId,
  };
}

const ACCEPTED = new RegExp(`^[\\x20-\\x7e]{1,${REQUEST_ID_CHARS_MAX}}$`);

/** A key or a signing secret that got into the wrong header: ids are logged and kept. */
const SECRET = /_(?:test|live)_[\w-]{40}|whsec_/;

/** The request's id: the caller's if it is valid, else a fresh one. */
export function requestIdOf({ "x-request-id": header }: IncomingHttpHeaders, newId: () => string): string {
  return typeof header === "string" && isAcceptable(header) ? header : newId();
}

/** Whether the caller sent an invalid id. An empty header counts as absent. */
export function isRefusedRequestId({ "x-request-id": header }: IncomingHttpHeaders): boolean {
  return typeof header === "string" && header !== "" && !isAcceptable(header);
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

/** The trace that goes on with what the request does: its own place in it, else the caller's; null: none. */
export function traceparentOf(request: FastifyRequest): string | null {
  return contextOf(request).trace?.traceparent ?? readTraceparent(request.headers.traceparent);
}
