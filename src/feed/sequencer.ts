import { abortableDelay } from "../base/model/backoff.ts";
import type { SequencingStep } from "./feed-sql.ts";

/**
 * How long an event waits for its place at most, apart from the step itself. Every process that could make steps asks
 * whether it may as often as TRY_EVERY_MS, so the feed stands still for no longer than a lease and that when the one
 * that makes them dies.
 */
const STEP_EVERY_MS = 100;
const TRY_EVERY_MS = 200;
const LEASE_MS = 600;
const AFTER_FAILURE_MS = 500;

export type SequencerOptions = {
  readonly holder: string;
  readonly sequence: (holder: string, leaseMs: number) => Promise<SequencingStep>;
  readonly endLease: (holder: string) => Promise<void>;
  readonly onError: (error: unknown) => void;
};

/**
 * Gives events their places in the feed. Every `serve` and every `dispatch` runs one, and one of them has the lease:
 * the feed goes on when all of either kind are stopped.
 */
export class Sequencer {
  readonly #options: SequencerOptions;
  readonly #stopping = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #leads = false;

  constructor(options: SequencerOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** Lets another process go on at once. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
    if (this.#leads) await this.#options.endLease(this.#options.holder).catch(this.#options.onError);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const startedAt = performance.now();
      const everyMs = await this.#step();
      await abortableDelay(everyMs - (performance.now() - startedAt), signal);
    }
  }

  /** Returns after how long, from its beginning, the next one is due. */
  async #step(): Promise<number> {
    const { holder, sequence, onError } = this.#options;
    try {
      const { leads, isFull } = await sequence(holder, LEASE_MS);
      this.#leads = leads;
      if (isFull) return 0;
      return leads ? STEP_EVERY_MS : TRY_EVERY_MS;
    } catch (error) {
      this.#leads = false;
      onError(error);
      return AFTER_FAILURE_MS;
    }
  }
}
