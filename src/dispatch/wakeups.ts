import { EventEmitter } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { Logger, run, type WorkerEvents } from "graphile-worker";
import type { Pool } from "pg";
import type { WaitingDelivery } from "./lanes.ts";

/** Wake-ups handled at once. A handler puts ids into memory and returns, so this many are plenty. */
const CONCURRENT_JOBS = 8;
/** Taken at once: pipelines that publish one at a time leave many small ones. */
const JOBS_FETCHED_MAX = 33;
/**
 * Of transactions that add wake-ups at the same moment only one says so (sealpost.announce_wakeups). So once some were
 * found the queue is looked at this many times more, so far apart; what all of that misses, the next poll finds.
 */
const LOOKS_MORE = 3;
const LOOK_AGAIN_MS = 4;
const POLL_MS = 100;
const RESTART_MS = 50;
const RESTART_MAX_MS = 2_000;
/**
 * A runner that is ending is waited for no longer than this: after a database that stood still it was seen to end half,
 * with nothing under way, and never to say so.
 */
const END_MAX_MS = 5_000;
/** A runner that has neither looked for work nor had any for so long is taken for dead; a look is due every POLL_MS. */
const SILENCE_MAX_MS = 15_000;
const LISTEN_EVERY_MS = 1_000;

export type WakeupsOptions = {
  readonly pool: Pool;
  /** Resolves when there is room for more. */
  readonly wake: (waiting: readonly WaitingDelivery[]) => Promise<void>;
  readonly onRunnerEnded: (error: unknown, restarts: number) => void;
};

/**
 * Listens to graphile-worker's jobs. When its runner ends without being asked (it does when the database goes), or does
 * nothing any more without having ended, it is run again in the same process: measured, jobs ran 40 to 60 ms after
 * PostgreSQL was back. Wake-ups that stay locked by the old runner are issued again by the promoter.
 */
export class Wakeups {
  readonly #options: WakeupsOptions;
  readonly #stopping = new AbortController();
  /** Asks the present runner to end, and waits only so long. */
  #endRunner: () => void = () => undefined;
  #signOfLifeMs = 0;
  #handling = 0;
  #loop: Promise<void> = Promise.resolve();
  #looksLeft = 0;
  #lookTimer: NodeJS.Timeout | null = null;

  constructor(options: WakeupsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = this.#runUntilStopped();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#endRunner();
    await this.#loop;
  }

  async #runUntilStopped(): Promise<void> {
    const { signal } = this.#stopping;
    for (let restarts = 0; !signal.aborted; restarts++) {
      let error: unknown = null;
      const startedAt = performance.now();
      try {
        await this.#runOnce();
      } catch (cause) {
        error = cause;
      }
      if (signal.aborted) return;
      this.#options.onRunnerEnded(error, restarts);
      // A runner that worked for a while ended for a new reason: start over with the short delay.
      if (performance.now() - startedAt > RESTART_MAX_MS) restarts = 0;
      await wait(Math.min(RESTART_MS * 2 ** restarts, RESTART_MAX_MS), null, { signal }).catch(
        () => undefined,
      );
    }
  }

  async #runOnce(): Promise<void> {
    const gone = Promise.withResolvers<void>();
    const waitNoLonger = () => void setTimeout(gone.resolve, END_MAX_MS).unref();
    this.#signOfLifeMs = performance.now();
    const runner = await run(this.#runOptions(waitNoLonger));
    // Whatever it says when nobody waits for it any more, and that its stop fails when the database is gone.
    runner.promise.catch(() => undefined);
    this.#endRunner = () => {
      runner.stop().catch(() => undefined);
      waitNoLonger();
    };
    // Asked to stop while it was starting: stop() found no runner yet.
    if (this.#stopping.signal.aborted) this.#endRunner();
    const listening = setInterval(() => {
      const isSilent = performance.now() - this.#signOfLifeMs > SILENCE_MAX_MS;
      if (isSilent && this.#handling === 0) this.#endRunner();
    }, LISTEN_EVERY_MS);
    try {
      await Promise.race([runner.promise, gone.promise]);
    } finally {
      clearInterval(listening);
      this.#endRunner = () => undefined;
    }
  }

  /** `found`: the wake-ups of the look that has just ended. Looking at a queue that is busy or stopped does nothing. */
  #lookAgain(queue: { pulse(count: number): void }, found: number): void {
    if (found > 0) this.#looksLeft = LOOKS_MORE;
    if (this.#looksLeft === 0 || this.#lookTimer !== null) return;
    this.#looksLeft--;
    this.#lookTimer = setTimeout(() => {
      this.#lookTimer = null;
      queue.pulse(1);
    }, LOOK_AGAIN_MS);
  }

  #runOptions(onShutdown: () => void): Parameters<typeof run>[0] {
    const events: WorkerEvents = new EventEmitter();
    events.on("localQueue:getJobs:complete", ({ localQueue, jobs }) => {
      this.#signOfLifeMs = performance.now();
      this.#lookAgain(localQueue, jobs.length);
    });
    events.on("pool:gracefulShutdown", onShutdown);
    return {
      events,
      pgPool: this.#options.pool,
      noHandleSignals: true,
      logger: new Logger(() => () => undefined),
      taskList: { deliver: (payload) => this.#handle(payload) },
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
    };
  }

  async #handle(payload: unknown): Promise<void> {
    this.#handling++;
    try {
      await this.#options.wake(readWakeup(payload));
    } finally {
      this.#handling--;
      this.#signOfLifeMs = performance.now();
    }
  }
}

const DELIVERY_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/**
 * Our own SQL wrote it (sealpost.add_wakeups); anything else is a row that somebody made by hand, and is ignored: what
 * is no id would be in the way of every claim that it is part of.
 */
function readWakeup(payload: unknown): readonly WaitingDelivery[] {
  const { ids, lanes } = (payload ?? {}) as { ids?: unknown; lanes?: unknown };
  if (!Array.isArray(ids) || !Array.isArray(lanes) || lanes.length !== ids.length) return [];
  return ids.flatMap((id, index) =>
    DELIVERY_ID.test(String(id)) ? [{ deliveryId: String(id), lane: String(lanes[index]) }] : [],
  );
}
