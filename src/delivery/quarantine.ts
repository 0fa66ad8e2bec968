/** How a quarantine process ended. `busy`: another one is at work. `died`: in the middle, or before it began. */
export type QuarantineRun = "done" | "busy" | "died";

/** Any beyond this are dropped: their rows stay due, and the promoter brings them back. */
const QUARANTINED_MAX = 1_000;
const BATCH_MAX = 50;
/** Each death takes the delivery that was under way out of the batch; after more than this, the rest is dropped. */
const DEATHS_PER_BATCH_MAX = 3;

/**
 * Deliveries that may have killed a dispatcher: posted in batches, by one process after the other.
 *
 * @param postInQuarantine posts these in a process of its own and resolves when that has ended, in whatever way. Once
 * the signal aborts, the process finishes the delivery it is at and starts no other.
 */
export function createQuarantine(
  postInQuarantine: (deliveryIds: readonly string[], stopping: AbortSignal) => Promise<QuarantineRun>,
) {
  const waiting = new Set<string>();
  const stopping = new AbortController();
  const { signal } = stopping;
  let running: Promise<void> | null = null;

  async function run(): Promise<void> {
    // Whatever arrives in this turn of the event loop joins the same batch.
    await new Promise(setImmediate);
    while (waiting.size > 0) {
      const batch = [...waiting].slice(0, BATCH_MAX);
      const ended = await postBatch(batch);
      // As long as another process of the cluster holds the lock, none of these has a chance.
      if (ended === "busy") waiting.clear();
      for (const deliveryId of batch) waiting.delete(deliveryId);
    }
    running = null;
  }

  async function postBatch(batch: readonly string[]): Promise<QuarantineRun> {
    for (let deaths = 1; ; deaths++) {
      const ended = await postInQuarantine(batch, signal).catch(() => "died" as const);
      if (ended !== "died" || deaths > DEATHS_PER_BATCH_MAX || signal.aborted) return ended;
    }
  }

  return {
    add(deliveryId: string): void {
      if (waiting.size >= QUARANTINED_MAX || signal.aborted) return;
      waiting.add(deliveryId);
      running ??= run();
    },
    /** Drops those that wait; resolves when the delivery under way has ended. */
    async stop(): Promise<void> {
      stopping.abort();
      waiting.clear();
      await running;
    },
  };
}
