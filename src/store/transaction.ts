import pg, { type ClientBase, type Pool, type PoolClient, type QueryConfig } from "pg";
import { isDatabaseAway } from "./availability.ts";
import { hangUp } from "./timed-client.ts";

/** Runs `work` in a transaction of its own or, given a client, in the one that the client is already in. */
export async function inTransaction<T>(
  database: ClientBase | Pool,
  work: (client: ClientBase) => Promise<T>,
): Promise<T> {
  if (!(database instanceof pg.Pool)) return await work(database as ClientBase);
  return await onConnection(database, async (client) => {
    await client.query("begin");
    const result = await work(client);
    await commit(client);
    return result;
  });
}

export type PipelinedTransaction<First, T> = {
  /** How long to wait for a lock; null: as long as a statement may take. */
  readonly lockWaitMs: number | null;
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
  { lockWaitMs, first, work }: PipelinedTransaction<First, T>,
): Promise<T> {
  return await onConnection(pool, async (client) => {
    const begun = beginOrHangUp(client, lockWaitMs);
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

function beginOrHangUp(client: ClientBase, lockWaitMs: number | null): Promise<void> {
  const limit = lockWaitMs === null ? "" : `; set local lock_timeout = ${Math.round(lockWaitMs)}`;
  return new Promise((resolve, reject) => {
    // By callback: it is called before the driver reads the next answer, and a promise's handler may be called after.
    client.query(`begin${limit}`, (error) => {
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

async function onConnection<T>(pool: Pool, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
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
