import { setTimeout } from "node:timers/promises";
import type { FastifyReply, FastifyRequest } from "fastify";
import { sharerOf } from "../base/model/account-places.ts";
import { isUuid } from "../base/model/formats.ts";
import type { ApiKey, Authenticate } from "./api-keys.ts";
import { withDeadline } from "./deadline.ts";
import { ANSWER_WITHIN_MS, RATE_LIMIT_WITHIN_MS } from "./limits.ts";
import type { Caller, Operation } from "./operation.ts";
import { type Principal, refuseCaller } from "./perform.ts";
import { Problem, TemporarilyUnavailable, type TranslateError } from "./problems.ts";
import {
  addressBucket,
  type Bucket,
  type Counting,
  type RateLimitPolicy,
  type RateLimitState,
  type RateLimits,
} from "./rate-limits.ts";
import {
  type BeginRequestTrace,
  contextOf,
  isRefusedRequestId,
  msLeft,
  type RequestContext,
  readTraceparent,
} from "./request-context.ts";
import { refuseMediaType } from "./request-validation.ts";

export type RequestGuardOptions = {
  /** Asked only for staff keys, which name one; a tenant's key belongs to one. */
  readonly accountExists: (accountId: string) => Promise<boolean>;
  readonly policies: RateLimitPolicies;
  readonly translateError: TranslateError;
  /** Absent: nothing is traced. */
  readonly beginTrace?: BeginRequestTrace | undefined;
};

export type RateLimitPolicies = {
  readonly key: RateLimitPolicy;
  /** Of all that acts for no user, and of each user, who so shuts out nobody else; absent: not limited. */
  readonly account?: RateLimitPolicy;
  /** For clients without a key. */
  readonly address: RateLimitPolicy;
  /**
   * Operations with a limit of their own, by account, which counts towards no other. Beside it all users of the account
   * have half as much, and each of them half of that. By their keys.
   */
  readonly operations?: ReadonlyMap<string, RateLimitPolicy>;
};

export type CountedSession = Pick<ApiKey, "id" | "accountId" | "userId">;

export type RequestGuards = ReturnType<typeof createRequestGuards>;

/** The checks before a request's body is read. Each throws the problem that it finds. */
export function createRequestGuards(
  { accountExists, policies, translateError, beginTrace }: RequestGuardOptions,
  authenticate: Authenticate,
  rateLimits: RateLimits,
) {
  /** Spends time of the request's budget. */
  async function waitingFor<T>(request: FastifyRequest, work: () => Promise<T>): Promise<T> {
    const startMs = performance.now();
    try {
      return await work();
    } finally {
      contextOf(request).waitedMs += performance.now() - startMs;
    }
  }

  function startCounting(key: ApiKey | null, request: FastifyRequest, operation: Operation): Counting {
    return rateLimits.startCounting(bucketsOf(key, request, operation), RATE_LIMIT_WITHIN_MS);
  }

  /**
   * Looks the key up and counts the request, both at once where the key is known to have been valid: whose bucket that
   * is never changes. If it is valid no more the request counts by its address, as without one. A batched write looks
   * at its key itself, in its transaction: it is only looked up when the request is refused before that.
   */
  async function identifyAndLimit(
    operation: Operation,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<ApiKey | null> {
    const context = contextOf(request);
    const state = await waitingFor(request, async () => {
      const { find, expected, isRecent } = authenticate(request.headers.authorization);
      const counting = expected === null ? null : startCounting(expected, request, operation);
      if (counting !== null && isRecent && operation.work.kind === "batched_write") {
        context.key = expected;
        context.findKey = find;
        return await counting();
      }
      context.key = await withDeadline(msLeft(context), "authentication", find());
      const isExpected = counting !== null && context.key !== null;
      return await (isExpected ? counting : startCounting(context.key, request, operation))();
    });
    await apply(state, request, reply);
    return context.key;
  }

  async function limit(
    request: FastifyRequest,
    reply: FastifyReply,
    buckets: readonly Bucket[],
    waitMs: number,
  ): Promise<void> {
    const state = await waitingFor(request, () => rateLimits.startCounting(buckets, waitMs)());
    await apply(state, request, reply);
  }

  async function apply(state: RateLimitState, request: FastifyRequest, reply: FastifyReply): Promise<void> {
    reply.headers(state.headers);
    if (state.isAllowed) return;
    contextOf(request).isAccountLimited = state.policy === policies.account;
    // Nobody takes its body, which would lie in memory meanwhile.
    request.raw.resume();
    await setTimeout(rateLimits.holdRefusal());
    throw new Problem("rate_limited", { headers: { "retry-after": String(state.resetSeconds) } });
  }

  function bucketsOf(
    key: ApiKey | null,
    request: FastifyRequest,
    operation: Operation | null = null,
  ): readonly [Bucket, ...Bucket[]] {
    if (key === null) return [{ bucket: addressBucket(request.ip), policy: policies.address }];
    const own = operation === null ? undefined : policies.operations?.get(operation.key);
    if (own === undefined) return withAccount({ bucket: `key:${key.id}`, policy: policies.key }, key);
    // A staff key stands for no account, so it has a budget of its own.
    const of = (whose: string, parts: number): Bucket => {
      const policy = { ...own, requestsMax: Math.ceil(own.requestsMax / parts) };
      return { bucket: `${own.name}:${whose}`, policy };
    };
    const { accountId, userId } = key;
    return userId === null ? [of(accountId ?? key.id, 1)] : [of(userId, 4), of(`${accountId}:users`, 2)];
  }

  function withAccount(
    own: Bucket,
    { accountId, userId }: Pick<CountedSession, "accountId" | "userId">,
  ): readonly [Bucket, ...Bucket[]] {
    if (accountId === null || policies.account === undefined) return [own];
    const bucket = userId === null ? `account:${accountId}` : `user:${userId}`;
    return [own, { bucket, policy: policies.account }];
  }

  async function accountOf(key: ApiKey, request: FastifyRequest): Promise<string> {
    const header = request.headers["x-account-id"];
    const named = typeof header === "string" && header !== "" ? header.toLowerCase() : null;
    if (key.accountId !== null) {
      if (named !== null && named !== key.accountId) {
        const errors = [{ path: "header.x-account-id", message: "The key belongs to another account." }];
        throw new Problem("access_denied", { errors });
      }
      return key.accountId;
    }
    if (named === null) throw new Problem("account_required");
    const waitMs = msLeft(contextOf(request));
    const find = () => withDeadline(waitMs, "the account", accountExists(named));
    if (!isUuid(named) || !(await waitingFor(request, find))) throw new Problem("not_found");
    return named;
  }

  /** For operations: authentication, rate limit, scope and account. */
  async function guardOperation(operation: Operation, request: FastifyRequest, reply: FastifyReply) {
    const key = await identifyAndLimit(operation, request, reply);
    refuseRequestId(request);
    if (operation.work.kind === "retired") throw new Problem("route_retired");
    if (key === null) throw new Problem("unauthorized");
    refuseCaller(operation, callerOf(key));
    const context = contextOf(request);
    if (!operation.isAcrossAccounts) context.accountId = await accountOf(key, request);
    context.sharer = sharerOf(context.accountId ?? key.id, key);
    context.trace = beginTrace?.(operation.key, readTraceparent(request.headers.traceparent)) ?? null;
    const isParsed = operation.effect === "write" && operation.body?.kind !== "stream";
    // 0 also for a chunked body, whose length is not announced.
    if (isParsed) refuseMediaType(request.headers, Number(request.headers["content-length"] ?? 0));
  }

  /** For public pages and unknown URLs: rate limit only. */
  async function guardPublic(request: FastifyRequest, reply: FastifyReply) {
    // Counted by key where there is one, so clients behind one address do not use up each other's limit. The lookup
    // serves only that, so it shares the rate limiter's time budget; without it they are served all the same.
    const context = contextOf(request);
    const { find } = authenticate(request.headers.authorization);
    try {
      const finding = () => withDeadline(RATE_LIMIT_WITHIN_MS, "authentication", find());
      context.key = await waitingFor(request, finding);
    } catch (error) {
      if (!(translateError(error) instanceof TemporarilyUnavailable)) throw error;
    }
    const { key, waitedMs } = context;
    await limit(request, reply, bucketsOf(key, request), RATE_LIMIT_WITHIN_MS - waitedMs);
    refuseRequestId(request);
  }

  /** Looks the key of an admitted request up again. @throws Problem when it is good no more */
  async function confirmKey(request: FastifyRequest): Promise<void> {
    const finding = authenticate(request.headers.authorization).find();
    if ((await withDeadline(ANSWER_WITHIN_MS, "authentication", finding)) === null)
      throw new Problem("unauthorized");
  }

  /** For pages of a session, which the caller has found: rate limit by session, and by its account if it has one. */
  async function countSession(request: FastifyRequest, reply: FastifyReply, session: CountedSession) {
    const own = { bucket: `session:${session.id}`, policy: policies.key };
    await limit(request, reply, withAccount(own, session), RATE_LIMIT_WITHIN_MS);
    refuseRequestId(request);
  }

  /** For health probes: not rate-limited, because they come every second and must not need the database. */
  function guardProbe(request: FastifyRequest, reply: FastifyReply) {
    addRateLimitHeaders(request, reply);
    refuseRequestId(request);
  }

  /** To a response that was not counted. */
  function addRateLimitHeaders(request: FastifyRequest, reply: FastifyReply) {
    if (reply.hasHeader("ratelimit")) return;
    reply.headers(rateLimits.lastKnown(bucketsOf(contextOf(request).key, request)[0]).headers);
  }

  return { guardOperation, guardPublic, confirmKey, countSession, guardProbe, addRateLimitHeaders };
}

function refuseRequestId(request: FastifyRequest): void {
  if (isRefusedRequestId(request.headers)) throw new Problem("invalid_request_id");
}

/** In whose name a request runs that passed `guardOperation`. */
export function authorizedPrincipal({ key, accountId }: RequestContext): Principal {
  if (key === null) throw new Error("The request was not admitted.");
  return { caller: callerOf(key), accountId };
}

function callerOf({ id: keyId, accountId, userId, scopes }: ApiKey): Caller {
  return { keyId, isStaff: accountId === null, userId, scopes };
}
