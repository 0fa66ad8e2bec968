import pg, { type ClientBase, type Pool } from "pg";
import { isDatabaseAway } from "./availability.ts";

/**
 * Runs `work` in a transaction: one of its own on a connection of the pool, or, given a client, the one that the client
 * is already in.
 *
 * @param options.lockWaitMs how long to wait for a lock; null: as long as a statement may take
 */
export async function inTransaction<T>(
  database: ClientBase | Pool,
  work: (client: ClientBase) => Promise<T>,
  { lockWaitMs = null }: { readonly lockWaitMs?: number | null } = {},
): Promise<T> {
  if (!(database instanceof pg.Pool)) return await work(database as ClientBase);
  const client = await database.connect();
  let isBroken = false;
  try {
    // Both in one message, so that a limit on locks costs no round trip.
    const limit = lockWaitMs === null ? "" : `; set local lock_timeout = ${Math.round(lockWaitMs)}`;
    await client.query(`begin${limit}`);
    const result = await work(client);
    await client.query("commit");
    return result;
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
