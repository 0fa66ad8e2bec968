/** Whose Idempotency-Key it is, and what it was used for. Unique over account, API key and idempotency key. */
export type IdempotencyClaim = {
  readonly accountId: string;
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly operationKey: string;
  /** SHA-256 over operation, params, query and body: equal for equal requests only. */
  readonly fingerprint: Buffer;
};

/** A successful response, kept to be replayed. */
export type StoredResponse = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Null: a response without a body. */
  readonly body: Buffer | null;
  /** Whether the body is encrypted at rest. */
  readonly holdsSecret: boolean;
};

export type ClaimState =
  | { readonly state: "claimed" }
  /** Another request holds the claim: its transaction is open, or its call is under way. */
  | { readonly state: "in_progress" }
  /** `fingerprint`: that of the completed request. */
  | { readonly state: "completed"; readonly fingerprint: Buffer; readonly response: StoredResponse };

/** Holds a claim beyond its transaction, while a call is under way. A crash frees it after `leaseMs`. */
export type CallLease = { readonly token: string; readonly leaseMs: number };
