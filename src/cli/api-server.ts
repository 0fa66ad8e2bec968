import { randomUUID } from "node:crypto";
import type { FastifyInstance } from "fastify";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { apiKeyPrefix } from "../api/api-keys.ts";
import type { Operation } from "../api/declarations.ts";
import type { AnsweredRequest } from "../api/exchange.ts";
import { createApi } from "../api/server.ts";
import type { Config } from "../config/config.ts";
import { apiInfo } from "../operations/api-info.ts";
import type { Transaction } from "../operations/kit.ts";
import { createSealpostRegistry } from "../operations/operations.ts";
import { checkDatabase } from "../store/availability.ts";
import { createRequestCounter } from "../store/rate-limits.ts";
import {
  createAccountExists,
  createFindApiKey,
  createIdempotencyStore,
  recordStaffWrite,
} from "./api-stores.ts";
import { createSayAway, type SayAway } from "./database-away.ts";
import { unsafeAllowedTargetsOf } from "./target-rules.ts";

export type ApiServerOptions = {
  readonly config: Config;
  readonly pool: Pool;
  readonly secretsKey: Uint8Array;
  /** Where callers reach the API, without /v1. */
  readonly publicUrl: string;
  readonly log: Logger;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Check what operations return against what they declare: for tests. */
  readonly isChecking?: boolean;
};

/** The whole API, put together: the kernel, the operations, and the store's functions. Ready to listen. */
export async function createApiServer(options: ApiServerOptions): Promise<FastifyInstance> {
  const { config, pool, secretsKey, publicUrl, log, now, isChecking = false } = options;
  const sayAway = createSayAway((err) => log.warn({ err }, "the database does not answer"));
  const { operations, problems } = createSealpostRegistry({
    pool,
    secretsKey,
    unsafeAllowedTargets: unsafeAllowedTargetsOf(config),
    analysisBytesMax: config.analysisBytesMax,
    analysisRetentionMs: config.analysisRetentionSeconds * 1_000,
    now,
  });
  const limit = { requestsMax: config.rateLimitRequests, windowSeconds: config.rateLimitWindowSeconds };
  return await createApi<Transaction>({
    registry: { operations: operations.map((operation) => withDatabaseAway(operation, sayAway)), problems },
    info: apiInfo,
    publicUrl,
    docsUrl: config.docsUrl ?? publicUrl,
    checkReady: () => sayAway(checkDatabase(pool)),
    findApiKey: createFindApiKey(pool, sayAway, now),
    keyPrefix: apiKeyPrefix(config.apiKeyBrand, config.environment === "production" ? "live" : "test"),
    accountExists: createAccountExists(pool, sayAway),
    countRequest: createRequestCounter(pool),
    policies: { key: { name: "default", ...limit }, address: { name: "address", ...limit } },
    idempotencyStore: createIdempotencyStore(pool, secretsKey, sayAway),
    recordWrite: recordStaffWrite,
    trustProxy: proxiesOf(config),
    now,
    newId: randomUUID,
    isChecking,
    onAnswered: (answered) => log.info(lineOf(answered), "answered"),
    onFault: (err, requestId) => log.error({ err, request_id: requestId }, "a fault of our own"),
    onRateLimitFailure: (err) => log.warn({ err }, "a request was let through uncounted"),
  });
}

/** Writes go through the store's transaction, which says so itself; reads ask the database directly. */
function withDatabaseAway(operation: Operation<Transaction>, sayAway: SayAway): Operation<Transaction> {
  const { work } = operation;
  if (work.kind !== "read") return operation;
  return { ...operation, work: { kind: "read", handle: (request) => sayAway(work.handle(request)) } };
}

/** One wide line for each request; nothing in it is secret. */
function lineOf(answered: AnsweredRequest) {
  return {
    operation: answered.operationKey,
    method: answered.method,
    status: answered.status,
    code: answered.problemCode,
    duration_ms: Math.round(answered.durationMs * 10) / 10,
    request_id: answered.requestId,
    key_id: answered.keyId,
    account_id: answered.accountId,
  };
}

function proxiesOf({ trustProxy }: Config): boolean | number | string {
  return typeof trustProxy === "object" ? trustProxy.join(",") : trustProxy;
}
