import { createHash } from "node:crypto";
import { parseItem } from "structured-headers";
import { IDEMPOTENCY_KEY_CHARS_MAX } from "./limits.ts";
import { invalidRequest, Problem } from "./problems.ts";

/** Whose key it is, and what it was used for. Unique over account, API key and idempotency key. */
export type IdempotencyClaim = {
  readonly accountId: string;
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly operationKey: string;
  /** SHA-256 over operation, params, query and body: the same request has the same, another one another. */
  readonly fingerprint: Buffer;
};

/** A success, kept to be given again. */
export type StoredAnswer = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Null: an answer without a body. */
  readonly body: Buffer | null;
  /** To be encrypted where it is stored. */
  readonly holdsSecret: boolean;
};

export type ClaimState =
  | { readonly state: "claimed" }
  /** Another request holds the claim, in a transaction that is open or for a call that is under way. */
  | { readonly state: "in_progress" }
  /** `fingerprint`: of the request that was answered then. */
  | { readonly state: "answered"; readonly fingerprint: Buffer; readonly answer: StoredAnswer };

/**
 * Keeps claims and answers. What it cannot do for want of its database it throws `TemporarilyUnavailable` for.
 * None of its functions waits for another request's claim.
 */
export type IdempotencyStore<Tx> = {
  /** Runs `work` in one transaction: committed if it resolves, rolled back if it rejects, and settled like it. */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Claims until the transaction ends, or says why not. */
  claim(tx: Tx, claim: IdempotencyClaim): Promise<ClaimState>;
  /** Claims beyond the transaction, under `token`, until `completeCall` or `releaseCall`, at most for `leaseMs`. */
  claimCall(tx: Tx, claim: IdempotencyClaim, lease: CallLease): Promise<ClaimState>;
  /** Stores the answer that `claim` led to, in the transaction of the effect. */
  complete(tx: Tx, claim: IdempotencyClaim, answer: StoredAnswer): Promise<void>;
  /** The same for a call. Does nothing when the claim is no longer held under `token`. */
  completeCall(tx: Tx, claim: IdempotencyClaim, token: string, answer: StoredAnswer): Promise<void>;
  /** Gives the claim of a call up: its request was refused, and may be repeated. */
  releaseCall(tx: Tx, claim: IdempotencyClaim, token: string): Promise<void>;
};

export type CallLease = { readonly token: string; readonly leaseMs: number };

const PLACE = "header.idempotency-key";
const BARE = /^[\x20-\x7e]+$/;

/**
 * The key that a write was sent under, bare or as a quoted string (`"…"`, as the draft standard writes it); the two
 * forms of one text are one key.
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
    throw invalidRequest(PLACE, "Begins with a quote and is not a well-formed quoted string.");
  }
  if (typeof value !== "string" || value === "") throw invalidRequest(PLACE, "The quoted string is empty.");
  return value;
}

/** `body`: the bytes of a raw body, the checked value of any other, undefined where there is none. */
export function fingerprintOf(request: {
  readonly operationKey: string;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
}): Buffer {
  const { operationKey, params, query, body } = request;
  const bytes = Buffer.isBuffer(body) ? body : canonicalJson(body);
  const before = canonicalJson([operationKey, params, query]);
  // JSON holds no NUL, so that the parts cannot run into each other.
  return createHash("sha256").update(before).update("\0").update(bytes).digest();
}

/**
 * JSON with the members of every object in one order, so that equal values give equal texts. Throws for what JSON
 * cannot tell apart (a Map, a BigInt): a schema that makes such a value would make all requests look the same.
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
