import type { ClientBase, Pool, PoolClient, QueryConfig } from "pg";
import pg from "pg";
import { OtherCellError } from "./cells.ts";
import { hangUp, UnreadableFileError } from "./timed-client.ts";

/**
 * SQLSTATEs where the same again may well succeed: no connection (08) or none that is let in (28, 3D), no resources
 * (53), ended by the operator or a timeout (57), no lock (55P03), another transaction in the way (40), the session was
 * ended (25P03) or can only read, because another server has taken over (25006).
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

/** What OpenSSL says of a certificate, and Node of its names. */
const CERTIFICATE_SAYS = /^(?:CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|INVALID_CA|ERR_TLS_CERT_ALTNAME_)/;
/** And of what our own files hold. */
const FILE_SAYS = /^ERR_OSSL_(?:PEM|X509|ASN1|UNSUPPORTED|BAD_DECRYPT)/;
/** The server, of our certificate or of TLS with us at all. */
const SERVER_SAYS = /^ERR_SSL_.*ALERT/;

/** What is wrong with TLS on the way to the database that `url` names, and what to do; null: something else is. */
export function tlsFaultOf(error: unknown, url = "DATABASE_URL"): string | null {
  const { code = "", message } = error as NodeJS.ErrnoException;
  if (error instanceof UnreadableFileError) return message.replace("DATABASE_URL", url);
  if (message === "The server does not support SSL connections")
    return `The database's server offers no TLS, which ${url} asks for: turn it on there (ssl = on).`;
  if (FILE_SAYS.test(code))
    return `A file for TLS that ${url} names cannot be used (${code}): sslkey must be the key of sslcert, all in PEM.`;
  if (SERVER_SAYS.test(code))
    return `The database's server refuses TLS with us (${code}): sslcert in ${url} must be valid, and known there.`;
  if (!CERTIFICATE_SAYS.test(code)) return null;
  const mend = /ALTNAME/.test(code)
    ? `the host in ${url} must be one that it is for`
    : /EXPIRED|NOT_YET/.test(code)
      ? "renew it there, and check this machine's clock"
      : `name the file of the authority that signed it in ${url}, with sslrootcert=FILE`;
  return `The certificate of the database's server is not accepted (${code}): ${mend}.`;
}

/** Whether the database did not answer, or could not at the moment, as opposed to refusing what was asked. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // Ours is elsewhere, and may be back where we look for it at any time.
  if (error instanceof OtherCellError) return true;
  const { code = "" } = error as NodeJS.ErrnoException;
  if (error instanceof pg.DatabaseError) return NOT_NOW.test(code);
  if (tlsFaultOf(error) !== null) return true;
  return SOCKET_SAYS.test(code) || DRIVER_SAYS.some((text) => error.message.startsWith(text));
}

/** Whether another transaction was in the way: a lock was not to be had within `lock_timeout`, or class 40. */
export function isTransactionConflict(error: unknown): boolean {
  return error instanceof pg.DatabaseError && /^(?:55P03|40)/.test(error.code ?? "");
}

/**
 * Begins a transaction for a statement that locks or changes rows and looks up others in partitions. Where PostgreSQL
 * 18 (seen in 18.4) chooses partitions as it goes, and meets a row that somebody has just changed, it reads memory that
 * it has freed, and the whole server ends.
 */
export const UNPRUNED = "begin; set local enable_partition_pruning = off";

/** Runs `work` in a transaction of its own or, given a client, in the one that the client is already in. */
export async function inTransaction<T>(
  database: ClientBase | Pool,
  work: (client: ClientBase) => Promise<T>,
  begin: "begin" | typeof UNPRUNED = "begin",
): Promise<T> {
  if (!(database instanceof pg.Pool)) return await work(database as ClientBase);
  return await onConnection(database, async (client) => {
    await client.query(begin);
    const result = await work(client);
    await commit(client);
    return result;
  });
}

export type PipelinedTransaction<First, T> = {
  /** Sends a statement that changes nothing by itself: it goes out together with BEGIN. */
  readonly first: (client: ClientBase) => Promise<First>;
  /** The rest, and the statement that COMMIT goes out together with; null: there is none. */
  readonly work: (
    client: ClientBase,
    first: First,
  ) => Promise<{ readonly result: T; readonly last: QueryConfig | null }>;
};

/**
 * The same in two round trips less, on a pool whose clients send without waiting for answers (`pipeline`).
 *
 * When BEGIN fails, what has been sent behind it takes effect by itself, hence `first`, and the connection is closed
 * before anything else can follow. When `last` fails, PostgreSQL answers COMMIT with ROLLBACK.
 */
export async function inPipelinedTransaction<First, T>(
  pool: Pool,
  { first, work }: PipelinedTransaction<First, T>,
): Promise<T> {
  return await onConnection(pool, async (client) => {
    const begun = beginOrHangUp(client);
    // Both are waited for whatever becomes of the other: a connection with answers to come is not given back.
    const [beginning, asking] = await Promise.allSettled([begun, first(client)]);
    if (beginning.status === "rejected") throw beginning.reason;
    if (asking.status === "rejected") throw asking.reason;
    const { result, last } = await work(client, asking.value);
    if (last === null) await commit(client);
    else await commitWith(client, last);
    return result;
  });
}

function beginOrHangUp(client: ClientBase): Promise<void> {
  return new Promise((resolve, reject) => {
    // By callback: it is called before the driver reads the next answer, and a promise's handler may be called after.
    client.query("begin", (error) => {
      if (!error) return resolve();
      hangUp(client as PoolClient);
      reject(error);
    });
  });
}

async function commitWith(client: ClientBase, last: QueryConfig): Promise<void> {
  let failure: Error | null = null;
  const answered = new Promise<void>((resolve) => {
    client.query(last, (error) => {
      failure = error ?? null;
      resolve();
    });
  });
  // What the driver cannot send it has refused by the next tick. PostgreSQL knows nothing of it and would commit.
  await new Promise<void>((resolve) => process.nextTick(resolve));
  const committed = failure === null ? commit(client) : Promise.resolve();
  const [, committing] = await Promise.allSettled([answered, committed]);
  // COMMIT then only says ROLLBACK.
  if (failure !== null) throw failure;
  if (committing.status === "rejected") throw committing.reason;
}

async function commit(client: ClientBase): Promise<void> {
  const { command } = await client.query("commit");
  if (command !== "COMMIT") throw new Error("COMMIT rolled back: a statement of the transaction had failed");
}

/**
 * `work` has the connection to itself, in no transaction yet; one that it opens and does not end is rolled back. When
 * it fails, this rejects once the server has undone it: a statement alone rejects before its locks are let go, and the
 * same again, elsewhere, would meet them.
 */
export async function onConnection<T>(
  database: Pool | ClientBase,
  work: (client: PoolClient) => Promise<T>,
): Promise<T> {
  if (!(database instanceof pg.Pool)) return await work(database as PoolClient);
  const client = await database.connect();
  let isBroken = false;
  try {
    return await work(client);
  } catch (error) {
    isBroken = !(await rollBack(client, error));
    throw error;
  } finally {
    client.release(isBroken);
  }
}

/** Whether the connection can be used again. One that is cut or hangs is not even asked: it would not answer. */
async function rollBack(client: ClientBase, error: unknown): Promise<boolean> {
  if (isDatabaseAway(error) && !(error instanceof pg.DatabaseError)) return false;
  return await client.query("rollback").then(
    () => true,
    () => false,
  );
}
