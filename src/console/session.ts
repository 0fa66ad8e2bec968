import { createHash } from "node:crypto";
import type { ConsoleSession, EnteredLink } from "../model/console.ts";

/** What a session of support staff begins with. `keyId` null: a proxy in front vouches for them. */
export type StaffSession = {
  readonly keyId: string | null;
  readonly permissions: readonly string[];
  readonly viewerId: string | null;
  readonly viewerLabel: string | null;
};

/** Where sessions are kept, by SHA-256 digests. Functions throw `TemporarilyUnavailable` without their database. */
export type SessionStore = {
  /** Of support staff; the audit log says so. */
  open(digest: Buffer, session: StaffSession, requestId: string): Promise<void>;
  /** Null: there is no such account. */
  findAccountName(accountId: string): Promise<string | null>;
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

/** A link's token, and what a cookie holds: 256 random bits. */
export const SECRET = /^[A-Za-z0-9_-]{43}$/;

export function digestOf(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}
