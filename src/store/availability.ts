import pg from "pg";
import { OtherCellError } from "./cells.ts";

/**
 * SQLSTATEs that say "not now", where the same again may well succeed: no connection (08) or none that is let in (28,
 * 3D), no resources (53), the operator or a timeout ended it (57), a lock was not to be had (55P03), another
 * transaction was in the way (40), the session was ended (25P03) or can only read, because another server has taken
 * over (25006).
 */
const NOT_NOW = /^(?:08|28|3D|53|57|40|55P03|25P03|25006)/;

/** How what the driver says itself begins; it gives these no code. */
const DRIVER_SAYS = [
  "Connection terminated",
  "timeout expired",
  "timeout exceeded when trying to connect",
  "Query read timeout",
  "Client has encountered a connection error",
  "Client was closed",
  "Cannot use a pool after calling end",
];

/** A refused, cut or silent connection; the name of the server may not even be known. */
const SOCKET_SAYS = /^(?:ECONN|EPIPE|ETIMEDOUT|EHOST|ENET|ENOTFOUND|EAI_|ENOENT)/;

/** Whether the database did not answer, or could not at the moment, as opposed to refusing what was asked. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // Ours is elsewhere, and may be back where we look for it at any time.
  if (error instanceof OtherCellError) return true;
  const { code = "" } = error as NodeJS.ErrnoException;
  if (error instanceof pg.DatabaseError) return NOT_NOW.test(code);
  return SOCKET_SAYS.test(code) || DRIVER_SAYS.some((text) => error.message.startsWith(text));
}

/** Whether another transaction was in the way: a lock was not to be had within `lock_timeout`, or class 40. */
export function isInTheWay(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:55P03|40)/.test(error.code ?? "");
}
