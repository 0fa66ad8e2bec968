import type { Pool } from "pg";
import type { SessionStore, StaffSession } from "../console/session.ts";
import { type Actor, STAFF_SIGNED_IN } from "../model/audit.ts";
import { findAccountName } from "../store/accounts.ts";
import { writeAuditEntry } from "../store/audit-log.ts";
import { gatherByTurn } from "../store/coalesce.ts";
import {
  endSession,
  enterByLink,
  findSessions,
  insertStaffSession,
  noteSessionUse,
} from "../store/console-sessions.ts";
import { inTransaction } from "../store/transaction.ts";
import type { OutageAs503 } from "./outage-as-503.ts";

/**
 * The console's sessions, in the database. Those that are looked up in one turn of the event loop share a statement.
 *
 * @param ancestors origins that may frame a session now; one that has been removed frames none that is open, either
 */
export function createSessionStore(
  pool: Pool,
  ancestors: readonly string[],
  outageAs503: OutageAs503,
): SessionStore {
  const find = gatherByTurn((digests) => findSessions(pool, [...digests.keys()]));
  return {
    open: (digest, session, requestId) =>
      outageAs503(
        inTransaction(pool, async (tx) => {
          const id = await insertStaffSession(tx, digest, session);
          await writeAuditEntry(tx, {
            accountId: null,
            actor: signedIn(session, id),
            requestId,
            operationKey: STAFF_SIGNED_IN,
            details: {},
          });
        }),
      ),
    findAccountName: (accountId) => outageAs503(findAccountName(pool, accountId)),
    find: async (digest) => {
      const { answer: session = null } = await outageAs503(find(digest.toString("hex")));
      if (session === null || session.embedOrigin === null || ancestors.includes(session.embedOrigin))
        return session;
      return { ...session, embedOrigin: null };
    },
    enter: (linkDigest, digest) => outageAs503(enterByLink(pool, linkDigest, digest)),
    noteUse: (sessionId) => outageAs503(noteSessionUse(pool, sessionId)),
    end: (sessionId) => outageAs503(endSession(pool, sessionId)),
  };
}

function signedIn({ keyId, viewerLabel: viewer }: StaffSession, id: string): Actor {
  return { kind: keyId === null ? "staff" : "staff_key", keyId, session: { id, viewer } };
}
