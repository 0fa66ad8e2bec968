import type { Pool } from "pg";
import { findShownAccount } from "../accounts/accounts-sql.ts";
import { consoleUrl } from "../accounts/console-sessions-api.ts";
import {
  endSession,
  enterByLink,
  findSessions,
  insertLink,
  insertStaffSession,
  noteSessionUse,
} from "../accounts/console-sessions-sql.ts";
import { writeAuditEntry } from "../base/database/audit-log.ts";
import { gatherByTurn } from "../base/database/coalesce.ts";
import { inTransaction } from "../base/database/transaction.ts";
import { accountScopes } from "../base/model/api-keys.ts";
import { STAFF_SIGNED_IN } from "../base/model/audit.ts";
import { SESSION_SECONDS } from "../base/model/console.ts";
import type { SessionStore } from "../console/site.ts";
import { digestSecret, newSecret } from "../http/api-keys.ts";
import { changeAudited } from "./create-api-key.ts";

/**
 * A link that opens the console for whoever runs the command line, with every permission: that person could make any
 * key. It is in the audit log, and so is what is done with it.
 */
export async function openConsole(
  pool: Pool,
  accountId: string,
  { publicUrl, linkSeconds }: { readonly publicUrl: string; readonly linkSeconds: number },
): Promise<{ readonly url: string; readonly expiresAt: Date }> {
  const token = newSecret();
  const link = await changeAudited(pool, "console.links.create", async (tx) => {
    const done = await insertLink(tx, {
      accountId,
      keyId: null,
      permissions: accountScopes,
      viewerId: "command line",
      viewerLabel: "command line",
      embedOrigin: null,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      theme: null,
      path: null,
      linkDigest: digestSecret(token),
      linkSeconds,
      sessionSeconds: SESSION_SECONDS.max,
    });
    return { done, accountId, details: { permissions: accountScopes } };
  });
  return { url: consoleUrl(publicUrl, token, null), expiresAt: link.linkExpiresAt };
}

/**
 * The console's sessions, in the database. Those that are looked up in one turn of the event loop share a statement.
 * @param ancestors origins that may frame a session now; one that has been removed frames none that is open, either
 */
export function createSessionStore(pool: Pool, ancestors: readonly string[]): SessionStore {
  const find = gatherByTurn((digests) => findSessions(pool, [...digests.keys()]));
  return {
    open: (digest, session, requestId) =>
      inTransaction(pool, async (tx) => {
        const id = await insertStaffSession(tx, digest, session);
        const { keyId, viewerLabel: viewer } = session;
        const kind = keyId === null ? "staff" : "staff_key";
        const actor = { kind, keyId, session: { id, viewer } } as const;
        const entry = { accountId: null, operationKey: STAFF_SIGNED_IN, details: {} };
        await writeAuditEntry(tx, { ...entry, actor, requestId });
      }),
    findAccount: (accountId) => findShownAccount(pool, accountId),
    find: async (digest) => {
      const { answer: session = null } = await find(digest.toString("hex"));
      if (session === null || session.embedOrigin === null || ancestors.includes(session.embedOrigin))
        return session;
      return { ...session, embedOrigin: null };
    },
    enter: (linkDigest, digest) => enterByLink(pool, linkDigest, digest),
    noteUse: (sessionId) => noteSessionUse(pool, sessionId),
    end: (sessionId) => endSession(pool, sessionId),
  };
}
