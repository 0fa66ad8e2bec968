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
/** So long an ending runner is waited for: after a database stood still, one ended half and never said so. */
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
export function createWakeups({ queue, wake, onPublished, onRunnerEnded, random }: WakeupsOptions) {
  const stopping = new AbortController();
  const { signal } = stopping;
  /** Jobs whose deliveries have been woken, with the first of these: who tells may have told of another. */
  const known = new TtlMap<string, string>(KNOWN_MAX);
  /** Asks the present runner to end, and waits only so long. */
  let endRunner: () => void = () => undefined;
  let signOfLifeMs = 0;
  let running: Promise<void> = Promise.resolve();
  let looksLeft = 0;
  let lookTimer: NodeJS.Timeout | null = null;
  let lookAgain: () => void = () => undefined;

  async function runUntilStopped(): Promise<void> {
    for (let restarts = 0; !signal.aborted; restarts++) {
      const startedAt = performance.now();
      const error: unknown = await runOnce().then(
        () => null,
        (cause: unknown) => cause,
      );
      if (signal.aborted) return;
      onRunnerEnded(error, restarts);
      // A runner that worked for a while ended for a new reason: start over with the short delay.
      if (performance.now() - startedAt > RESTART_BACKOFF.maxMs) restarts = 0;
      await abortableDelay(backoffMs(restarts, RESTART_BACKOFF, random()), signal);
    }
  }

  async function runOnce(): Promise<void> {
    const gone = Promise.withResolvers<void>();
    const waitNoLonger = () => void setTimeout(gone.resolve, END_MAX_MS).unref();
    signOfLifeMs = performance.now();
    const runner = await startWakeupRunner({
      queue,
      handle: async (payload, jobId) => {
        wakeOnce(jobId, readWakeup(payload));
        signOfLifeMs = performance.now();
      },
      onLook: (jobIds, again) => {
        signOfLifeMs = performance.now();
        lookAgain = again;
        if (jobIds.some((id) => !known.has(id))) looksLeft = LOOKS_MORE;
        lookSoon();
      },
      onEnding: waitNoLonger,
    });
    // Whatever it says when nobody waits for it any more, and that its stop fails when the database is gone.
    runner.ended.catch(() => undefined);
    endRunner = () => {
      runner.stop().catch(() => undefined);
      waitNoLonger();
    };
    // Asked to stop while it was starting: stop() found no runner yet.
    if (signal.aborted) endRunner();
    const checking = setInterval(() => {
      if (performance.now() - signOfLifeMs > SILENCE_MAX_MS) endRunner();
    }, CHECK_EVERY_MS);
    try {
      await Promise.race([runner.ended, gone.promise]);
    } finally {
      clearInterval(checking);
      endRunner = () => undefined;
    }
  }

  function wakeOnce(jobId: string, waiting: readonly WaitingDelivery[]): void {
    const [first] = waiting;
    if (first === undefined || (waiting.length === 1 && known.get(jobId) === first.deliveryId)) return;
    known.set(jobId, first.deliveryId, KNOWN_FOR_MS);
    wake(waiting);
  }

  function lookSoon(): void {
    if (looksLeft === 0 || lookTimer !== null) return;
    looksLeft--;
    lookTimer = setTimeout(() => {
      lookTimer = null;
      lookAgain();
    }, LOOK_AGAIN_MS);
  }

  // What a notification says; any role that can connect may send one.
  queue.onAdded = (told) => {
    onPublished?.();
    const { jobId, waiting } = readTold(told);
    if (waiting.length !== 1) return false;
    wakeOnce(jobId, waiting);
    looksLeft = Math.max(looksLeft, 1);
    lookSoon();
    return true;
  };
  return {
    start(): void {
      running = runUntilStopped();
    },
    async stop(): Promise<void> {
      stopping.abort();
      endRunner();
      await running;
    },
  };
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
