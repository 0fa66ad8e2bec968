import { createHash } from "node:crypto";
import type { FastifyRequest } from "fastify";
import type { ConsoleSession, EnteredLink } from "../base/model/console.ts";
import { isTimeZone } from "../base/model/time.ts";

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

/** In which zone this browser's viewer has chosen to see times, for every account and for staff's pages. */
export const ZONE_COOKIE = "__Host-sp-zone";

/** A link's token, and what a cookie holds: 256 random bits. */
export const SECRET = /^[A-Za-z0-9_-]{43}$/;

export function digestOf(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}

/** A part of the console: where its screens stand, and who may see them. */
export type Site = {
  /** With `{account_id}`, where its screens are of one account. */
  readonly path: string;
  /** Null: nobody whom it knows. */
  readonly find: (request: FastifyRequest) => Promise<Seen | null>;
};

/** Who looks at a page, and of which account; null: of none. */
export type Seen = {
  readonly session: ConsoleSession;
  readonly accountId: string | null;
  /** The site's path, with the account. */
  readonly base: string;
  /** Whoever looks is known; there is no such account. */
  readonly isAccountUnknown?: true;
};

/** Of viewers of an account's log, each account with a cookie of its own. */
export function accountSite(sessions: SessionStore): Site {
  return {
    path: "/console/a/{account_id}",
    find: async (request) => {
      const accountId = accountIdOf(request);
      const session = await findByCookie(sessions, request, cookieName(accountId));
      // Of the account in the path, whole: cookies of several accounts may be there.
      if (session?.accountId !== accountId) return null;
      return { session, accountId, base: `/console/a/${accountId}` };
    },
  };
}

export async function findByCookie(
  sessions: SessionStore,
  request: FastifyRequest,
  name: string,
): Promise<ConsoleSession | null> {
  const { [name]: secret = "", [ZONE_COOKIE]: zone = "" } = request.cookies;
  const session = SECRET.test(secret) ? await sessions.find(digestOf(secret)) : null;
  return session && { ...session, timeZone: isTimeZone(zone) ? zone : session.timeZone };
}

export function accountIdOf(request: FastifyRequest): string {
  const { account_id = "" } = request.params as Record<string, string>;
  return account_id;
}
