/** Bytes that may be held at a time. Who takes more than is left waits; first come, first served. */
export class ByteBudget {
  #leftBytes: number;
  readonly #waiting: { readonly bytes: number; readonly go: () => void }[] = [];

  constructor(bytesMax: number) {
    this.#leftBytes = bytesMax;
  }

  /** @param bytes at most as many as there are in all. @returns gives them back; to be called once */
  async take(bytes: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#waiting.length > 0 || bytes > this.#leftBytes) await this.#wait(bytes, signal);
    else this.#leftBytes -= bytes;
    return () => {
      this.#leftBytes += bytes;
      this.#serve();
    };
  }

  async #wait(bytes: number, signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const stop = () => {
        this.#waiting.splice(this.#waiting.indexOf(waiter), 1);
        reject(signal.reason);
        this.#serve();
      };
      const go = () => {
        signal.removeEventListener("abort", stop);
        resolve();
      };
      const waiter = { bytes, go };
      this.#waiting.push(waiter);
      signal.addEventListener("abort", stop, { once: true });
    });
  }

  #serve(): void {
    for (let first = this.#waiting[0]; first && first.bytes <= this.#leftBytes; first = this.#waiting[0]) {
      this.#waiting.shift();
      this.#leftBytes -= first.bytes;
      first.go();
    }
  }
}
