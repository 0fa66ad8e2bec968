import { within } from "./deadline.ts";
import type { ClaimState, IdempotencyClaim, IdempotencyStore } from "./idempotency.ts";
import { CALL_CLAIM_MS, RELEASE_WITHIN_MS } from "./limits.ts";
import type { Caller } from "./operation.ts";
import { Problem } from "./problems.ts";
import { type Answer, replayedAnswer, storedAnswer } from "./responses.ts";

/** A write that took effect, told in its own transaction: what an audit log is made of. */
export type RecordedWrite = {
  readonly operationKey: string;
  readonly accountId: string;
  readonly caller: Caller;
  readonly requestId: string;
  readonly params: unknown;
  /** As checked: the bytes of a raw body, undefined where there is none. */
  readonly body: unknown;
  readonly status: number;
  /** What was answered, JSON; null where there was no body, or one that holds a secret. */
  readonly answer: Buffer | null;
};
export type RecordWrite<Tx> = (tx: Tx, write: RecordedWrite) => Promise<void>;

/** One write under its Idempotency-Key. */
export type Write = {
  readonly claim: IdempotencyClaim;
  readonly holdsSecret: boolean;
  readonly caller: Caller;
  readonly requestId: string;
  readonly params: unknown;
  readonly body: unknown;
};

export type WrittenAnswer = { readonly answer: Answer; readonly isReplayed: boolean };

export type WriteOnce<Tx> = {
  /** Claim, effect and stored answer in one transaction; what `perform` throws undoes all three. */
  inTransaction(write: Write, waitMs: number, perform: (tx: Tx) => Promise<Answer>): Promise<WrittenAnswer>;
  /** Claim; call, with no transaction open; answer. */
  aroundCall(
    write: Write,
    bounds: { readonly waitMs: number; readonly deadlineMs: number },
    perform: () => Promise<Answer>,
  ): Promise<WrittenAnswer>;
};

export function createWriteOnce<Tx>(options: {
  readonly store: IdempotencyStore<Tx>;
  readonly recordWrite: RecordWrite<Tx>;
  readonly newToken: () => string;
  readonly onFault: (error: unknown, requestId: string) => void;
}): WriteOnce<Tx> {
  const { store, recordWrite, newToken, onFault } = options;

  const record = (tx: Tx, write: Write, answered: Answer): Promise<void> => {
    const { claim, holdsSecret, caller, requestId, params, body } = write;
    const { operationKey, accountId } = claim;
    const { status } = answered;
    const answer = holdsSecret ? null : answered.body;
    return recordWrite(tx, { operationKey, accountId, caller, requestId, params, body, status, answer });
  };

  return {
    inTransaction: (write, waitMs, perform) => {
      const { claim, holdsSecret } = write;
      const work = store.transaction(async (tx): Promise<WrittenAnswer> => {
        const earlier = earlierAnswer(await store.claim(tx, claim), claim);
        if (earlier) return { answer: earlier, isReplayed: true };
        const answer = await perform(tx);
        await record(tx, write, answer);
        await store.complete(tx, claim, storedAnswer(answer, holdsSecret));
        return { answer, isReplayed: false };
      });
      return within(waitMs, "the transaction", work);
    },

    aroundCall: async (write, { waitMs, deadlineMs }, perform) => {
      const { claim, holdsSecret } = write;
      const token = newToken();
      // It outlives the deadline of the call, so that nobody calls a second time while the first still may.
      const lease = { token, leaseMs: Math.max(CALL_CLAIM_MS, 2 * deadlineMs) };
      const claiming = store.transaction((tx) => store.claimCall(tx, claim, lease));
      const earlier = earlierAnswer(await within(waitMs, "the claim", claiming), claim);
      if (earlier) return { answer: earlier, isReplayed: true };
      return within(deadlineMs + waitMs, "the call", call());

      async function call(): Promise<WrittenAnswer> {
        try {
          const answer = await perform();
          await store.transaction(async (tx) => {
            await record(tx, write, answer);
            await store.completeCall(tx, claim, token, storedAnswer(answer, holdsSecret));
          });
          return { answer, isReplayed: false };
        } catch (error) {
          await release();
          throw error;
        }
      }

      /** Only a convenience to whoever repeats the request: unreleased, the claim ends with its lease. */
      async function release(): Promise<void> {
        try {
          const releasing = store.transaction((tx) => store.releaseCall(tx, claim, token));
          await within(RELEASE_WITHIN_MS, "the release", releasing);
        } catch (error) {
          onFault(error, write.requestId);
        }
      }
    },
  };
}

/** The stored answer, or null when the claim is ours and the work is to be done. */
function earlierAnswer(found: ClaimState, claim: IdempotencyClaim): Answer | null {
  switch (found.state) {
    case "claimed":
      return null;
    case "in_progress":
      throw new Problem("idempotency_in_progress");
    case "answered":
      if (!claim.fingerprint.equals(found.fingerprint)) throw new Problem("idempotency_key_reused");
      return replayedAnswer(found.answer);
    default:
      throw new Error(`Unknown claim state: ${JSON.stringify(found satisfies never)}`);
  }
}
