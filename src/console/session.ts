import type { ConsoleTheme } from "../model/console.ts";

/** Who looks at a page. */
export type Session = {
  readonly id: string;
  /** Null: support staff. */
  readonly accountId: string | null;
  readonly accountName: string | null;
  /** The key that opened it; null: the command line. */
  readonly keyId: string | null;
  readonly permissions: ReadonlySet<string>;
  readonly viewerLabel: string | null;
  /** The origin that may frame it; null: none. */
  readonly embedOrigin: string | null;
  /** Times are shown in it; null: UTC. */
  readonly timeZone: string | null;
  readonly theme: ConsoleTheme | null;
  readonly expiresAt: Date;
};

export type Entered =
  | { readonly kind: "entered"; readonly accountId: string; readonly path: string | null }
  | { readonly kind: "used" | "expired" | "unknown" };

/** Where sessions are kept, by SHA-256 digests. Functions throw `TemporarilyUnavailable` without their database. */
export type SessionStore = {
  find(digest: Buffer): Promise<Session | null>;
  enter(linkDigest: Buffer, digest: Buffer): Promise<Entered>;
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
