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

export type SequencerOptions = {
  readonly pool: Pool;
  readonly onError: (error: unknown) => void;
};

/**
 * Gives events their places in the feed. Every `serve` and every `dispatch` runs one, and one of them has the lease:
 * the feed goes on when all of either kind are stopped.
 */
export class Sequencer {
  readonly #options: SequencerOptions;
  readonly #holder = randomUUID();
  readonly #stopping = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #leads = false;
  #isTold = false;
  #wake: () => void = () => undefined;

  constructor(options: SequencerOptions) {
    this.#options = options;
  }

  /** Something was published. */
  tell(): void {
    this.#isTold = true;
    this.#wake();
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Lets another process go on at once. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
    const { pool, onError } = this.#options;
    if (this.#leads) await endSequencingLease(pool, this.#holder).catch(onError);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const startedAt = performance.now();
      this.#isTold = false;
      const { everyMs, isDone } = await this.#step();
      await abortableDelay(everyMs - (performance.now() - startedAt), signal);
      if (isDone) await this.#untilTold();
    }
  }

  async #untilTold(): Promise<void> {
    if (this.#isTold) return;
    const told = new AbortController();
    this.#wake = () => told.abort();
    await abortableDelay(UNTOLD_EVERY_MS, AbortSignal.any([told.signal, this.#stopping.signal]));
    this.#wake = () => undefined;
  }

  /** After how long, from its beginning, the next one may be made, and whether nobody needs it before being told. */
  async #step(): Promise<{ readonly everyMs: number; readonly isDone: boolean }> {
    const { pool, onError } = this.#options;
    try {
      const { leads, sequenced, isFull } = await sequenceEvents(pool, this.#holder, LEASE_MS);
      this.#leads = leads;
      if (isFull) return { everyMs: 0, isDone: false };
      return { everyMs: leads ? STEP_EVERY_MS : LEASE_MS, isDone: sequenced === 0 };
    } catch (error) {
      this.#leads = false;
      onError(error);
      return { everyMs: AFTER_FAILURE_MS, isDone: false };
    }
  }
}
