import type { FastifyRequest } from "fastify";
import type { ConsoleSession } from "../../base/model/console.ts";
import { isUuid } from "../../base/model/formats.ts";
import { accountIdOf, findByCookie, type SessionStore, type Site } from "../site.ts";

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
export const STAFF_COOKIE = "__Host-sp-staff";

export type StaffOptions = {
  readonly sessions: SessionStore;
  readonly readAssertion: ReadAssertion | null;
};

/** Across accounts. */
export function staffSite(options: StaffOptions): Site {
  return {
    path: STAFF_PATH,
    find: async (request) => {
      const session = await findStaffSession(options, request);
      return session === null ? null : { session, accountId: null, base: STAFF_PATH };
    },
  };
}

/** An account's own screens, for staff. */
export function staffAccountSite(options: StaffOptions): Site {
  return {
    path: `${STAFF_PATH}/a/{account_id}`,
    find: async (request) => {
      const session = await findStaffSession(options, request);
      if (session === null) return null;
      const accountId = accountIdOf(request);
      const accountName = isUuid(accountId) ? await options.sessions.findAccountName(accountId) : null;
      if (accountName === null) return { session, accountId: null, base: STAFF_PATH, isAccountUnknown: true };
      return { session: { ...session, accountName }, accountId, base: `${STAFF_PATH}/a/${accountId}` };
    },
  };
}

/**
 * A session that a proxy vouched for is good for as long as it vouches: each request brings an assertion of the same
 * person, who may do what that says.
 */
async function findStaffSession(
  { sessions, readAssertion }: StaffOptions,
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
