import { createHash } from "node:crypto";
import { parseItem } from "structured-headers";
import type {
  CallLease,
  ClaimState,
  CompletedClaim,
  IdempotencyClaim,
  StoredResponse,
} from "../model/idempotency.ts";
import { IDEMPOTENCY_KEY_CHARS_MAX } from "./limits.ts";
import type { Transaction } from "./operation.ts";
import { invalidRequest, Problem } from "./problems.ts";

/**
 * Keeps claims and responses. Throws `TemporarilyUnavailable` when its database is down. No function waits for another
 * request's claim.
 */
export type IdempotencyStore = {
  /** Runs `work` in one transaction: committed if it resolves, rolled back if it rejects, and settled like it. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /**
   * The same for writes with different keys: claims all of them until the transaction ends, without waiting for those
   * that are claimed already, and stores the responses that `work` completed. `work` gets what became of the claims, in
   * their order.
   *
   * @param lockWaitMs how long to wait for a lock; null: as long as a statement may take
   * @throws LockWaitError when a lock is not to be had within `lockWaitMs`
   */
  claimedTransaction<T>(
    claims: readonly IdempotencyClaim[],
    lockWaitMs: number | null,
    work: (tx: Transaction, states: readonly ClaimState[]) => Promise<Completed<T>>,
  ): Promise<T>;
  /** Claims beyond the transaction, under `token`, until `completeCall` or `releaseCall`, at most for `leaseMs`. */
  claimCall(tx: Transaction, claim: IdempotencyClaim, lease: CallLease): Promise<ClaimState>;
  /** Holds a claim for another `leaseMs`. Does nothing when it is no longer held under the token. */
  renewCall(tx: Transaction, claim: IdempotencyClaim, lease: CallLease): Promise<void>;
  /** Stores the response of a call. False, and nothing is stored, when the claim is no longer held under `token`. */
  completeCall(
    tx: Transaction,
    claim: IdempotencyClaim,
    token: string,
    response: StoredResponse,
  ): Promise<boolean>;
  /** Releases the claim of a failed call, so the request can be retried. */
  releaseCall(tx: Transaction, claim: IdempotencyClaim, token: string): Promise<void>;
};

/** What a transaction came to, and the responses to be stored in it. */
export type Completed<T> = { readonly result: T; readonly completed: readonly CompletedClaim[] };

/**
 * Another transaction was in the way: it holds a lock for longer than was to be waited, or the database chose ours to
 * end of two that could not both go on. Nothing was written; the same again may succeed.
 */
export class LockWaitError extends Error {
  override readonly name = "LockWaitError";
}

const PLACE = "header.idempotency-key";
const BARE = /^[\x20-\x7e]+$/;

/**
 * The key of a write, bare or as a quoted string (`"…"`, the draft standard's form). Both forms of a text are the
 * same key.
 */
export function readIdempotencyKey(header: string | undefined): string {
  if (header === undefined || header === "") throw new Problem("idempotency_key_required");
  const key = header.startsWith('"') ? unquote(header) : header;
  if (!BARE.test(key)) throw invalidRequest(PLACE, "Must be printable ASCII.");
  if (key.length > IDEMPOTENCY_KEY_CHARS_MAX) {
    throw invalidRequest(PLACE, `Must have 1 to ${IDEMPOTENCY_KEY_CHARS_MAX} characters.`);
  }
  return key;
}

function unquote(header: string): string {
  let value: unknown;
  try {
    [value] = parseItem(header);
  } catch {
    throw invalidRequest(PLACE, "Starts with a quote but is not a valid quoted string.");
  }
  if (typeof value !== "string" || value === "") throw invalidRequest(PLACE, "The quoted string is empty.");
  return value;
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
