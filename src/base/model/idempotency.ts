/** Who used an Idempotency-Key, and for what. Unique per account, API key and idempotency key. */
export type IdempotencyClaim = {
  readonly accountId: string;
  readonly keyId: string;
  readonly idempotencyKey: string;
  readonly operationKey: string;
  /** SHA-256 over operation, params, query and body. */
  readonly fingerprint: Buffer;
};

/** A successful response, stored to be replayed. */
export type StoredResponse = {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Null: a response without a body. */
  readonly body: Buffer | null;
  /** Whether the body is encrypted at rest. */
  readonly holdsSecret: boolean;
};

/** A claim with the response that is to be stored for it. */
export type CompletedClaim = {
  readonly claim: IdempotencyClaim;
  readonly response: StoredResponse;
  /** How it counts towards what the account may store. */
  readonly counted: CountedAnswer;
};

export type CountedAnswer = {
  /** Whose share it takes; null: nobody's, of the account's key itself. */
  readonly userId: string | null;
  /** Whether it is, and its write with it, once there is no room. */
  readonly isRefused: boolean;
  /** What its write takes of the audit log. */
  readonly auditBytes: number;
};

export type ClaimState =
  | { readonly state: "claimed" }
  /** The caller's key is good no more. */
  | { readonly state: "no_key" }
  /** Another request holds the claim: its transaction is open, or its call is in progress. */
  | { readonly state: "in_progress" }
  /** The account is in another cell, or on its way there: nothing is written here, and nothing answered again. */
  | { readonly state: "moved"; readonly cell: string }
  /** `fingerprint`: that of the completed request. */
  | { readonly state: "completed"; readonly fingerprint: Buffer; readonly response: StoredResponse };

/** Holds a claim beyond its transaction while a call is in progress. After a crash it expires in `leaseMs`. */
export type CallLease = { readonly token: string; readonly leaseMs: number };
