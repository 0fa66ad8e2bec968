import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { abortableDelay } from "../base/model/backoff.ts";
import { endSequencingLease, sequenceEvents } from "./feed-sql.ts";

/**
 * A step follows another no sooner, so an event waits for its place no longer than that, apart from the step itself.
 * Whoever publishes tells of it; with nobody told, all is looked at anew now and then.
 */
const STEP_EVERY_MS = 100;
const UNTOLD_EVERY_MS = 10_000;
/** Another process tries as often while there is something to do, and goes on when the one that makes steps dies. */
const LEASE_MS = 600;
const AFTER_FAILURE_MS = 500;

export type Sequencer = ReturnType<typeof startSequencer>;

/**
 * Gives events their places in the feed. Every `serve` and every `dispatch` runs one, and one of them has the lease:
 * the feed goes on when all of either kind are stopped.
 */
export function startSequencer(pool: Pool, onError: (error: unknown) => void) {
  const holder = randomUUID();
  const stopping = new AbortController();
  const { signal } = stopping;
  let leads = false;
  let told = new AbortController();

  async function run(): Promise<void> {
    while (!signal.aborted) {
      const startedAt = performance.now();
      told = new AbortController();
      const { everyMs, isDone } = await step();
      await abortableDelay(everyMs - (performance.now() - startedAt), signal);
      if (isDone) await abortableDelay(UNTOLD_EVERY_MS, AbortSignal.any([told.signal, signal]));
    }
  }

  /** After how long, from its beginning, the next one may be made, and whether nobody needs it before being told. */
  async function step(): Promise<{ readonly everyMs: number; readonly isDone: boolean }> {
    try {
      const found = await sequenceEvents(pool, holder, LEASE_MS);
      leads = found.leads;
      if (found.isFull) return { everyMs: 0, isDone: false };
      return { everyMs: leads ? STEP_EVERY_MS : LEASE_MS, isDone: found.sequenced === 0 };
    } catch (error) {
      leads = false;
      onError(error);
      return { everyMs: AFTER_FAILURE_MS, isDone: false };
    }
  }

  const running = run();
  return {
    /** Something was published. */
    tell: () => told.abort(),
    /** Lets another process go on at once. */
    async stop(): Promise<void> {
      stopping.abort();
      await running;
      if (leads) await endSequencingLease(pool, holder).catch(onError);
    },
  };
}
