/**
 * The one place in src/ that knows graphile-worker. It is our queue of wake-ups, and part of what we need of it is not
 * its public interface: private tables, the text of two statements, how it treats errors and notifications. So
 * package.json pins one exact version, and test/base/database/graphile-worker.test.ts fails, naming what changed, when
 * another one breaks what this file and the SQL rely on. To upgrade: raise the version there and in package.json, run
 * that test, then the tests of wake-ups and the benchmarks.
 *
 * In SQL these rely on the private tables: sql/0005_publish.sql (sealpost.keep_task and its trigger, the trigger of
 * sealpost.announce_wakeups), sql/0006_promote.sql (sealpost.sweep_jobs, and the autovacuum settings of the jobs table)
 * and sql/0010_delivery.sql (sealpost.add_wakeups, sealpost.promote, sealpost.publish_fresh).
 */
import { EventEmitter } from "node:events";
import { Logger, run, runMigrations, type WorkerEvents } from "graphile-worker";
import pg from "pg";
import { addressOf, createPool, type PoolOptions } from "./pools.ts";

/** The task of our jobs; the queue may hold other tasks' jobs, which are none of ours. */
const TASK = "deliver";

/** Rows of the wake-ups that wait for a dispatcher; the subquery of a count. */
export const WAITING_WAKEUPS = `
  select from graphile_worker._private_jobs
  where is_available and task_id = (select id from graphile_worker._private_tasks where identifier = '${TASK}')`;

/** Wake-ups handled at once. A handler puts ids into memory and returns, so this many are plenty. */
const CONCURRENT_JOBS = 8;
/**
 * Fetched at once: pipelines that publish one at a time leave many small jobs, and behind a flood of them everybody's
 * next first attempt waits. More would leave nothing of a small burst for other dispatchers.
 */
const JOBS_FETCHED_MAX = 100;
const POLL_MS = 100;

/** Brings graphile-worker's own schema to the pinned version. */
export async function migrateGraphileWorker(databaseUrl: string, log: (line: string) => void): Promise<void> {
  const logger = new Logger(() => (level, message) => {
    if (level === "error" || level === "warning") log(`graphile-worker: ${message}`);
  });
  const pool = new pg.Pool({ ...addressOf(databaseUrl, []), max: 1, application_name: "sealpost migrate" });
  // A connection that breaks also fails its query. Without listeners graphile-worker complains and adds its own.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  try {
    await runMigrations({ pgPool: pool, logger });
  } finally {
    await pool.end();
  }
}

export type WakeupRunnerOptions = {
  /** Made by createWakeupPool. */
  readonly pool: pg.Pool;
  /** Takes one job's payload; the job is deleted once it resolves. */
  readonly handle: (payload: unknown) => Promise<void>;
  /** The queue was read and held so many jobs. `lookAgain` reads it again, unless it is busy or stopped. */
  readonly onLook: (found: number, lookAgain: () => void) => void;
  /** The runner has begun to end, asked or not. */
  readonly onEnding: () => void;
};

export type WakeupRunner = {
  /** Settles when the runner has ended, asked or not; after a failed stop it may never settle. */
  readonly ended: Promise<void>;
  /** Rejects when the database is gone. */
  stop(): Promise<void>;
};

/** Runs our jobs until stopped, or until graphile-worker gives up. */
export async function startWakeupRunner(options: WakeupRunnerOptions): Promise<WakeupRunner> {
  const events: WorkerEvents = new EventEmitter();
  events.on("localQueue:getJobs:complete", ({ localQueue, jobs }) => {
    options.onLook(jobs.length, () => localQueue.pulse(1));
  });
  events.on("pool:gracefulShutdown", options.onEnding);
  const runner = await run({
    events,
    pgPool: options.pool,
    noHandleSignals: true,
    logger: new Logger(() => () => undefined),
    taskList: { [TASK]: options.handle },
    preset: {
      worker: {
        concurrentJobs: CONCURRENT_JOBS,
        pollInterval: POLL_MS,
        localQueue: { size: JOBS_FETCHED_MAX, ttl: 3_000 },
        completeJobBatchDelay: 20,
        failJobBatchDelay: 20,
        gracefulShutdownAbortTimeout: 5_000,
      },
    },
  });
  return { ended: runner.promise, stop: () => runner.stop() };
}

/**
 * The runner's connections. Left to itself, the planner reads the whole table, dead rows included, if it was small
 * when last analyzed: the queue then grows faster than it is read. With the other ways switched off only the index in
 * their order is left, and with generic plans nothing is planned anew at each fetch. Figures: test/bench/README.md.
 *
 * Its transactions do not wait for the disk (synchronous_commit=off): jobs are hints, the truth is in the deliveries,
 * and a crash of the server can only undo that a job was taken or done.
 */
export function createWakeupPool(options: PoolOptions): pg.Pool {
  const off = ["seqscan", "bitmapscan", "sort"];
  const pool = createPool(options, [
    "plan_cache_mode=force_generic_plan",
    "synchronous_commit=off",
    ...off.map((path) => `enable_${path}=off`),
  ]);
  pool.on("connect", ignoreMigrationNotices);
  pool.on("connect", rewriteJoins);
  hideErrorCodes(pool);
  return pool;
}

/**
 * For three causes of a failed connection (server starting, host unreachable, network silent) graphile-worker knows
 * the error code, sleeps 3 s and then half as long again each time, and takes no wake-up meanwhile. After an error
 * without a code it looks again at the next poll.
 */
function hideErrorCodes(pool: pg.Pool): void {
  const connect = pool.connect.bind(pool) as (...args: readonly unknown[]) => Promise<pg.PoolClient>;
  const failed = (cause: unknown): never => {
    const { message } = cause as Error;
    throw new Error(`no connection for wake-ups: ${message}`, { cause });
  };
  pool.connect = ((...args: readonly unknown[]) =>
    args.length > 0 ? connect(...args) : connect().catch(failed)) as typeof pool.connect;
}

/**
 * graphile-worker stops when it is notified on this channel that its schema has changed, and any role that can connect
 * can notify. Our own migrations do not rely on it: after an upgrade dispatchers are restarted in turn.
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
 * graphile-worker fetches and deletes jobs by a join with a list of ids. A plan made while the table was empty may read
 * the whole table for it, and stays until the next ANALYZE while the queue grows. Written as `= any (array[id])`, only
 * an index lookup is left.
 */
function rewriteJoins(client: pg.ClientBase): void {
  const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown;
  const ask = (statement: unknown, ...rest: readonly unknown[]) => query(rewritten(statement), ...rest);
  client.query = ask as typeof client.query;
}

function rewritten(statement: unknown): unknown {
  if (typeof statement !== "object" || statement === null || !("text" in statement)) return statement;
  const given = statement.text as string;
  const text = given.replace(/\bwhere (id|jobs\.id) = (n|j\.id)$/m, "where $1 = any (array[$2])");
  return text === given ? statement : { ...statement, text };
}
