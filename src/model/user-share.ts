/** How many of something an account has. */
export type Held = {
  readonly inAll: number;
  /** Of these, those of the user that whoever asks acts for; null: for none. */
  readonly ofUser: number | null;
};

/** What a refusal says after what the account has. */
export const USER_SHARE =
  "or the key acts for a user who has used up their share: half of what the account's others leave.";

/**
 * Whether there is room for so many more. A user gets half of what the account's others leave, rounded up: so one who
 * takes all they get leaves the next one as many, and so on. Who acts for no user may have all.
 */
export function hasRoomFor(more: number, { inAll, ofUser }: Held, max: number): boolean {
  if (inAll + more > max) return false;
  return ofUser === null || ofUser + more <= Math.ceil((max - (inAll - ofUser)) / 2);
}
