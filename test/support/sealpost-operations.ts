import pg from "pg";
import { apiPartsOf } from "../../src/app/areas.ts";
import { createSealpostRegistry, type Dependencies } from "../../src/app/operations.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { readingFrom } from "../../src/base/database/log-reader.ts";
import { AREAS, type Area } from "../../src/base/model/areas.ts";
import { NO_UNSAFE_ALLOWED_TARGETS } from "../../src/egress/rules/host.ts";
import type { Operation } from "../../src/http/operation.ts";
import type { OperationRegistry } from "../../src/http/operation-registry.ts";
import { CHECK_POLICY } from "../../src/receivers/receivers-api.ts";

/** Every operation as declared, with nothing behind it. */
export function declaredOperations(areas: readonly Area[] = AREAS): readonly Operation[] {
  return declaredRegistry(areas).operations;
}

/** The same, with every code that they raise. */
export function declaredRegistry(areas: readonly Area[] = AREAS): OperationRegistry {
  const dependencies: Dependencies = {
    pool: new pg.Pool(),
    logPool: new pg.Pool(),
    readLog: readingFrom(new pg.Pool()),
    secretsKey: Buffer.alloc(32),
    apiKeyBrand: "svc",
    apiKeyClass: "test",
    unsafeAllowedTargets: NO_UNSAFE_ALLOWED_TARGETS,
    analysisBytesMax: 1_048_576,
    analysisRetentionMs: 7 * 86_400_000,
    sentFromUrl: null,
    challenges: false,
    mustProve: () => true,
    replayLimits: { runningMax: 5, waitingMax: 200_000 },
    checkReceiver: () => Promise.reject(new Error("There is nothing behind the operations.")),
    checkPolicy: CHECK_POLICY,
    publicUrl: "https://api.sealpost.test",
    consoleAncestors: [],
    guardPublishing: (pool, _asked, _waitMs, publish) => publish(pool, new Set()),
    eraseFromRuns: async () => [],
    seesRun: async () => false,
    sendsMail: true,
    now: () => 0,
  };
  const config = { ...readConfig({}), areas };
  const parts = apiPartsOf({ config, dependencies, onAway: () => undefined });
  return createSealpostRegistry(dependencies, parts);
}
