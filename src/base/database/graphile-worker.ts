/**
 * The one place in src/ that knows graphile-worker, our queue of wake-ups. Part of what we need of it is not its public
 * interface: private tables, the text of two statements, how it treats errors and notifications. So package.json pins
 * one exact version, and test/base/database/graphile-worker.test.ts names what another breaks. To upgrade: raise the
 * version there and in package.json, run that test, then the tests of wake-ups and the benchmarks.
 *
 * In SQL these rely on the private tables: sql/0005_publish.sql (sealpost.keep_task and its trigger, the trigger of
 * sealpost.announce_wakeups), sql/0006_promote.sql (sealpost.sweep_jobs, the jobs table's autovacuum) and
 * sql/0010_delivery.sql (sealpost.add_wakeups, sealpost.announce_events, sealpost.promote, sealpost.publish_fresh).
 */
import { EventEmitter } from "node:events";
import type { WorkerEvents } from "graphile-worker";
import pg from "pg";
import type { CronTimes } from "../model/time.ts";
import { addressOf, createPool, generic, type PoolOptions } from "./pools.ts";

/** The task of our jobs; the queue may hold other tasks' jobs, which are none of ours. */
const TASK = "deliver";

/** Rows of the wake-ups that wait for a dispatcher; the subquery of a count. */
export const WAITING_WAKEUPS = `
  select from graphile_worker._private_jobs
  where is_available and task_id = (select id from graphile_worker._private_tasks where identifier = '${TASK}')`;

/** Wake-ups handled at once. A handler puts ids into memory and returns, so this many are plenty. */
const CONCURRENT_JOBS = 8;
/** Pipelines leave many small jobs, and behind them others wait; more would leave none for other dispatchers. */
const JOBS_FETCHED_MAX = 100;
/** Whoever adds jobs tells of them; this is the net below. */
const POLL_MS = 3_000;

/** Imported when it is used: the API only counts what waits, and needs none of its 10 MiB. */
const importWorker = () => import("graphile-worker");

/** Brings graphile-worker's own schema to the pinned version. */
export async function migrateGraphileWorker(databaseUrl: string, log: (line: string) => void): Promise<void> {
  const { Logger, runMigrations } = await importWorker();
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

/**
 * What a cron expression says, as graphile-worker reads it. A string: what is wrong with it. Its matcher answers for
 * one moment; asked about each field by itself, it says which moments there are.
 */
export async function readCron(expression: string): Promise<CronTimes | string> {
  const { parseCronItem } = await importWorker();
  const read = (match: string) => parseCronItem({ task: TASK, match }, "the expression").match;
  try {
    read(expression);
    const [minute, hour, ...day] = expression.split(/\s+/);
    const [ofMinute, ofHour, ofDay] = [
      read(`${minute} * * * *`),
      read(`* ${hour} * * *`),
      read(`* * ${day.join(" ")}`),
    ];
    const any = { min: 0, hour: 0, date: 1, month: 1, dow: 0 };
    const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);
    return {
      minutes: numbers(60).filter((min) => ofMinute({ ...any, min })),
      hours: numbers(24).filter((hour) => ofHour({ ...any, hour })),
      isOn: (date, month, dow) => ofDay({ ...any, date, month, dow }),
    };
  } catch (error) {
    return (error as Error).message;
  }
}

export type WakeupQueue = {
  readonly pool: pg.Pool;
  readonly bound: JobsBound;
  /** Called with what somebody tells who has added jobs. True: they need not be looked for at once. */
  onAdded: (told: string) => boolean;
};

export type WakeupRunnerOptions = {
  readonly queue: WakeupQueue;
  /** Takes one job's payload; the job is deleted once it resolves. */
  readonly handle: (payload: unknown, jobId: string) => Promise<void>;
  /** The queue was read and held these jobs. `lookAgain` reads it again, unless it is busy or stopped. */
  readonly onLook: (jobIds: readonly string[], lookAgain: () => void) => void;
  /** The runner has begun to end, asked or not. */
  readonly onEnding: () => void;
};

const FROM_THE_FIRST = "-infinity";
const BOUND_EVERY_MS = 1_000;
/** What the bound has missed (the clock was set back, a dispatcher has given jobs back) is found then. */
const OLDER_JOBS_EVERY_MS = 60_000;
/** … and, while somebody holds a snapshot, no more often than this share of the time allows. */
const OLDER_JOBS_SHARE_MAX = 0.01;
/** The oldest job that the bound has passed, if there is one: while a snapshot is held, that takes long to see. */
const OLDER = `
select to_char(run_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
from graphile_worker._private_jobs
where is_available and priority = 0 and run_at < $1::timestamptz
  and task_id = (select id from graphile_worker._private_tasks where identifier = '${TASK}')
order by priority, run_at limit 1`;
/** So long the bound waits for a transaction that has added jobs and is still open. */
const STRAGGLER_AFTER_MS = 5_000;

/** Whoever may still commit jobs holds this lock, from before they get their `run_at` until the commit can be seen. */
const ADDING = `
select to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at, array(
  select virtualtransaction from pg_locks
  where relation = 'graphile_worker._private_jobs'::regclass and mode = 'RowExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())
    and pid is distinct from pg_backend_pid()) as adding`;

/**
 * The `run_at` from which on jobs are looked for. While anybody holds a snapshot (a backup, an open transaction) the
 * index keeps the entry of every job done since, and a look from its beginning passes them all: at 400 a second it took
 * 80 times as long after two minutes.
 *
 * A job has as its `run_at` the time at which it was added (sealpost.add_wakeups), and may be committed much later. So
 * the bound moves to a moment when all who could still commit earlier ones have ended and two looks more have been
 * made, and no further than these have taken. For a transaction that takes too long to wait for, one look goes back
 * when it has ended.
 */
export class JobsBound {
  #from = FROM_THE_FIRST;
  /** Where the next look alone begins, and where the present one did; null: at the bound. */
  #once: string | null = null;
  #lookedFrom: string | null = null;
  #candidate: { readonly at: string; readonly adding: readonly string[]; readonly sinceMs: number } | null =
    null;
  #settled: string | null = null;
  #looksLeft = 0;
  /** Transactions that were open for long, and where a look has to begin when they have ended. */
  readonly #stragglers = new Map<string, string>();
  #isAsking = false;
  #askedAtMs = Number.NEGATIVE_INFINITY;
  #olderAgainAtMs: number;
  readonly #everyMs: number;
  readonly #stragglerAfterMs: number;
  readonly #olderEveryMs: number;

  constructor(
    everyMs = BOUND_EVERY_MS,
    stragglerAfterMs = STRAGGLER_AFTER_MS,
    olderEveryMs = OLDER_JOBS_EVERY_MS,
  ) {
    this.#everyMs = everyMs;
    this.#stragglerAfterMs = stragglerAfterMs;
    this.#olderEveryMs = olderEveryMs;
    this.#olderAgainAtMs = performance.now() + olderEveryMs;
  }

  /** Everything before it has been fetched. */
  get from(): string {
    return this.#from;
  }

  /** The database's clock: a bound that is ahead of it would find nothing until it is as late again. */
  learnClock(atMs: number): void {
    if (this.#from === FROM_THE_FIRST || Date.parse(this.#from) <= atMs) return;
    this.#from = FROM_THE_FIRST;
    this.#settled = null;
    this.#candidate = null;
  }

  beginLook(): string {
    this.#lookedFrom = this.#once;
    this.#once = null;
    return this.#lookedFrom ?? this.#from;
  }

  /** The look has ended and taken the jobs of these `run_at`s. Asks `pool` now and then. Never rejects. */
  async endLook(runAts: readonly Date[], pool: pg.Pool): Promise<void> {
    const nowMs = performance.now();
    const found = runAts.length;
    // A full one has taken all up to its last; else it has taken everything.
    const upTo = found === JOBS_FETCHED_MAX ? microseconds(Math.max(...runAts.map(Number))) : null;
    if (this.#lookedFrom === null || upTo === null) this.#moveOn(upTo);
    else this.#lookOnceFrom(upTo);
    if (nowMs > this.#olderAgainAtMs && this.#from !== FROM_THE_FIRST) void this.#lookAtOlder(pool);
    const isQuiet = found === 0 && this.#candidate === null && this.#stragglers.size === 0;
    if (isQuiet || this.#isAsking || nowMs - this.#askedAtMs < this.#everyMs) return;
    this.#isAsking = true;
    this.#askedAtMs = nowMs;
    try {
      const { rows } = await pool.query<{ at: string; adding: string[] }>({ name: "adding", text: ADDING });
      this.#learn(rows[0]!.at, rows[0]!.adding, found > 0);
    } catch {
      // Asked again.
    } finally {
      this.#isAsking = false;
    }
  }

  /** Beside the looks, which others wait for. */
  async #lookAtOlder(pool: pg.Pool): Promise<void> {
    const beganAtMs = performance.now();
    this.#olderAgainAtMs = Number.POSITIVE_INFINITY;
    try {
      const older = { name: "older", text: OLDER, values: [this.#from] };
      const [found] = (await pool.query<{ at: string }>(older)).rows;
      if (found !== undefined) this.#lookOnceFrom(found.at);
    } catch {
      // Looked at again.
    } finally {
      const nowMs = performance.now();
      const restMs = (nowMs - beganAtMs) / OLDER_JOBS_SHARE_MAX;
      this.#olderAgainAtMs = nowMs + Math.max(this.#olderEveryMs, restMs);
    }
  }

  #learn(at: string, adding: readonly string[], isActive: boolean): void {
    for (const [transaction, from] of this.#stragglers) {
      if (adding.includes(transaction)) continue;
      this.#stragglers.delete(transaction);
      this.#lookOnceFrom(from);
    }
    const sinceMs = performance.now();
    const last = this.#candidate;
    if (last !== null) {
      const open = last.adding.filter((one) => adding.includes(one) && !this.#stragglers.has(one));
      if (open.length > 0 && sinceMs - last.sinceMs < this.#stragglerAfterMs) return;
      for (const one of open) this.#stragglers.set(one, this.#from);
      // Not while two looks have still to be made for the one before: long ones would never come to their end.
      if (this.#settled === null) {
        this.#settled = last.at;
        this.#looksLeft = 2;
      }
    }
    this.#candidate = isActive ? { at, adding, sinceMs } : null;
  }

  #moveOn(upTo: string | null): void {
    // The first of the two may have begun before it was known that all had ended.
    if (this.#settled === null || --this.#looksLeft > 0) return;
    if (upTo !== null && upTo < this.#settled) {
      this.#from = upTo;
      return;
    }
    this.#from = this.#settled;
    this.#settled = null;
  }

  #lookOnceFrom(from: string): void {
    if (this.#once === null || from < this.#once) this.#once = from;
  }
}

/** As the database writes a time in ADDING, so that both can be compared as texts. */
function microseconds(atMs: number): string {
  return new Date(atMs).toISOString().replace("Z", "000Z");
}

/** Runs our jobs until stopped, or until graphile-worker gives up. */
export async function startWakeupRunner(options: WakeupRunnerOptions) {
  const { pool, bound } = options.queue;
  const events: WorkerEvents = new EventEmitter();
  events.on("localQueue:getJobs:complete", ({ localQueue, jobs }) => {
    const runAts = jobs.map(({ run_at }) => run_at);
    void bound.endLook(runAts, pool);
    const jobIds = jobs.map(({ id }) => id);
    options.onLook(jobIds, () => localQueue.pulse(1));
  });
  events.on("pool:gracefulShutdown", options.onEnding);
  const { Logger, run } = await importWorker();
  const runner = await run({
    events,
    pgPool: pool,
    noHandleSignals: true,
    logger: new Logger(() => () => undefined),
    taskList: { [TASK]: (payload, { job }) => options.handle(payload, job.id) },
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
  return {
    /** Settles when the runner has ended, asked or not; after a failed stop it may never settle. */
    ended: runner.promise,
    /** Rejects when the database is gone. */
    stop: () => runner.stop(),
  };
}

/**
 * The runner's connections, and what they share. The planner would read the whole table, dead rows included, if it was
 * small when last analyzed: the queue then grows faster than it is read. So only the index is left, and generic plans.
 * Figures: test/bench/README.md.
 *
 * Its transactions do not wait for the disk (synchronous_commit=off): jobs are hints, the truth is in the deliveries,
 * and a crash of the server can only undo that a job was taken or done.
 */
export function createWakeupQueue(options: PoolOptions, bound = new JobsBound()): WakeupQueue {
  const pool = createPool(options, [...generic("seqscan", "bitmapscan", "sort"), "synchronous_commit=off"]);
  const queue: WakeupQueue = { pool, bound, onAdded: () => false };
  pool.on("connect", (client) => filterNotices(client, queue));
  pool.on("connect", (client) => rewriteStatements(client, queue.bound));
  hideErrorCodes(pool);
  return queue;
}

/**
 * For three causes of a failed connection graphile-worker knows the error code, sleeps 3 s and then half as long again
 * each time, and takes no wake-up meanwhile. After an error without a code it looks again at the next poll.
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

/** It stops when notified that its schema has changed, as any role can. After an upgrade dispatchers are restarted. */
function filterNotices(client: pg.ClientBase, queue: WakeupQueue): void {
  const emit = client.emit.bind(client) as (event: string, ...args: unknown[]) => boolean;
  client.emit = ((event: string, ...args: unknown[]) => {
    if (event !== "notification") return emit(event, ...args);
    const { channel, payload = "" } = args[0] as pg.Notification;
    if (channel === "worker:migrate") return false;
    if (channel === "jobs:insert" && queue.onAdded(payload)) return false;
    return emit(event, ...args);
  }) as typeof client.emit;
}

/**
 * graphile-worker fetches and deletes jobs by a join with a list of ids. A plan made while the table was empty may
 * read the whole table for it, and stays until the next ANALYZE while the queue grows. Written as `= any (array[id])`,
 * only an index lookup is left. And it looks for jobs from the first index entry on: see `JobsBound`.
 */
function rewriteStatements(client: pg.ClientBase, bound: JobsBound): void {
  const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown;
  const ask = (statement: unknown, ...rest: readonly unknown[]) =>
    query(rewritten(statement, bound), ...rest);
  client.query = ask as typeof client.query;
}

function rewritten(statement: unknown, bound: JobsBound): unknown {
  if (typeof statement !== "object" || statement === null || !("text" in statement)) return statement;
  const given = statement as { readonly text: string; readonly values?: readonly unknown[] };
  const text = given.text.replace(/\bwhere (id|jobs\.id) = (n|j\.id)$/m, "where $1 = any (array[$2])");
  if (text === given.text) return statement;
  const { values = [] } = given;
  const isFetch = /^ +and run_at <= now\(\)$/m.test(text);
  if (!isFetch) return { ...given, text };
  const from = `and priority = 0 and run_at >= $${values.length + 1}::timestamptz`;
  return {
    ...given,
    text: text.replace(/^( +)(and run_at <= now\(\))$/m, `$1${from}\n$1$2`),
    values: [...values, bound.beginLook()],
  };
}
