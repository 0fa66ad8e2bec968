import { randomUUID } from "node:crypto";
import type { FastifyInstance } from "fastify";
import type { ClientBase, Pool } from "pg";
import type { Logger } from "pino";
import { accountExists } from "../accounts/accounts-sql.ts";
import { findApiKey, noteApiKeyUse } from "../accounts/api-keys-sql.ts";
import { auditedOperations } from "../accounts/audit-api.ts";
import type { ApiPart } from "../api/operations.ts";
import type { Config } from "../base/config/config.ts";
import { AUDIT_ROW_BYTES, writeAuditEntry } from "../base/database/audit-log.ts";
import { coalesceByTurn } from "../base/database/coalesce.ts";
import * as idempotency from "../base/database/idempotency.ts";
import { type ReadLog, readingFrom } from "../base/database/log-reader.ts";
import { shareOf } from "../base/database/pools.ts";
import { createRequestCounter } from "../base/database/rate-limits.ts";
import { requireSecretsKey } from "../base/database/sealing.ts";
import { inPipelinedTransaction, inTransaction } from "../base/database/transaction.ts";
import { type ApiMetrics, createApiMetrics } from "../base/metrics/api-metrics.ts";
import { createMetricsRegistry } from "../base/metrics/registry.ts";
import { plainAddress } from "../base/model/addresses.ts";
import { actorOf } from "../base/model/audit.ts";
import type { StoredResponse } from "../base/model/idempotency.ts";
import { NO_SPACES } from "../base/model/reader.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { createConsole } from "../console/console.ts";
import { mustProve } from "../delivery/receiver-turns.ts";
import { ATTEMPTS_MAX } from "../delivery/schedule/retry-schedule.ts";
import { createAddressSet } from "../egress/rules/address.ts";
import { apiKeyPrefix, type FindApiKey } from "../http/api-keys.ts";
import type { IsTrustedProxy } from "../http/connections.ts";
import type { IdempotencyStore, RecordWrite } from "../http/idempotent-write.ts";
import type { AddRoutes } from "../http/kernel.ts";
import type { Operation } from "../http/operation.ts";
import { TemporarilyUnavailable } from "../http/problems.ts";
import type { CompletedRequest } from "../http/request-context.ts";
import { type ApiOptions, createApi } from "../http/server.ts";
import { codeGroups } from "../log/error-codes-api.ts";
import { confirmationsOf } from "../notices/mail-sending.ts";
import { aboutWebhooks, receiversGuide } from "../receivers/guide.ts";
import { createPackageRoutes } from "../receivers/packages.ts";
import { CHECK_POLICY } from "../receivers/receivers-api.ts";
import { apiPartsOf, eraseFromRuns, guardPublishing, seesRun } from "./areas.ts";
import { createSessionStore } from "./console-sessions.ts";
import { keyClassOf } from "./create-api-key.ts";
import { createTranslateError, throttled } from "./database-errors.ts";
import { createReceiverChecking, targetRulesOf } from "./egress.ts";
import { createReadinessCheck } from "./monitoring.ts";
import { createApiInfo, createSealpostRegistry, type Dependencies } from "./operations.ts";
import { createReadAssertion } from "./staff-assertions.ts";

const USE_RECORDED_EVERY_MS = 60_000;

/**
 * Looks up keys and records when they were last used; requests do not wait for that, and it may get lost. Requests with
 * one key in one turn of the event loop share a lookup.
 */
export function createFindApiKey(pool: Pool, now: () => number): FindApiKey {
  const find = coalesceByTurn((digest) => findApiKey(pool, Buffer.from(digest, "latin1")));
  // Where many keys are used again at once, they do not take all connections for it.
  const noting = shareOf(pool, 1);
  return async (digest) => {
    const { answer: key, place } = await find(digest.toString("latin1"));
    if (place === 1 && key !== null && now() - (key.lastUsedAt?.getTime() ?? 0) > USE_RECORDED_EVERY_MS) {
      noteApiKeyUse(noting, key.id).catch(() => undefined);
    }
    return key;
  };
}

/** Claims and stored responses, in the same transactions as the effects of the requests. */
function createIdempotencyStore(pool: Pool, secretsKey: SecretsKey): IdempotencyStore {
  /** In the transaction of what the secrets are of, which it undoes. */
  const requireKeyFor = async (tx: ClientBase, { holdsSecret }: StoredResponse) => {
    if (holdsSecret) await requireSecretsKey(tx, secretsKey);
  };
  return {
    transaction: (work) => inTransaction(pool, work),
    claimedTransaction: (claim, work) =>
      inPipelinedTransaction(pool, {
        first: (client) => idempotency.claimIdempotencyKey(client, claim, secretsKey),
        work: async (tx, state) => {
          const { result, completed } = await work(tx, state);
          if (completed === null) return { result, last: null };
          await requireKeyFor(tx, completed.response);
          return { result, last: idempotency.storingResponse(completed, secretsKey) };
        },
      }),
    claimCall: (tx, claim, lease, counted) =>
      idempotency.claimIdempotentCall(tx, claim, lease, counted, secretsKey),
    renewCall: idempotency.renewIdempotentCall,
    completeCall: async (tx, { claim, response, counted }, token) => {
      await requireKeyFor(tx, response);
      return await idempotency.storeCallResponse(tx, claim, token, response, counted, secretsKey);
    },
    releaseCall: idempotency.releaseIdempotentCall,
  };
}

/** One row of the audit log for each write that took effect. */
const recordWrite: RecordWrite = async (tx, { caller, ...write }) => {
  await writeAuditEntry(tx, { ...write, actor: actorOf(caller) });
  return AUDIT_ROW_BYTES + Buffer.byteLength(JSON.stringify(write.details));
};

/** An account may ask as much as this many of its keys and sessions, however many it has. */
const ACCOUNT_KEYS_WORTH = 10;

/** The one operation with a limit of its own. */
const PUBLISH = "analyses.publish";

/** Of an account, where no variable says so. */
export const API_LIMITS = {
  /** Of RATE_LIMIT_REQUESTS. */
  windowSeconds: 60,
  /** Bulk replays with deliveries to start, and those deliveries. */
  replays: { runningMax: 5, waitingMax: 200_000 },
  checks: CHECK_POLICY,
};
export type ApiLimits = typeof API_LIMITS;

/** What the kernel takes is handed on to it as it is. */
export type ApiServerOptions = Pick<
  ApiOptions,
  "publicUrl" | "now" | "news" | "workPlacesMax" | "transferLimits" | "check" | "beginTrace"
> & {
  readonly config: Config;
  readonly pool: Pool;
  /** For pages of the delivery log; see readingLog. */
  readonly logPool: Pool;
  /** Absent: lists are read from `logPool`. */
  readonly readLog?: ReadLog;
  readonly secretsKey: SecretsKey;
  readonly log: Logger;
  /** Absent: counted in a registry that nobody reads. */
  readonly metrics?: ApiMetrics;
  /** Absent: those of API_LIMITS. */
  readonly limits?: Partial<ApiLimits> | undefined;
};

/** Composes the API of the kernel, the operations and the store. It is ready to listen. */
export async function createApiServer(options: ApiServerOptions): Promise<FastifyInstance> {
  const { config, pool, logPool, readLog = readingFrom(logPool), secretsKey, log, ...others } = options;
  const { metrics = createApiMetrics(createMetricsRegistry()), limits: changed, ...forKernel } = others;
  const { publicUrl, now } = forKernel;
  const limits = { ...API_LIMITS, ...changed };
  const hasWebhooks = config.areas.includes("webhooks");
  const { unsafeAllowedTargets } = targetRulesOf(config);
  const dependencies: Dependencies = {
    pool,
    logPool,
    readLog,
    secretsKey,
    apiKeyBrand: config.apiKeyBrand[0]!,
    apiKeyClass: keyClassOf(config),
    unsafeAllowedTargets,
    mustProve: (url) => mustProve(config, unsafeAllowedTargets, url),
    analysisBytesMax: config.analysisBytesMax,
    analysisRetentionMs: config.analysisRetentionSeconds * 1_000,
    sentFromUrl: config.publicUrl,
    challenges: config.targetConsent === "challenge",
    replayLimits: limits.replays,
    guardPublishing,
    eraseFromRuns,
    seesRun,
    publicUrl,
    consoleAncestors: config.consoleAncestors ?? [],
    checkReceiver: createReceiverChecking(config),
    checkPolicy: limits.checks,
    sendsMail: config.smtpUrl !== null,
    now,
  };
  const onAway = throttled((err: Error) => log.warn({ err }, "an area cannot do its work"));
  const parts = apiPartsOf({ config, dependencies, onAway });
  const registry = createSealpostRegistry(dependencies, parts);
  // A series that starts at 1 shows no increase to rate().
  for (const [code, { isRaised = true }] of Object.entries(registry.problems)) {
    if (isRaised) metrics.problems.of({ code });
  }
  const limit = { requestsMax: config.rateLimitRequests, windowSeconds: limits.windowSeconds };
  const checkReadiness = await createReadinessCheck(pool, config, secretsKey);
  return await createApi({
    ...forKernel,
    registry,
    translateError: createTranslateError(log),
    info: createApiInfo(parts),
    documents: hasWebhooks ? [receiversGuide(), aboutWebhooks()] : [],
    codeGroups: hasWebhooks ? codeGroups : [],
    docsUrl: config.docsUrl ?? publicUrl,
    checkReady: async () => {
      const readinessProblems = await checkReadiness();
      if (readinessProblems.length > 0) throw new TemporarilyUnavailable(readinessProblems.join(" "));
    },
    ...(hasWebhooks && { confirmations: confirmationsOf(pool) }),
    findApiKey: createFindApiKey(pool, now),
    keyPrefixes: config.apiKeyBrand.map((brand) => apiKeyPrefix(brand, keyClassOf(config))),
    accountExists: (accountId) => accountExists(pool, accountId),
    countRequest: createRequestCounter(pool),
    policies: {
      key: { name: "default", ...limit },
      account: { name: "account", ...limit, requestsMax: ACCOUNT_KEYS_WORTH * config.rateLimitRequests },
      address: { name: "address", ...limit },
      operations: new Map([
        [PUBLISH, { name: "publish", requestsMax: config.publishRatePerSecond, windowSeconds: 1 }],
      ]),
    },
    findSpaces: parts.find((part) => part.findSpaces)?.findSpaces ?? (async () => NO_SPACES),
    idempotencyStore: createIdempotencyStore(pool, secretsKey),
    recordWrite,
    onClosed: async () => void (await Promise.all(parts.map((part) => part.close?.()))),
    isTrustedProxy: trustedProxies(config.trustProxy),
    newId: randomUUID,
    onCompleted: (request) => {
      countRequest(metrics, request);
      log.info(logFields(request), "answered");
    },
    onInternalError: (err, requestId) => {
      log.error({ err, request_id: requestId }, "internal error");
    },
    onConnections: (open) => metrics.connections.of({}).set(open),
    onConnectionRefused: (limit) => metrics.connectionsClosed.of({ why: limit }).add(),
    onConnectionCut: (reason) => metrics.connectionsClosed.of({ why: reason }).add(),
    onRateLimitFailure: (err) => {
      metrics.limiterFailures.of({}).add();
      log.warn({ err }, "the rate limiter's store failed: a request was counted here alone");
    },
    addRoutes: async (app, kernel) => {
      if (hasWebhooks) {
        await createDeliveryConsole(options, registry.operations, parts)(app, kernel);
        await createPackageRoutes(publicUrl)(app, kernel);
      }
      for (const part of parts) await part.addRoutes?.(app, kernel);
    },
  });
}

/** Its screens are of the webhooks. */
function createDeliveryConsole(
  { config, pool, secretsKey, publicUrl, log, now }: ApiServerOptions,
  operations: readonly Operation[],
  parts: readonly ApiPart[],
): AddRoutes {
  const ancestors = config.consoleAncestors ?? [];
  return createConsole({
    sessions: createSessionStore(pool, ancestors),
    publicUrl,
    analysisRetentionMs: config.analysisRetentionSeconds * 1_000,
    attemptsMax: ATTEMPTS_MAX,
    audited: auditedOperations(operations),
    origins: parts.find((part) => part.origins)?.origins ?? null,
    ancestors,
    secretsKey,
    readAssertion: createReadAssertion(config, now, (err) =>
      log.warn({ err }, "the staff key set cannot be fetched"),
    ),
    now,
  });
}

/** One wide log line per request, without secrets. */
function logFields(request: CompletedRequest) {
  return {
    operation: request.operationKey,
    method: request.method,
    status: request.status,
    code: request.problemCode,
    duration_ms: Math.round(request.durationMs * 10) / 10,
    request_id: request.requestId,
    key_id: request.keyId,
    account_id: request.accountId,
    session_id: request.sessionId,
    traceparent: request.traceparent,
  };
}

function countRequest(
  metrics: ApiMetrics,
  { operationKey, status, durationMs, keyId, problemCode, isAccountLimited }: CompletedRequest,
): void {
  metrics.requests.of({ operation: operationKey, status: String(status) }).add();
  metrics.requestSeconds.of({ operation: operationKey }).observe(durationMs / 1_000);
  if (problemCode !== null) metrics.problems.of({ code: problemCode }).add();
  const isByAccount = isAccountLimited || (keyId !== null && operationKey === PUBLISH);
  const policy = isByAccount ? "account" : keyId === null ? "address" : "key";
  if (status === 429) metrics.limiterRefusals.of({ policy }).add();
}

/** Null where nobody's X-Forwarded-For is believed. */
export function trustedProxies(trustProxy: Config["trustProxy"]): IsTrustedProxy | null {
  if (trustProxy === false) return null;
  if (typeof trustProxy === "number") return (_address, hop) => hop < trustProxy;
  const isProxy = createAddressSet(trustProxy);
  return (address) => isProxy(plainAddress(address));
}
