import type { ConsoleSession, EnteredLink } from "../model/console.ts";

/** Where sessions are kept, by SHA-256 digests. Functions throw `TemporarilyUnavailable` without their database. */
export type SessionStore = {
  find(digest: Buffer): Promise<ConsoleSession | null>;
  enter(linkDigest: Buffer, digest: Buffer): Promise<EnteredLink>;
  noteUse(sessionId: string): Promise<void>;
  end(sessionId: string): Promise<void>;
};

/**
 * Of an account's session. The last digits of the account's id: the first ones of ids that were made in one minute are
 * the same. The whole id is compared once the session is found.
 */
export function cookieName(accountId: string): string {
  return `__Host-sp-${accountId.slice(-12)}`;
}
