import type { FastifyInstance, FastifyRequest } from "fastify";
import type { ConsoleSession, EnteredLink, ShownAccount, StaffSession } from "../base/model/console.ts";
import { isUuid } from "../base/model/formats.ts";
import type { Origins } from "../base/model/origins.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { isTimeZone } from "../base/model/time.ts";
import { digestSecret } from "../http/api-keys.ts";
import type { Kernel } from "../http/kernel.ts";
import type { Assets } from "./assets.ts";
import type { Framers } from "./embedding.ts";
import type { Installation } from "./screen.ts";

/** Whom a proxy in front vouches for, by its signature. */
export type StaffPerson = {
  /** The assertion's subject. */
  readonly id: string;
  /** For people: who it was stands in the audit log. */
  readonly name: string;
  /** What the person's groups may do; none, perhaps. */
  readonly scopes: ReadonlySet<string>;
};

/**
 * Null: the request has no assertion, or none that holds. Nothing else in a request is believed.
 *
 * @throws TemporarilyUnavailable where the proxy's keys cannot be had
 */
export type ReadAssertion = (headers: FastifyRequest["headers"]) => Promise<StaffPerson | null>;

export const STAFF_PATH = "/console/staff";

/** Where sessions are kept, by SHA-256 digests. */
export type SessionStore = {
  /** Of support staff; the audit log says so. */
  open(digest: Buffer, session: StaffSession, requestId: string): Promise<void>;
  /** Null: there is no such account. */
  findAccount(accountId: string): Promise<ShownAccount | null>;
  find(digest: Buffer): Promise<ConsoleSession | null>;
  enter(linkDigest: Buffer, digest: Buffer): Promise<EnteredLink>;
  noteUse(sessionId: string): Promise<void>;
  end(sessionId: string): Promise<void>;
};

export type ConsoleOptions = Installation & {
  readonly sessions: SessionStore;
  /** Origins that may show an account's console in a frame. */
  readonly ancestors: readonly string[];
  /** For the links of those; see framerTag. */
  readonly secretsKey: SecretsKey;
  /** Of support staff, by a proxy in front; null: there is none. */
  readonly readAssertion: ReadAssertion | null;
  /** Null: nothing here makes analyses. */
  readonly origins: Origins | null;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

/** What routes of the console are added with. */
export type ConsoleContext = {
  readonly pages: FastifyInstance;
  readonly kernel: Kernel;
  readonly options: ConsoleOptions;
  readonly assets: Assets;
  readonly framers: Framers;
};

/**
 * Of an account's session. The last digits of the account's id: the first ones of ids that were made in one minute are
 * the same. The whole id is compared once the session is found.
 */
export function cookieName(accountId: string): string {
  return `__Host-sp-${accountId.slice(-12)}`;
}

export const STAFF_COOKIE = "__Host-sp-staff";

/** In which zone this browser's viewer has chosen to see times, for every account and for staff's pages. */
export const ZONE_COOKIE = "__Host-sp-zone";

/** A link's token, and what a cookie holds: see newSecret. */
export const SECRET = /^[A-Za-z0-9_-]{43}$/;

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
      const { account_id: accountId = "" } = request.params as Record<string, string>;
      const session = await findByCookie(sessions, request, cookieName(accountId));
      // Of the account in the path, whole: cookies of several accounts may be there.
      if (session?.accountId !== accountId) return null;
      return { session, accountId, base: `/console/a/${accountId}` };
    },
  };
}

async function findByCookie(
  sessions: SessionStore,
  request: FastifyRequest,
  name: string,
): Promise<ConsoleSession | null> {
  const { [name]: secret = "", [ZONE_COOKIE]: zone = "" } = request.cookies;
  const session = SECRET.test(secret) ? await sessions.find(digestSecret(secret)) : null;
  return session && { ...session, timeZone: isTimeZone(zone) ? zone : session.timeZone };
}

/** Across accounts. */
export function staffSite(options: ConsoleOptions): Site {
  return {
    path: STAFF_PATH,
    find: async (request) => {
      const session = await findStaffSession(options, request);
      return session === null ? null : { session, accountId: null, base: STAFF_PATH };
    },
  };
}

/** An account's own screens, for staff. */
export function staffAccountSite(options: ConsoleOptions): Site {
  return {
    path: `${STAFF_PATH}/a/{account_id}`,
    find: async (request) => {
      const session = await findStaffSession(options, request);
      if (session === null) return null;
      const { account_id: accountId = "" } = request.params as Record<string, string>;
      const account = isUuid(accountId) ? await options.sessions.findAccount(accountId) : null;
      if (account === null) return { session, accountId: null, base: STAFF_PATH, isAccountUnknown: true };
      return { session: { ...session, ...account }, accountId, base: `${STAFF_PATH}/a/${accountId}` };
    },
  };
}

/**
 * A session that a proxy vouched for is good for as long as it vouches: each request brings an assertion of the same
 * person, who may do what that says.
 */
async function findStaffSession(
  { sessions, readAssertion }: ConsoleOptions,
  request: FastifyRequest,
): Promise<ConsoleSession | null> {
  const session = await findByCookie(sessions, request, STAFF_COOKIE);
  if (session === null || session.accountId !== null) return null;
  if (session.keyId !== null) return session;
  const person = (await readAssertion?.(request.headers)) ?? null;
  if (person === null || person.id !== session.viewerId || !isStaff(person.scopes)) return null;
  return { ...session, permissions: person.scopes };
}

/** Whether the console opens for whoever may do this. */
export function isStaff(scopes: ReadonlySet<string>): boolean {
  return scopes.has("staff:read");
}
