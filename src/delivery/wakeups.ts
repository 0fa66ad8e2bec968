import type { Pool } from "pg";
import { type JobsBound, startWakeupRunner } from "../base/database/graphile-worker.ts";
import { abortableDelay, backoffMs } from "../base/model/backoff.ts";
import type { WaitingDelivery } from "./lane.ts";

/**
 * Of transactions that add wake-ups at the same moment only one notifies (sealpost.announce_wakeups). So once a look at
 * the queue has found some, it is looked at this many times more, so far apart; what all of that misses, the next poll
 * finds.
 */
const LOOKS_MORE = 3;
const LOOK_AGAIN_MS = 4;
const RESTART_BACKOFF = { baseMs: 50, maxMs: 2_000 };
/**
 * An ending runner is waited for no longer than this: after a database that stood still it was seen to end half, with
 * nothing in flight, and never to say so.
 */
const END_MAX_MS = 5_000;
/** A runner that has not looked at the queue or handled a job for so long is taken for dead; it polls every 3 s. */
const SILENCE_MAX_MS = 15_000;
const CHECK_EVERY_MS = 1_000;

export type WakeupsOptions = {
  readonly pool: Pool;
  readonly bound: JobsBound;
  readonly wake: (waiting: readonly WaitingDelivery[]) => void;
  readonly onRunnerEnded: (error: unknown, restarts: number) => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

/**
 * Keeps a runner of wake-ups at work. When it ends unasked (it does when the database goes), or falls silent without
 * ending, another one is started in the same process. Wake-ups that stay locked by the old runner are issued again by
 * the promoter.
 */
export class Wakeups {
  readonly #options: WakeupsOptions;
  readonly #stopping = new AbortController();
  /** Asks the present runner to end, and waits only so long. */
  #endRunner: () => void = () => undefined;
  #signOfLifeMs = 0;
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
      if (performance.now() - startedAt > RESTART_BACKOFF.maxMs) restarts = 0;
      await abortableDelay(backoffMs(restarts, RESTART_BACKOFF, this.#options.random()), signal);
    }
  }

  async #runOnce(): Promise<void> {
    const gone = Promise.withResolvers<void>();
    const waitNoLonger = () => void setTimeout(gone.resolve, END_MAX_MS).unref();
    this.#signOfLifeMs = performance.now();
    const runner = await startWakeupRunner({
      pool: this.#options.pool,
      bound: this.#options.bound,
      handle: (payload) => this.#handle(payload),
      onLook: (found, lookAgain) => {
        this.#signOfLifeMs = performance.now();
        this.#lookAgain(found, lookAgain);
      },
      onEnding: waitNoLonger,
    });
    // Whatever it says when nobody waits for it any more, and that its stop fails when the database is gone.
    runner.ended.catch(() => undefined);
    this.#endRunner = () => {
      runner.stop().catch(() => undefined);
      waitNoLonger();
    };
    // Asked to stop while it was starting: stop() found no runner yet.
    if (this.#stopping.signal.aborted) this.#endRunner();
    const checking = setInterval(() => {
      const isSilent = performance.now() - this.#signOfLifeMs > SILENCE_MAX_MS;
      if (isSilent) this.#endRunner();
    }, CHECK_EVERY_MS);
    try {
      await Promise.race([runner.ended, gone.promise]);
    } finally {
      clearInterval(checking);
      this.#endRunner = () => undefined;
    }
  }

  /** `found`: the wake-ups of the look that has just ended. */
  #lookAgain(found: number, lookAgain: () => void): void {
    if (found > 0) this.#looksLeft = LOOKS_MORE;
    if (this.#looksLeft === 0 || this.#lookTimer !== null) return;
    this.#looksLeft--;
    this.#lookTimer = setTimeout(() => {
      this.#lookTimer = null;
      lookAgain();
    }, LOOK_AGAIN_MS);
  }

  async #handle(payload: unknown): Promise<void> {
    this.#options.wake(readWakeup(payload));
    this.#signOfLifeMs = performance.now();
  }
}

const DELIVERY_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/**
 * Our own SQL wrote it (sealpost.add_wakeups); anything else is a row that somebody made by hand, and is ignored: what
 * is no id would be in the way of every claim that it is part of.
 */
function readWakeup(payload: unknown): readonly WaitingDelivery[] {
  const { ids, lanes, accounts } = (payload ?? {}) as { ids?: unknown; lanes?: unknown; accounts?: unknown };
  if (!Array.isArray(ids) || !Array.isArray(lanes) || lanes.length !== ids.length) return [];
  const accountIds = Array.isArray(accounts) ? accounts : [];
  return ids.flatMap((id, index) => {
    const deliveryId = String(id);
    if (!DELIVERY_ID.test(deliveryId)) return [];
    return [{ deliveryId, accountId: String(accountIds[index] ?? NO_ACCOUNT), lane: String(lanes[index]) }];
  });
}

/** Wake-ups of the version before name no accounts: until they are through, they share one account's places. */
const NO_ACCOUNT = "00000000-0000-0000-0000-000000000000";
