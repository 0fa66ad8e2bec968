import type pg from "pg";
import { createPool, type PoolOptions } from "./pools.ts";

/**
 * For graphile-worker. Left alone, the planner reads the whole table, dead rows too, while it was small when last
 * looked at: with 3,000 jobs waiting a fetch of 9 took 3.4 ms, at 900 new ones a second the queue never got shorter
 * again, and a POST came 3 s after its publishing. With the other ways off only the index in their order is left, and
 * there is nothing to be planned anew each time, which was half of what a fetch cost.
 *
 * Its transactions do not wait for the disk, which was half of the time from a publisher's commit to the POST: jobs are
 * hints, the truth is in the deliveries, and all that a crash of the server undoes is that a job was taken or done.
 */
export function createWakeupPool(options: PoolOptions): pg.Pool {
  const off = ["seqscan", "bitmapscan", "sort"];
  const pool = createPool(options, [
    "plan_cache_mode=force_generic_plan",
    "synchronous_commit=off",
    ...off.map((path) => `enable_${path}=off`),
  ]);
  pool.on("connect", ignoreMigrationNotices);
  pool.on("connect", lookJobsUp);
  sayOnlyThatItFailed(pool);
  return pool;
}

/**
 * Of three reasons why there is no connection (the server is starting, the host is not reached, the network is silent)
 * graphile-worker knows the codes, and sleeps 3 s and more, then half as long again each time, and takes no wake-up
 * meanwhile. Of an error without a code it looks again with the next poll.
 */
function sayOnlyThatItFailed(pool: pg.Pool): void {
  const connect = pool.connect.bind(pool) as (...args: readonly unknown[]) => Promise<pg.PoolClient>;
  const failed = (cause: unknown): never => {
    const { message } = cause as Error;
    throw new Error(`no connection for wake-ups: ${message}`, { cause });
  };
  pool.connect = ((...args: readonly unknown[]) =>
    args.length > 0 ? connect(...args) : connect().catch(failed)) as typeof pool.connect;
}

/**
 * graphile-worker stops when somebody says on this channel that its schema has changed, and any role that can connect
 * can say so. Our own migrations tell nobody anything that way: after an upgrade dispatchers are restarted in turn.
 */
function ignoreMigrationNotices(client: pg.ClientBase): void {
  const emit = client.emit.bind(client) as (event: string, ...args: unknown[]) => boolean;
  client.emit = ((event: string, ...args: unknown[]) => {
    const [notice] = args as [pg.Notification | undefined];
    if (event === "notification" && notice?.channel === "worker:migrate") return false;
    return emit(event, ...args);
  }) as typeof client.emit;
}

/**
 * graphile-worker takes and deletes jobs by joining them with the ids of some. Planned while the table had no rows, all
 * ways to join are as cheap, and the one that reads every job was taken: with 6,000 waiting, taking 33 took 120 ms, and
 * the queue grew until the next ANALYZE. Said as `= any (array[id])` only looking up is left.
 */
function lookJobsUp(client: pg.ClientBase): void {
  const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown;
  const ask = (statement: unknown, ...rest: readonly unknown[]) => query(lookingUp(statement), ...rest);
  client.query = ask as typeof client.query;
}

function lookingUp(statement: unknown): unknown {
  if (typeof statement !== "object" || statement === null || !("text" in statement)) return statement;
  const given = statement.text as string;
  const text = given.replace(/\bwhere (id|jobs\.id) = (n|j\.id)$/m, "where $1 = any (array[$2])");
  return text === given ? statement : { ...statement, text };
}
