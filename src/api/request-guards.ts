import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKey, Authenticate } from "./api-keys.ts";
import { withDeadline } from "./deadline.ts";
import { RATE_LIMIT_WITHIN_MS } from "./limits.ts";
import type { Operation } from "./operation.ts";
import { type Principal, refuseScope } from "./perform.ts";
import { Problem, TemporarilyUnavailable } from "./problems.ts";
import type { RateLimitPolicy, RateLimitState, RateLimits } from "./rate-limits.ts";
import { addressBucket } from "./rate-limits.ts";
import { contextOf, isRefusedRequestId, msLeft, type RequestContext } from "./request-context.ts";
import { refuseMediaType } from "./request-validation.ts";

/** Whether the account exists. Asked only for staff keys, which name one; a tenant's key belongs to one. */
export type AccountExists = (accountId: string) => Promise<boolean>;

export type RequestGuardOptions = {
  readonly authenticate: Authenticate;
  readonly accountExists: AccountExists;
  readonly rateLimits: RateLimits;
  readonly policies: RateLimitPolicies;
};

export type RateLimitPolicies = {
  readonly key: RateLimitPolicy;
  /** For clients without a key. */
  readonly address: RateLimitPolicy;
  /** Operations with a limit of their own, by account, which counts towards no other. By their keys. */
  readonly operations?: ReadonlyMap<string, RateLimitPolicy>;
};

/** The checks before a request's body is read. Each throws the problem that it finds. */
export type RequestGuards = {
  /** For operations: authentication, rate limit, scope and account. */
  guardOperation(operation: Operation, request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** For public pages and unknown URLs: rate limit only. */
  guardPublic(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** For pages of a session, which the caller has found: rate limit by session. */
  countSession(request: FastifyRequest, reply: FastifyReply, sessionId: string): Promise<void>;
  /** For health probes: not rate-limited, because they come every second and must not need the database. */
  guardProbe(request: FastifyRequest, reply: FastifyReply): void;
  /** Adds the rate-limit headers to a response that was not counted. */
  addRateLimitHeaders(request: FastifyRequest, reply: FastifyReply): void;
};

export function createRequestGuards(options: RequestGuardOptions): RequestGuards {
  const { authenticate, accountExists, rateLimits, policies } = options;

  async function identify(request: FastifyRequest, waitMs: number): Promise<ApiKey | null> {
    const { authorization } = request.headers;
    if (authorization === undefined) return null;
    const context = contextOf(request);
    const startMs = performance.now();
    try {
      context.key = await withDeadline(waitMs, "authentication", authenticate(authorization));
    } finally {
      context.waitedMs += performance.now() - startMs;
    }
    return context.key;
  }

  /** Leaves the key unknown if it cannot be looked up: public pages are served all the same. */
  async function identifyIfPossible(request: FastifyRequest, waitMs: number): Promise<void> {
    try {
      await identify(request, waitMs);
    } catch (error) {
      if (!(error instanceof TemporarilyUnavailable)) throw error;
    }
  }

  async function limit(
    request: FastifyRequest,
    reply: FastifyReply,
    waitMs: number,
    operation: Operation | null = null,
  ): Promise<void> {
    const context = contextOf(request);
    const startMs = performance.now();
    const { bucket, policy } = bucketOf(context.key, request, operation);
    const state = await rateLimits.count(bucket, policy, waitMs);
    context.waitedMs += performance.now() - startMs;
    writeHeaders(reply, state);
    if (!state.isAllowed) throw limited(state);
  }

  function bucketOf(key: ApiKey | null, request: FastifyRequest, operation: Operation | null = null) {
    if (key === null) return { bucket: addressBucket(request.ip), policy: policies.address };
    const own = operation === null ? undefined : policies.operations?.get(operation.key);
    if (own === undefined) return { bucket: `key:${key.id}`, policy: policies.key };
    // A staff key stands for no account, so it has a budget of its own.
    return { bucket: `${own.name}:${key.accountId ?? key.id}`, policy: own };
  }

  async function accountOf(key: ApiKey, request: FastifyRequest): Promise<string> {
    const header = request.headers["x-account-id"];
    const named = typeof header === "string" && header !== "" ? header.toLowerCase() : null;
    if (key.accountId !== null) {
      if (named !== null && named !== key.accountId) throw new Problem("access_denied");
      return key.accountId;
    }
    if (named === null) throw new Problem("account_required");
    const context = contextOf(request);
    const startMs = performance.now();
    const exists =
      UUID.test(named) && (await withDeadline(msLeft(context), "the account", accountExists(named)));
    context.waitedMs += performance.now() - startMs;
    if (!exists) throw new Problem("not_found");
    return named;
  }

  function addRateLimitHeaders(request: FastifyRequest, reply: FastifyReply): void {
    if (reply.hasHeader("ratelimit")) return;
    const { bucket, policy } = bucketOf(contextOf(request).key, request);
    writeHeaders(reply, rateLimits.lastKnown(bucket, policy));
  }

  return {
    guardOperation: async (operation, request, reply) => {
      const key = await identify(request, msLeft(contextOf(request)));
      await limit(request, reply, RATE_LIMIT_WITHIN_MS, operation);
      refuseRequestId(request);
      if (operation.work.kind === "retired") throw new Problem("route_retired");
      if (key === null) throw new Problem("unauthorized");
      refuseScope(operation, key.scopes);
      contextOf(request).accountId = await accountOf(key, request);
      if (operation.effect === "write") refuseMediaType(request.headers, announcedBytes(request));
    },
    guardPublic: async (request, reply) => {
      // Counted by key where there is one, so clients behind one address do not use up each other's limit. The
      // lookup serves only that, so it shares the rate limiter's time budget.
      await identifyIfPossible(request, RATE_LIMIT_WITHIN_MS);
      await limit(request, reply, RATE_LIMIT_WITHIN_MS - contextOf(request).waitedMs);
      refuseRequestId(request);
    },
    countSession: async (request, reply, sessionId) => {
      const context = contextOf(request);
      const startMs = performance.now();
      const state = await rateLimits.count(`session:${sessionId}`, policies.key, RATE_LIMIT_WITHIN_MS);
      context.waitedMs += performance.now() - startMs;
      writeHeaders(reply, state);
      if (!state.isAllowed) throw limited(state);
      refuseRequestId(request);
    },
    guardProbe: (request, reply) => {
      addRateLimitHeaders(request, reply);
      refuseRequestId(request);
    },
    addRateLimitHeaders,
  };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

function limited({ resetSeconds }: RateLimitState): Problem {
  return new Problem("rate_limited", { headers: { "retry-after": String(resetSeconds) } });
}

function writeHeaders(reply: FastifyReply, { headers }: RateLimitState): void {
  reply.header("ratelimit", headers.ratelimit);
  reply.header("ratelimit-policy", headers["ratelimit-policy"]);
}

function refuseRequestId(request: FastifyRequest): void {
  const header = request.headers["x-request-id"];
  if (isRefusedRequestId(typeof header === "string" ? header : undefined)) {
    throw new Problem("invalid_request_id");
  }
}

/** 0 also for a chunked body, whose length is not announced. */
function announcedBytes(request: FastifyRequest): number {
  return Number(request.headers["content-length"] ?? 0);
}

/** In whose name a request runs that passed `guardOperation`. */
export function authorizedPrincipal({ key, accountId }: RequestContext): Principal {
  if (key === null || accountId === null) throw new Error("The request was not admitted.");
  const { id: keyId, scopes } = key;
  return { caller: { keyId, isStaff: key.accountId === null, scopes }, accountId };
}
