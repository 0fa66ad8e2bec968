import type { ClientBase, Pool } from "pg";
import type { FindApiKey } from "../api/api-keys.ts";
import { type IdempotencyStore, LockWaitError } from "../api/idempotency.ts";
import type { RecordWrite } from "../api/idempotent-write.ts";
import type { AccountExists } from "../api/request-guards.ts";
import { actorOf } from "../model/audit.ts";
import { accountExists } from "../store/accounts.ts";
import { findApiKey, noteApiKeyUse } from "../store/api-keys.ts";
import { writeAuditEntry } from "../store/audit-log.ts";
import { isInTheWay } from "../store/availability.ts";
import { coalesceByTurn } from "../store/coalesce.ts";
import {
  claimIdempotencyKeys,
  claimIdempotentCall,
  releaseIdempotentCall,
  renewIdempotentCall,
  storeCallResponse,
  storingResponses,
} from "../store/idempotency.ts";
import { inPipelinedTransaction, inTransaction } from "../store/transaction.ts";
import type { OutageAs503 } from "./outage-as-503.ts";

const USE_RECORDED_EVERY_MS = 60_000;

/**
 * Looks up keys and records when they were last used; requests do not wait for that, and it may get lost. Requests with
 * one key in one turn of the event loop share a lookup.
 */
export function createFindApiKey(pool: Pool, outageAs503: OutageAs503, now: () => number): FindApiKey {
  const find = coalesceByTurn((digest) => findApiKey(pool, Buffer.from(digest, "latin1")));
  return async (digest) => {
    const { answer: key, place } = await outageAs503(find(digest.toString("latin1")));
    if (place === 1 && key !== null && now() - (key.lastUsedAt?.getTime() ?? 0) > USE_RECORDED_EVERY_MS) {
      noteApiKeyUse(pool, key.id).catch(() => undefined);
    }
    return key;
  };
}

export function createAccountExists(pool: Pool, outageAs503: OutageAs503): AccountExists {
  return (accountId) => outageAs503(accountExists(pool, accountId));
}

/** Claims and stored responses, in the same transactions as the effects of the requests. */
export function createIdempotencyStore(
  pool: Pool,
  secretsKey: Uint8Array,
  outageAs503: OutageAs503,
): IdempotencyStore {
  return {
    transaction: (work) => outageAs503(inTransaction(pool, work)),
    claimedTransaction: (claims, lockWaitMs, work) => {
      const first = (client: ClientBase) => claimIdempotencyKeys(client, claims, secretsKey);
      const working = inPipelinedTransaction(pool, {
        lockWaitMs,
        first,
        work: async (tx, states) => {
          const { result, completed } = await work(tx, states);
          return { result, last: storingResponses(completed, secretsKey) };
        },
      });
      return outageAs503(lockWaitMs === null ? working : lockWaits(working));
    },
    claimCall: (tx, claim, lease) => claimIdempotentCall(tx, claim, lease, secretsKey),
    renewCall: renewIdempotentCall,
    completeCall: (tx, claim, token, response) => storeCallResponse(tx, claim, token, response, secretsKey),
    releaseCall: releaseIdempotentCall,
  };
}

/** What another transaction was in the way of, in the kernel's words. */
async function lockWaits<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    throw isInTheWay(cause) ? new LockWaitError("another transaction was in the way", { cause }) : cause;
  }
}

/** One row of the audit log for each write that took effect. */
export const recordWrite: RecordWrite = async (tx, { caller, ...write }) => {
  await writeAuditEntry(tx, { ...write, actor: actorOf(caller) });
};
