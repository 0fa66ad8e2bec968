import type { Pool } from "pg";
import type { SessionStore } from "../console/session.ts";
import { findAccountName } from "../store/accounts.ts";
import {
  endSession,
  enterByLink,
  findSession,
  insertStaffSession,
  noteSessionUse,
} from "../store/console-sessions.ts";
import type { OutageAs503 } from "./outage-as-503.ts";

/** The console's sessions, in the database. */
export function createSessionStore(pool: Pool, outageAs503: OutageAs503): SessionStore {
  return {
    open: (digest, session) => outageAs503(insertStaffSession(pool, digest, session)),
    findAccountName: (accountId) => outageAs503(findAccountName(pool, accountId)),
    find: (digest) => outageAs503(findSession(pool, digest)),
    enter: (linkDigest, digest) => outageAs503(enterByLink(pool, linkDigest, digest)),
    noteUse: (sessionId) => outageAs503(noteSessionUse(pool, sessionId)),
    end: (sessionId) => outageAs503(endSession(pool, sessionId)),
  };
}
