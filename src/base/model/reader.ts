/** With whose eyes something published is read: what a run published, who may read its space now, and nobody else. */
export type Reader = {
  readonly accountId: string;
  /**
   * The spaces that the reading user is a member of at this moment, as PostgreSQL writes a `uuid[]`, which nobody here
   * takes apart; null: no user, and all of the account is read.
   */
  readonly spaceIds: string | null;
};

/** A `uuid[]` of none. */
export const NO_SPACES = "{}";

/** For the account's own keys, staff, and what reads by itself. Operations get their readers from the kernel. */
export function wholeAccount(accountId: string): Reader {
  return { accountId, spaceIds: null };
}

/**
 * The spaces of an account that a user is a member of now, as a `uuid[]`. `Database`: null for a pool, or an open
 * transaction, until whose end they stay: whoever removes the user from one waits, and sees what it has written.
 */
export type FindSpaces<Database> = (
  accountId: string,
  userId: string,
  tx: Database | null,
) => Promise<string>;

/** How many of something an account has. */
export type Held = {
  readonly inAll: number;
  /** Of these, those of the user that whoever asks acts for; null: for none. */
  readonly ofUser: number | null;
};

/** What a refusal says after what the account has. */
export const USER_SHARE =
  "or the key acts for a user who has used up their share: half of what the rest of the account leaves free.";

/**
 * Whether there is room for so many more. A user gets half of what the account's others leave, rounded up: so one who
 * takes all they get leaves the next one as many, and so on. Who acts for no user may have all.
 */
export function hasRoomFor(more: number, { inAll, ofUser }: Held, max: number): boolean {
  if (inAll + more > max) return false;
  return ofUser === null || ofUser + more <= Math.ceil((max - (inAll - ofUser)) / 2);
}
