import { createHash } from "node:crypto";
import { sharerOf } from "../base/model/account-places.ts";
import type {
  CallLease,
  ClaimState,
  CompletedClaim,
  CountedAnswer,
  IdempotencyClaim,
} from "../base/model/idempotency.ts";
import { withDeadline } from "./deadline.ts";
import {
  ANSWER_WITHIN_MS,
  CALL_CLAIM_MS,
  IDEMPOTENCY_KEY_CHARS_MAX,
  RELEASE_WITHIN_MS,
  UPLOAD_CLAIM_MS,
} from "./limits.ts";
import type { AuditDetails, Caller, ErasedResult, Repeated, Transaction } from "./operation.ts";
import {
  accountMoved,
  invalidRequest,
  Problem,
  TemporarilyUnavailable,
  type TranslateError,
} from "./problems.ts";
import { type OperationResponse, toStoredResponse } from "./responses.ts";
import type { InTurn } from "./turns.ts";

/** Keeps claims and responses. No function waits for another request's claim. */
export type IdempotencyStore = {
  /** Runs `work` in one transaction: committed if it resolves, rolled back if it rejects, and settled like it. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /**
   * The same for a write: claims its key until the transaction ends, without waiting if it is claimed already, and
   * stores the response that `work` completed; null: none.
   */
  claimedTransaction<T>(
    claim: IdempotencyClaim,
    work: (
      tx: Transaction,
      state: ClaimState,
    ) => Promise<{ readonly result: T; readonly completed: CompletedClaim | null }>,
  ): Promise<T>;
  /** Claims beyond the transaction, under `token`, until `completeCall` or `releaseCall`, at most for `leaseMs`. */
  claimCall(
    tx: Transaction,
    claim: IdempotencyClaim,
    lease: CallLease,
    counted: CountedAnswer,
  ): Promise<ClaimState>;
  /** Holds a claim for another `leaseMs`. Does nothing when it is no longer held under the token. */
  renewCall(tx: Transaction, claim: IdempotencyClaim, lease: CallLease): Promise<void>;
  /** Stores the response of a call. False, and nothing is stored, when the claim is no longer held under `token`. */
  completeCall(tx: Transaction, completed: CompletedClaim, token: string): Promise<boolean>;
  /** Releases the claim of a failed call, so the request can be retried. */
  releaseCall(tx: Transaction, claim: IdempotencyClaim, token: string): Promise<void>;
};

/**
 * Another transaction was in the way: it holds a lock for longer than was to be waited, or the database chose ours to
 * end of two that could not both go on. Nothing was written; the same again may succeed.
 */
export class LockWaitError extends Error {
  override readonly name = "LockWaitError";
}

const PLACE = "header.idempotency-key";
const BARE = /^[\x20-\x7e]+$/;
/** A string of RFC 9651. */
const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])*)" *$/;

/**
 * The key of a write, bare or as a quoted string (`"…"`, the draft standard's form). Both forms of a text are the
 * same key.
 */
export function readIdempotencyKey(header: string | string[] | undefined): string {
  if (typeof header !== "string" || header === "") throw new Problem("idempotency_key_required");
  const key = header.startsWith('"') ? unquote(header) : header;
  if (!BARE.test(key)) throw invalidRequest(PLACE, "Must be printable ASCII.");
  if (key.length > IDEMPOTENCY_KEY_CHARS_MAX) {
    throw invalidRequest(PLACE, `Must have 1 to ${IDEMPOTENCY_KEY_CHARS_MAX} characters.`);
  }
  return key;
}

function unquote(header: string): string {
  const [, quoted] = QUOTED.exec(header) ?? [];
  if (quoted === undefined) {
    throw invalidRequest(PLACE, "Starts with a quote but is not a valid quoted string.");
  }
  if (quoted === "") throw invalidRequest(PLACE, "The quoted string is empty.");
  return quoted.replaceAll(/\\(.)/g, "$1");
}

/** `body`: the bytes of a raw body, the validated value of any other, undefined where there is none. */
export function fingerprintOf(request: {
  readonly operationKey: string;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}): Buffer {
  const { operationKey, params, query, body } = request;
  const bytes = Buffer.isBuffer(body) ? body : canonicalJson(body);
  const before = canonicalJson([operationKey, params, query]);
  // JSON holds no NUL, so the parts cannot run into each other.
  return createHash("sha256").update(before).update("\0").update(bytes).digest();
}

/**
 * JSON with sorted members, so equal values give equal texts. Throws for what JSON cannot represent (a Map, a BigInt):
 * a schema that produces one would make all requests look the same.
 */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (value instanceof Date || typeof value !== "object" || value === null)
    return JSON.stringify(value) ?? "null";
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null)
    throw new TypeError("Not a value that JSON can hold.");
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  members.sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(",")}}`;
}

/** A write that took effect. */
export type RecordedWrite = {
  readonly operationKey: string;
  readonly accountId: string;
  readonly caller: Caller;
  readonly requestId: string;
  readonly details: AuditDetails;
};
/** Tells of it in its own transaction: a row of the audit log. Resolves to the bytes that it takes there. */
export type RecordWrite = (tx: Transaction, write: RecordedWrite) => Promise<number>;

/** One write under its Idempotency-Key. */
export type Write = {
  readonly claim: IdempotencyClaim;
  /** How many places among the requests at work it is worth. */
  readonly size: number;
  readonly holdsSecret: boolean;
  /** Not refused before twice as much is stored as the account may. */
  readonly isExempt: boolean;
  readonly caller: Caller;
  readonly requestId: string;
  /** What the audit log says of it; null: nothing. */
  readonly details: (result: ErasedResult) => AuditDetails | null;
  /** Null: whoever repeats it is told again. */
  readonly judgeRepeat: ((tx: Transaction, told: unknown) => Promise<Repeated>) | null;
};

/** What a handler returned, and the response made of it. */
export type Performed = { readonly result: ErasedResult; readonly response: OperationResponse };

export type WriteResult = { readonly response: OperationResponse; readonly isReplayed: boolean };

export type IdempotentWrites = ReturnType<typeof createIdempotentWrites>;

export type IdempotencyOptions = {
  readonly idempotencyStore: IdempotencyStore;
  /** Called for every write in its own transaction. */
  readonly recordWrite: RecordWrite;
  /** An id for a request without one, or a token for a claim: unguessable, printable ASCII. */
  readonly newId: () => string;
  readonly translateError: TranslateError;
  /** An internal error, to be logged. */
  readonly onInternalError: (error: unknown, requestId: string) => void;
};

/**
 * @param inTurn of requests at work on the database
 * @param renewEveryMs how often the claim of an upload is held for longer
 */
export function createIdempotentWrites(options: IdempotencyOptions, inTurn: InTurn, renewEveryMs: number) {
  const { idempotencyStore: store, recordWrite, newId, translateError, onInternalError } = options;

  /** Claim, effect and stored response in one transaction; a throw of `perform` rolls all three back. */
  async function inTransaction(
    write: Write,
    waitMs: number,
    perform: (tx: Transaction) => Promise<Performed>,
  ): Promise<WriteResult> {
    const { claim, size, caller } = write;
    const work = async (tx: Transaction, state: ClaimState) => {
      const earlier = earlierResponse(state, claim);
      if (earlier && (await isToldAgain(write, tx, earlier)))
        return { result: { response: earlier, isReplayed: true }, completed: null };
      const performed = await perform(tx);
      const completed = await complete(tx, write, performed);
      return { result: { response: performed.response, isReplayed: false }, completed };
    };
    const claimed = () => store.claimedTransaction(claim, work);
    const working = inTurn(sharerOf(claim.accountId, caller), { waitMs, size }, claimed);
    return await withDeadline(waitMs, "the transaction", working);
  }

  /** Claim, call with no transaction open, store the response. */
  async function aroundCall(
    write: Write,
    { waitMs, deadlineMs }: { readonly waitMs: number; readonly deadlineMs: number },
    perform: () => Promise<Performed>,
  ): Promise<WriteResult> {
    // It outlives the call's deadline, so a second call cannot start while the first may still be running.
    const lease = { token: newId(), leaseMs: Math.max(CALL_CLAIM_MS, 2 * deadlineMs) };
    const earlier = await claimCall(write, waitMs, lease);
    if (earlier) return earlier;
    const calling = orRelease(write, lease, async () => {
      const performed = await perform();
      await transact(write, ANSWER_WITHIN_MS, (tx) => completeCall(tx, write, lease, performed));
      return performed.response;
    });
    return await withDeadline(deadlineMs + waitMs, "the call", calling);
  }

  /**
   * Claim; receive with no transaction open, however long that takes; then effect and stored response in one
   * transaction, which a throw of `perform` rolls back.
   */
  async function aroundUpload<Received>(
    write: Write,
    waitMs: number,
    upload: {
      receive(): Promise<Received>;
      /** Each time that the claim is held for longer: a Problem of it is for `cut`, which ends `receive`. */
      recheck(tx: Transaction): Promise<void>;
      cut(reason: Problem): void;
      perform(tx: Transaction, received: Received): Promise<Performed>;
      /** After a Problem of `perform`; never where it is not known whether the transaction was committed. */
      refused(received: Received): Promise<void>;
    },
  ): Promise<WriteResult> {
    const { claim, requestId } = write;
    const lease = { token: newId(), leaseMs: UPLOAD_CLAIM_MS };
    const earlier = await claimCall(write, waitMs, lease);
    if (earlier) return earlier;
    const renew = async (tx: Transaction) => {
      await store.renewCall(tx, claim, lease);
      await upload.recheck(tx);
    };
    // If it fails, the next one may come in time: the lease is longer than several.
    const onRenewFailed = (error: unknown) =>
      error instanceof Problem ? upload.cut(error) : onInternalError(error, requestId);
    const renewing = setInterval(() => store.transaction(renew).catch(onRenewFailed), renewEveryMs);
    return await orRelease(write, lease, async () => {
      const received = await upload.receive();
      const work = async (tx: Transaction) => {
        const performed = await upload.perform(tx, received);
        // Whoever holds the claim now does the same work: what was done here must not count.
        if (!(await completeCall(tx, write, lease, performed)))
          throw new TemporarilyUnavailable("the claim of an upload ran out");
        return performed.response;
      };
      try {
        return await transact(write, ANSWER_WITHIN_MS, work);
      } catch (error) {
        if (error instanceof Problem)
          await upload.refused(received).catch((failure: unknown) => onInternalError(failure, requestId));
        throw error;
      }
    }).finally(() => clearInterval(renewing));
  }

  return { inTransaction, aroundCall, aroundUpload };

  /**
   * The stored response, or null when the claim is ours and the work is still to be done. What was done outside of a
   * transaction is not done anew.
   */
  async function claimCall(write: Write, waitMs: number, lease: CallLease): Promise<WriteResult | null> {
    const { claim } = write;
    const claiming = transact(write, waitMs, (tx) => store.claimCall(tx, claim, lease, countedOf(write, 0)));
    const earlier = earlierResponse(await withDeadline(waitMs, "the claim", claiming), claim);
    if (earlier === null) return null;
    if (write.judgeRepeat !== null) {
      const judging = transact(write, waitMs, (tx) => isToldAgain(write, tx, earlier));
      await withDeadline(waitMs, "the repeat", judging);
    }
    return { response: earlier, isReplayed: true };
  }

  /** If the work fails, its claim is released, so that the client can retry at once; or else it ends with its lease. */
  async function orRelease(
    write: Write,
    { token }: CallLease,
    work: () => Promise<OperationResponse>,
  ): Promise<WriteResult> {
    try {
      return { response: await work(), isReplayed: false };
    } catch (error) {
      const releasing = transact(write, RELEASE_WITHIN_MS, (tx) => store.releaseCall(tx, write.claim, token));
      await withDeadline(RELEASE_WITHIN_MS, "the release", releasing).catch((failure: unknown) => {
        if (!(failure instanceof TemporarilyUnavailable)) onInternalError(failure, write.requestId);
      });
      throw error;
    }
  }

  /** There was room for it when it began. False, and nothing is stored, when its claim is another's. */
  async function completeCall(
    tx: Transaction,
    write: Write,
    { token }: CallLease,
    performed: Performed,
  ): Promise<boolean> {
    const { counted, ...completed } = await complete(tx, write, performed);
    return await store.completeCall(tx, { ...completed, counted: { ...counted, isRefused: false } }, token);
  }

  /** Tells of a write that took effect, where there is something to tell. Returns what is to be stored of it. */
  async function complete(
    tx: Transaction,
    write: Write,
    { result, response }: Performed,
  ): Promise<CompletedClaim> {
    const { claim, caller, requestId, holdsSecret } = write;
    const { operationKey, accountId } = claim;
    const details = write.details(result);
    const recorded = { operationKey, accountId, caller, requestId };
    const auditBytes = details === null ? 0 : await recordWrite(tx, { ...recorded, details });
    return {
      claim,
      response: toStoredResponse(response, holdsSecret),
      counted: countedOf(write, auditBytes),
    };
  }

  /** In a transaction of its own, once it is the account's turn. */
  async function transact<T>(
    { claim, caller }: Write,
    waitMs: number,
    work: (tx: Transaction) => Promise<T>,
  ): Promise<T> {
    try {
      return await inTurn(sharerOf(claim.accountId, caller), { waitMs }, () => store.transaction(work));
    } catch (error) {
      throw translateError(error);
    }
  }
}

function countedOf({ caller, isExempt }: Write, auditBytes: number): CountedAnswer {
  return { userId: caller.userId, isRefused: !isExempt, auditBytes };
}

/** False: it is done anew. @throws Problem: what the answer tells of is out of the caller's sight by now */
async function isToldAgain(
  { judgeRepeat }: Write,
  tx: Transaction,
  { body }: OperationResponse,
): Promise<boolean> {
  if (judgeRepeat === null) return true;
  const verdict = await judgeRepeat(tx, body === null ? null : JSON.parse(body.toString()));
  if (verdict === "gone") throw new Problem("not_found");
  return verdict === "again";
}

/**
 * The stored response, or null when the claim is ours and the work is still to be done.
 * @throws Problem when it is another request's
 */
export function earlierResponse(found: ClaimState, claim: IdempotencyClaim): OperationResponse | null {
  switch (found.state) {
    case "claimed":
      return null;
    case "no_key":
      throw new Problem("unauthorized");
    case "in_progress":
      throw new Problem("idempotency_in_progress");
    case "moved":
      throw accountMoved(found.cell);
    case "completed":
      if (!claim.fingerprint.equals(found.fingerprint)) throw new Problem("idempotency_key_reused");
      return { ...found.response, etag: null };
    default:
      throw new Error(`Unknown claim state: ${JSON.stringify(found satisfies never)}`);
  }
}
