/**
 * With whose eyes something published is read. What a run of a workflow published is of its space: whoever may read
 * that space now reads it, and for all others it does not exist.
 */
export type Reader = {
  readonly accountId: string;
  /** The spaces that the reading user is a member of at this moment; null: no user, and all of the account is read. */
  readonly spaceIds: readonly string[] | null;
};

/** For the account's own keys, staff, and what reads by itself. Operations get their readers from the kernel. */
export function wholeAccount(accountId: string): Reader {
  return { accountId, spaceIds: null };
}

/** The spaces of an account that a user is a member of now. `Database`: null for a pool, or an open transaction. */
export type FindSpaces<Database> = (
  accountId: string,
  userId: string,
  tx: Database | null,
) => Promise<readonly string[]>;
