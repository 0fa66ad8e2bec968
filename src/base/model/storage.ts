/**
 * What an account stores, by kind, and the kind's share of `ACCOUNT_STORAGE_BYTES_MAX`; null: a limit of its own.
 * Together they are all of it but for leftovers, which are gone soon, and may be as much as documents: all that one
 * user may have can be renamed twice a day.
 */
const SHARES = {
  /** What it has published, for as long as it is kept, 2 KiB each for its rows in the log, and attempts. */
  analyses: null,
  /** Bulk replays, ended ones included, and what they have started or have still to start. */
  replays: 1 / 16,
  /**
   * Of its writes, for their Idempotency-Keys, of one day (UTC), at 1 KiB and the body; those to publishing only where
   * it was known already.
   */
  answers: 1 / 16,
  /** Rows of the audit log that its requests have left, as long as they are kept, at 512 bytes and their details. */
  audit: 1 / 16,
  /** Their contents, uploads under way included, and 1 KiB for each document, folder and space. */
  documents: 9 / 16,
  /** Of renames and uploads that did not count, in the object store until removed, at 1 KiB and the object. */
  leftovers: 9 / 16,
  /** Drafts, versions with their HTML, and 1 KiB for each of them and each link. */
  pages: 1 / 16,
  /** Drafts, versions, and 1 KiB for each. */
  workflows: 1 / 32,
  /** Inputs and items of runs, ended ones included, and what tells of them. */
  runs: 5 / 32,
} as const;

export type StorageKind = keyof typeof SHARES;

export const STORAGE_KINDS = Object.keys(SHARES) as readonly StorageKind[];

/** What there is no room for, and what to do. */
export function storageFullMessage(kind: StorageKind, bytesMax: number): string {
  switch (kind) {
    case "answers":
      return (
        `An account may store ${bytesMax} bytes of answers a day, one user half of what the rest leaves free. There ` +
        "is no room for this one: continue after 00:00 UTC."
      );
    case "audit":
      return (
        `An account's changes may take ${bytesMax} bytes of the audit log, one user's changes half of what the rest ` +
        "leaves free, and this would exceed that."
      );
    default:
      return (
        `The account may store ${bytesMax} bytes of the kind "${kind}", one user half of what the rest leaves free, ` +
        "and this would exceed that."
      );
  }
}

/**
 * What an operator may say that one account may have of the workspace (`sealpost account quota`), whatever the limits
 * of kinds are: in words, and what a request is refused with that would exceed it.
 */
export const QUOTAS = {
  bytes: {
    what: "bytes of documents, pages, workflows and runs together",
    code: "billing_credits_exhausted",
  },
  documents: { what: "documents, those in the bin included", code: "billing_credits_exhausted" },
  runs_per_day: { what: "runs a day (UTC)", code: "billing_credits_exhausted" },
  ended_run_bytes: {
    what: "bytes kept by ended runs when another one starts",
    code: "billing_credits_exhausted",
  },
  space_bytes: { what: "bytes of documents and folders in one space", code: "space_too_large" },
  space_documents: { what: "documents in one space, those in the bin included", code: "space_too_large" },
} as const;

export type Quota = keyof typeof QUOTAS;

export const QUOTA_NAMES = Object.keys(QUOTAS) as readonly Quota[];

/** What one quota comes to. */
export type QuotaUse = {
  readonly quota: Quota;
  /** Of the space that has the most, where it is about one. */
  readonly used: number;
  /** Null: any amount. */
  readonly most: number | null;
};

/** What would have been stored beyond what there may be. */
export type StorageRefusal =
  | { readonly kind: StorageKind; readonly bytesMax: number }
  | { readonly quota: Quota; readonly most: number };

/** What a request is refused with, and why. */
export function refusalOf(refusal: StorageRefusal): { readonly code: string; readonly message: string } {
  if ("kind" in refusal) {
    return { code: "storage_full", message: storageFullMessage(refusal.kind, refusal.bytesMax) };
  }
  const { what, code } = QUOTAS[refusal.quota];
  return { code, message: `The account may have ${refusal.most} ${what}, and this would exceed that.` };
}

/** Of each kind how much an account may store; null: any amount. */
export type StorageLimits = Readonly<Record<StorageKind, number | null>>;

/** @param analysesBytesMax null: any amount */
export function storageLimitsOf(storageBytesMax: number, analysesBytesMax: number | null): StorageLimits {
  const limits = Object.entries(SHARES).map(([kind, share]) => {
    return [kind, share === null ? analysesBytesMax : Math.floor(storageBytesMax * share)];
  });
  return Object.fromEntries(limits);
}

/** The rows of a delivery in the log, with their entries in indexes: so much is counted for each, besides attempts. */
export const LOG_BYTES_PER_ANALYSIS = 2_048;

/** What one kind comes to. */
export type StorageUse = {
  readonly kind: StorageKind;
  readonly bytes: number;
  /** Null: any amount. */
  readonly bytesMax: number | null;
};

/** The SQLSTATE that refuses what would be more: see sql/0009_accounts.sql. */
export const STORAGE_FULL_STATE = "SP009";
