import pg, { type ClientBase, type Pool } from "pg";

/**
 * Runs `work` in a transaction: one of its own on a connection of the pool, or, given a client, the one that the client
 * is already in.
 */
export async function inTransaction<T>(
  database: ClientBase | Pool,
  work: (client: ClientBase) => Promise<T>,
): Promise<T> {
  if (!(database instanceof pg.Pool)) return await work(database as ClientBase);
  const client = await database.connect();
  let failure: Error | undefined;
  try {
    await client.query("begin");
    const result = await work(client);
    await client.query("commit");
    return result;
  } catch (error) {
    failure = error instanceof Error ? error : new Error(String(error));
    // A connection that cannot even roll back is thrown away below; what went wrong first is what counts.
    await client.query("rollback").catch(() => undefined);
    throw error;
  } finally {
    client.release(failure !== undefined && !(failure instanceof pg.DatabaseError));
  }
}
