import type { ClaimState, IdempotencyClaim } from "../model/idempotency.ts";
import { withDeadline } from "./deadline.ts";
import type { Completed, IdempotencyStore } from "./idempotency.ts";
import { CALL_CLAIM_MS, RELEASE_WITHIN_MS } from "./limits.ts";
import type { Caller, Transaction } from "./operation.ts";
import { Problem } from "./problems.ts";
import { fromStoredResponse, type OperationResponse, toStoredResponse } from "./responses.ts";
import type { WorkPlaces } from "./work-places.ts";

/** A write that took effect, reported in its own transaction: what an audit log is made of. */
export type RecordedWrite = {
  readonly operationKey: string;
  readonly accountId: string;
  readonly caller: Caller;
  readonly requestId: string;
  readonly params: unknown;
  /** As validated: the bytes of a raw body, undefined where there is none. */
  readonly body: unknown;
  readonly status: number;
  /** JSON; null where there was no body, or one that holds a secret. */
  readonly responseBody: Buffer | null;
};
export type RecordWrite = (tx: Transaction, write: RecordedWrite) => Promise<void>;

/** One write under its Idempotency-Key. */
export type Write = {
  readonly claim: IdempotencyClaim;
  /** Of `WorkPlaces`, as many as the request is worth. */
  readonly places: number;
  readonly holdsSecret: boolean;
  readonly caller: Caller;
  readonly requestId: string;
  readonly params: unknown;
  readonly body: unknown;
};

export type WriteResult = { readonly response: OperationResponse; readonly isReplayed: boolean };

export type IdempotentWrites = {
  /** Claim, effect and stored response in one transaction; a throw of `perform` rolls all three back. */
  inTransaction(
    write: Write,
    waitMs: number,
    perform: (tx: Transaction) => Promise<OperationResponse>,
  ): Promise<WriteResult>;
  /** Claim, call with no transaction open, store the response. */
  aroundCall(
    write: Write,
    bounds: { readonly waitMs: number; readonly deadlineMs: number },
    perform: () => Promise<OperationResponse>,
  ): Promise<WriteResult>;
};

export function createIdempotentWrites(options: {
  readonly store: IdempotencyStore;
  readonly places: WorkPlaces;
  readonly recordWrite: RecordWrite;
  readonly newToken: () => string;
  readonly onInternalError: (error: unknown, requestId: string) => void;
}): IdempotentWrites {
  const { store, places, recordWrite, newToken, onInternalError } = options;

  return {
    inTransaction: (write, waitMs, perform) => {
      const { claim, holdsSecret } = write;
      const work = async (
        tx: Transaction,
        states: readonly ClaimState[],
      ): Promise<Completed<WriteResult>> => {
        const earlier = earlierResponse(states[0]!, claim);
        if (earlier) return { result: { response: earlier, isReplayed: true }, completed: [] };
        const response = await perform(tx);
        await recordWrite(tx, recordedWrite(write, response));
        const completed = [{ claim, response: toStoredResponse(response, holdsSecret) }];
        return { result: { response, isReplayed: false }, completed };
      };
      const working = places.run(claim.accountId, write.places, waitMs, () =>
        store.claimedTransaction([claim], null, work),
      );
      return withDeadline(waitMs, "the transaction", working);
    },

    aroundCall: async (write, { waitMs, deadlineMs }, perform) => {
      const { claim, holdsSecret } = write;
      const token = newToken();
      // It outlives the call's deadline, so a second call cannot start while the first may still be running.
      const lease = { token, leaseMs: Math.max(CALL_CLAIM_MS, 2 * deadlineMs) };
      const claiming = store.transaction((tx) => store.claimCall(tx, claim, lease));
      const earlier = earlierResponse(await withDeadline(waitMs, "the claim", claiming), claim);
      if (earlier) return { response: earlier, isReplayed: true };
      return withDeadline(deadlineMs + waitMs, "the call", call());

      async function call(): Promise<WriteResult> {
        try {
          const response = await perform();
          await store.transaction(async (tx) => {
            await recordWrite(tx, recordedWrite(write, response));
            await store.completeCall(tx, claim, token, toStoredResponse(response, holdsSecret));
          });
          return { response, isReplayed: false };
        } catch (error) {
          await release();
          throw error;
        }
      }

      /** Lets the client retry at once; otherwise the claim ends with its lease. */
      async function release(): Promise<void> {
        try {
          const releasing = store.transaction((tx) => store.releaseCall(tx, claim, token));
          await withDeadline(RELEASE_WITHIN_MS, "the release", releasing);
        } catch (error) {
          onInternalError(error, write.requestId);
        }
      }
    },
  };
}

export function recordedWrite(write: Write, response: OperationResponse): RecordedWrite {
  const { claim, holdsSecret, caller, requestId, params, body } = write;
  const { operationKey, accountId } = claim;
  const responseBody = holdsSecret ? null : response.body;
  return { operationKey, accountId, caller, requestId, params, body, status: response.status, responseBody };
}

/**
 * The stored response, or null when the claim is ours and the work is still to be done.
 * @throws Problem when it is another request's
 */
export function earlierResponse(found: ClaimState, claim: IdempotencyClaim): OperationResponse | null {
  switch (found.state) {
    case "claimed":
      return null;
    case "in_progress":
      throw new Problem("idempotency_in_progress");
    case "completed":
      if (!claim.fingerprint.equals(found.fingerprint)) throw new Problem("idempotency_key_reused");
      return fromStoredResponse(found.response);
    default:
      throw new Error(`Unknown claim state: ${JSON.stringify(found satisfies never)}`);
  }
}
