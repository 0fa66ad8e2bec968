import { startWakeupRunner, type WakeupQueue } from "../base/database/graphile-worker.ts";
import { abortableDelay, backoffMs } from "../base/model/backoff.ts";
import { TtlMap } from "../base/model/caches.ts";
import type { WaitingDelivery } from "./lane.ts";

/**
 * Of transactions that add wake-ups at the same moment only one notifies (sealpost.announce_wakeups), perhaps with the
 * one delivery that it wakes, which is then not waited for. So the queue is looked at once more, and when that has
 * found what nobody told of, this many times more, so far apart; what all of that misses, the next poll finds.
 */
const LOOKS_MORE = 3;
const LOOK_AGAIN_MS = 4;
/** What was told is not woken again by its job, nor by being told when the job was sooner. */
const KNOWN_MAX = 20_000;
const KNOWN_FOR_MS = 10_000;
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
  readonly queue: WakeupQueue;
  readonly wake: (waiting: readonly WaitingDelivery[]) => void;
  /** Somebody has published something; absent: nobody wants to know. */
  readonly onPublished?: (() => void) | undefined;
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
  #lookAgain: () => void = () => undefined;
  /** Jobs whose deliveries have been woken. */
  readonly #known = new TtlMap<string, true>({ entriesMax: KNOWN_MAX, now: () => performance.now() });

  constructor(options: WakeupsOptions) {
    this.#options = options;
    options.queue.onAdded = (told) => this.#hear(told);
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
      queue: this.#options.queue,
      handle: (payload, jobId) => this.#handle(payload, jobId),
      onLook: (jobIds, lookAgain) => {
        this.#signOfLifeMs = performance.now();
        this.#lookAgain = lookAgain;
        if (jobIds.some((id) => !this.#known.has(id))) this.#looksLeft = LOOKS_MORE;
        this.#lookSoon();
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

  /** What a notification says; any role that can connect may send one. */
  #hear(told: string): boolean {
    this.#options.onPublished?.();
    const { jobId, waiting } = readTold(told);
    if (waiting.length === 0) return false;
    this.#wakeOnce(jobId, waiting);
    this.#looksLeft = Math.max(this.#looksLeft, 1);
    this.#lookSoon();
    return true;
  }

  #wakeOnce(jobId: string, waiting: readonly WaitingDelivery[]): void {
    if (this.#known.has(jobId)) return;
    this.#known.set(jobId, true, KNOWN_FOR_MS);
    this.#options.wake(waiting);
  }

  #lookSoon(): void {
    if (this.#looksLeft === 0 || this.#lookTimer !== null) return;
    this.#looksLeft--;
    this.#lookTimer = setTimeout(() => {
      this.#lookTimer = null;
      this.#lookAgain();
    }, LOOK_AGAIN_MS);
  }

  async #handle(payload: unknown, jobId: string): Promise<void> {
    this.#wakeOnce(jobId, readWakeup(payload));
    this.#signOfLifeMs = performance.now();
  }
}

function readTold(told: string): { readonly jobId: string; readonly waiting: readonly WaitingDelivery[] } {
  try {
    const { job, wakes } = JSON.parse(told);
    return { jobId: String(job), waiting: readWakeup(wakes) };
  } catch {
    return { jobId: "", waiting: [] };
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
