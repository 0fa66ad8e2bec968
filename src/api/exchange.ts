import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKey } from "./api-keys.ts";
import { ANSWER_WITHIN_MS } from "./limits.ts";
import { readTraceparent } from "./traceparent.ts";

/** What becomes known of one request while it is answered. */
export type Exchange = {
  /** The operation's key; `page` for what needs no API key, `none` where no route answers. */
  readonly operationKey: string;
  readonly key: ApiKey | null;
  readonly accountId: string | null;
  readonly problemCode: string | null;
  /** Milliseconds spent so far waiting for the functions that were handed in. */
  readonly waitedMs: number;
};

/** One answered request: for metrics, and for one wide log line. It holds no secret. */
export type AnsweredRequest = {
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

const exchanges = new WeakMap<FastifyRequest, Mutable<Exchange>>();

export function beginExchange(request: FastifyRequest, operationKey: string): Mutable<Exchange> {
  const exchange = { operationKey, key: null, accountId: null, problemCode: null, waitedMs: 0 };
  exchanges.set(request, exchange);
  return exchange;
}

/** Requests that no hook has seen (an undecodable address) get theirs here. */
export function exchangeOf(request: FastifyRequest): Mutable<Exchange> {
  return exchanges.get(request) ?? beginExchange(request, "none");
}

/** What is left of the time within which every answer is given. */
export function msLeft(exchange: Exchange): number {
  return ANSWER_WITHIN_MS - exchange.waitedMs;
}

export function answeredRequest(request: FastifyRequest, reply: FastifyReply): AnsweredRequest {
  const { operationKey, key, accountId, problemCode } = exchangeOf(request);
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
