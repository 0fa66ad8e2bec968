/** What became of a process that was to post some deliveries alone. `died`: in the middle, or it never began. */
export type AloneRun = "done" | "busy" | "died";

/** Those beyond this are let go: their rows stay due, and the promoter brings them back. */
const SUSPECTS_MAX = 1_000;
const BATCH_MAX = 50;
/** Each death takes the delivery that was under way out of the batch; more often than this, the rest is let go too. */
const DEATHS_PER_BATCH_MAX = 3;

/**
 * Posts these by a process that it starts, and resolves when that has ended, however it ended. Once the signal aborts,
 * the process is to end with the delivery that it is at.
 */
export type PostAlone = (deliveryIds: readonly string[], stopping: AbortSignal) => Promise<AloneRun>;

/** Deliveries that have to be posted alone, in batches, by one process after the other. */
export class Suspects {
  readonly #waiting = new Set<string>();
  readonly #postAlone: PostAlone;
  readonly #stopping = new AbortController();
  #running: Promise<void> | null = null;

  constructor(postAlone: PostAlone) {
    this.#postAlone = postAlone;
  }

  add(deliveryId: string): void {
    if (this.#waiting.size >= SUSPECTS_MAX || this.#stopping.signal.aborted) return;
    this.#waiting.add(deliveryId);
    this.#running ??= this.#run().then(() => {
      this.#running = null;
    });
  }

  /** Those that wait are let go; resolves when the delivery that is posted has been. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#waiting.clear();
    await this.#running;
  }

  async #run(): Promise<void> {
    // What this turn of the event loop brings belongs to the same batch.
    await new Promise(setImmediate);
    while (this.#waiting.size > 0) {
      const batch = [...this.#waiting].slice(0, BATCH_MAX);
      const ended = await this.#postBatch(batch);
      // While another process of the cluster is alone, none of these has a chance.
      if (ended === "busy") this.#waiting.clear();
      for (const deliveryId of batch) this.#waiting.delete(deliveryId);
    }
  }

  async #postBatch(batch: readonly string[]): Promise<AloneRun> {
    const { signal } = this.#stopping;
    for (let deaths = 1; ; deaths++) {
      const ended = await this.#postAlone(batch, signal).catch(() => "died" as const);
      if (ended !== "died" || deaths > DEATHS_PER_BATCH_MAX || signal.aborted) return ended;
    }
  }
}
