/** What became of a process that was to post some deliveries alone. `died`: in the middle, or it never began. */
export type AloneRun = "done" | "busy" | "died";

/** Those beyond this are let go: their rows stay due, and the promoter brings them back. */
const SUSPECTS_MAX = 1_000;
const BATCH_MAX = 50;
/** Each death takes the delivery that was under way out of the batch; more often than this, the rest is let go too. */
const DEATHS_PER_BATCH_MAX = 3;

/** Deliveries that have to be posted alone, in batches, by one process after the other. */
export class Suspects {
  readonly #waiting = new Set<string>();
  readonly #postAlone: (deliveryIds: readonly string[]) => Promise<AloneRun>;
  #isRunning = false;

  /** `postAlone` resolves when the process that it started has ended, however it ended. */
  constructor(postAlone: (deliveryIds: readonly string[]) => Promise<AloneRun>) {
    this.#postAlone = postAlone;
  }

  add(deliveryId: string): void {
    if (this.#waiting.size >= SUSPECTS_MAX) return;
    this.#waiting.add(deliveryId);
    if (!this.#isRunning) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    // What this turn of the event loop brings belongs to the same batch.
    await new Promise(setImmediate);
    while (this.#waiting.size > 0) {
      const batch = [...this.#waiting].slice(0, BATCH_MAX);
      const ended = await this.#postBatch(batch);
      // While another process of the cluster is alone, none of these has a chance.
      if (ended === "busy") this.#waiting.clear();
      for (const deliveryId of batch) this.#waiting.delete(deliveryId);
    }
    this.#isRunning = false;
  }

  async #postBatch(batch: readonly string[]): Promise<AloneRun> {
    for (let deaths = 1; ; deaths++) {
      const ended = await this.#postAlone(batch).catch(() => "died" as const);
      if (ended !== "died" || deaths > DEATHS_PER_BATCH_MAX) return ended;
    }
  }
}
