import { randomUUID } from "node:crypto";
import type { FastifyInstance } from "fastify";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { apiKeyPrefix } from "../api/api-keys.ts";
import type { IsTrustedProxy } from "../api/connections.ts";
import type { Operation } from "../api/operation.ts";
import { plainAddress, type RateLimitPolicy } from "../api/rate-limits.ts";
import type { CompletedRequest } from "../api/request-context.ts";
import { createApi } from "../api/server.ts";
import type { Config } from "../config/config.ts";
import { createAddressSet } from "../egress/rules/address.ts";
import { type ApiMetrics, createApiMetrics } from "../metrics/api-metrics.ts";
import { createMetricsRegistry } from "../metrics/registry.ts";
import { apiInfo, createSealpostRegistry } from "../operations/operations.ts";
import { CHECK_POLICY } from "../operations/receivers.ts";
import { createRequestCounter } from "../store/rate-limits.ts";
import {
  createAccountExists,
  createFindApiKey,
  createIdempotencyStore,
  recordStaffWrite,
} from "./api-stores.ts";
import { createOutageAs503, type OutageAs503 } from "./outage-as-503.ts";
import { createCheckReady, createFindHindrances } from "./readiness.ts";
import { createReceiverChecking } from "./receiver-checking.ts";
import { unsafeAllowedTargetsOf } from "./target-rules.ts";

export type ApiServerOptions = {
  readonly config: Config;
  readonly pool: Pool;
  /** For reading the delivery log; see createLogPool. */
  readonly logPool: Pool;
  readonly secretsKey: Uint8Array;
  /** Where callers reach the API, without /v1. */
  readonly publicUrl: string;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Absent: counted where nobody looks. */
  readonly metrics?: ApiMetrics;
  /** Absent: once a minute. */
  readonly checkPolicy?: RateLimitPolicy | undefined;
  /** Check what operations return against what they declare: for tests. */
  readonly isChecking?: boolean;
};

/** The whole API, put together: the kernel, the operations, and the store's functions. Ready to listen. */
export async function createApiServer(options: ApiServerOptions): Promise<FastifyInstance> {
  const { config, pool, logPool, secretsKey, publicUrl, log, now, isChecking = false } = options;
  const metrics = options.metrics ?? createApiMetrics(createMetricsRegistry());
  const outageAs503 = createOutageAs503((err) => log.warn({ err }, "the database does not answer"));
  const { operations, problems } = createSealpostRegistry({
    pool,
    logPool,
    secretsKey,
    unsafeAllowedTargets: unsafeAllowedTargetsOf(config),
    analysisBytesMax: config.analysisBytesMax,
    analysisRetentionMs: config.analysisRetentionSeconds * 1_000,
    checkReceiver: createReceiverChecking(config),
    checkPolicy: options.checkPolicy ?? CHECK_POLICY,
    now,
  });
  const limit = { requestsMax: config.rateLimitRequests, windowSeconds: config.rateLimitWindowSeconds };
  return await createApi({
    registry: {
      operations: operations.map((operation) => withDatabaseAway(operation, outageAs503)),
      problems,
    },
    info: apiInfo,
    publicUrl,
    docsUrl: config.docsUrl ?? publicUrl,
    checkReady: createCheckReady(await createFindHindrances(pool)),
    findApiKey: createFindApiKey(pool, outageAs503, now),
    keyPrefix: apiKeyPrefix(config.apiKeyBrand, config.environment === "production" ? "live" : "test"),
    accountExists: createAccountExists(pool, outageAs503),
    countRequest: createRequestCounter(pool),
    policies: { key: { name: "default", ...limit }, address: { name: "address", ...limit } },
    idempotencyStore: createIdempotencyStore(pool, secretsKey, outageAs503),
    recordWrite: recordStaffWrite,
    isTrustedProxy: trustedProxies(config.trustProxy),
    now,
    newId: randomUUID,
    isChecking,
    onCompleted: (answered) => {
      countRequest(metrics, answered);
      log.info(lineOf(answered), "answered");
    },
    onInternalError: (err, requestId) => {
      metrics.faults.of({}).add();
      log.error({ err, request_id: requestId }, "a fault of our own");
    },
    onConnections: (open) => metrics.connections.of({}).set(open),
    onConnectionRefused: (limit) => metrics.connectionsRefused.of({ limit }).add(),
    onConnectionCut: (reason) => metrics.connectionsCut.of({ reason }).add(),
    onRateLimitFailure: (err) => {
      metrics.limiterFailures.of({}).add();
      log.warn({ err }, "a request was let through uncounted");
    },
  });
}

/** Writes go through the store's transaction, which says so itself; reads ask the database directly. */
function withDatabaseAway(operation: Operation, outageAs503: OutageAs503): Operation {
  const { work } = operation;
  if (work.kind !== "read" && work.kind !== "call_out") return operation;
  const handle: typeof work.handle = (request) => outageAs503(work.handle(request));
  return { ...operation, work: { ...work, handle } };
}

/** One wide line for each request; nothing in it is secret. */
function lineOf(answered: CompletedRequest) {
  return {
    operation: answered.operationKey,
    method: answered.method,
    status: answered.status,
    code: answered.problemCode,
    duration_ms: Math.round(answered.durationMs * 10) / 10,
    request_id: answered.requestId,
    key_id: answered.keyId,
    account_id: answered.accountId,
    traceparent: answered.traceparent,
  };
}

function countRequest(
  metrics: ApiMetrics,
  { operationKey, status, durationMs, keyId }: CompletedRequest,
): void {
  metrics.requests.of({ operation: operationKey, status: String(status) }).add();
  metrics.requestSeconds.of({ operation: operationKey }).observe(durationMs / 1_000);
  if (status === 429) metrics.limiterRefusals.of({ policy: keyId === null ? "address" : "key" }).add();
}

/** Null where nobody's X-Forwarded-For is believed. */
export function trustedProxies(trustProxy: Config["trustProxy"]): IsTrustedProxy | null {
  if (trustProxy === false) return null;
  if (typeof trustProxy === "number") return (_address, hop) => hop < trustProxy;
  const isProxy = createAddressSet(trustProxy);
  return (address) => isProxy(plainAddress(address));
}
