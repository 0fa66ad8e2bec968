/**
 * Deliveries that have to be posted alone, one after the other, each in a process of its own.
 * Those beyond SUSPECTS_MAX are let go: their rows stay due, and the promoter brings them back.
 */
const SUSPECTS_MAX = 1_000;

export class Suspects {
  readonly #waiting = new Set<string>();
  readonly #deliverAlone: (deliveryId: string) => Promise<void>;
  #isRunning = false;

  /** `deliverAlone` resolves when the process that it started has ended, however it ended. */
  constructor(deliverAlone: (deliveryId: string) => Promise<void>) {
    this.#deliverAlone = deliverAlone;
  }

  add(deliveryId: string): void {
    if (this.#waiting.size >= SUSPECTS_MAX) return;
    this.#waiting.add(deliveryId);
    if (!this.#isRunning) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (const deliveryId of this.#waiting) {
      // A process that could not even be started is no reason to stop: the row stays due and comes back.
      await this.#deliverAlone(deliveryId).catch(() => undefined);
      this.#waiting.delete(deliveryId);
    }
    this.#isRunning = false;
  }
}
