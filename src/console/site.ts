import type { FastifyRequest } from "fastify";
import type { ConsoleSession } from "../model/console.ts";
import { cookieName, digestOf, SECRET, type SessionStore } from "./session.ts";
import { chosenZone } from "./time-zones.ts";

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
  const secret = request.cookies[name] ?? "";
  const session = SECRET.test(secret) ? await sessions.find(digestOf(secret)) : null;
  return session && { ...session, timeZone: chosenZone(request) ?? session.timeZone };
}

export function accountIdOf(request: FastifyRequest): string {
  const { account_id = "" } = request.params as Record<string, string>;
  return account_id;
}
