type Taking = { readonly bytes: number; readonly sharer: string | null };

/**
 * Bytes that may be held at a time, at most half of them by one sharer. Who takes more than is left waits; first come,
 * first served, but nobody waits behind those whose own share is taken.
 */
export class ByteBudget {
  #leftBytes: number;
  readonly #shareBytes: number;
  readonly #bySharer = new Map<string, number>();
  readonly #waiting: (Taking & { readonly go: () => void })[] = [];

  constructor(bytesMax: number) {
    this.#leftBytes = bytesMax;
    this.#shareBytes = bytesMax / 2;
  }

  /**
   * @param bytes at most as many as there are in all
   * @param sharer null: nobody, who has no share
   * @returns gives them back; calling it again does nothing
   */
  async take(bytes: number, sharer: string | null, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const taken = this.tryTake(bytes, sharer);
    if (taken !== null) return taken;
    await this.#wait({ bytes, sharer }, signal);
    return this.#giving({ bytes, sharer });
  }

  /** The same at once, or null. */
  tryTake(bytes: number, sharer: string | null): (() => void) | null {
    const taking = { bytes, sharer };
    const isLast = this.#waiting.some((waiter) => this.hasShare(waiter));
    if (isLast || bytes > this.#leftBytes || !this.hasShare(taking)) return null;
    this.#count(taking, 1);
    return this.#giving(taking);
  }

  /** Whether only others are in the way. One who holds nothing may take more than half. */
  hasShare({ bytes, sharer }: Taking): boolean {
    const own = sharer === null ? 0 : (this.#bySharer.get(sharer) ?? 0);
    return own === 0 || own + bytes <= this.#shareBytes;
  }

  #giving(taking: Taking): () => void {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#count(taking, -1);
      this.#serve();
    };
  }

  #count({ bytes, sharer }: Taking, sign: 1 | -1): void {
    this.#leftBytes -= sign * bytes;
    if (sharer === null) return;
    const own = (this.#bySharer.get(sharer) ?? 0) + sign * bytes;
    if (own > 0) this.#bySharer.set(sharer, own);
    else this.#bySharer.delete(sharer);
  }

  async #wait(taking: Taking, signal: AbortSignal): Promise<void> {
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
      const waiter = { ...taking, go };
      this.#waiting.push(waiter);
      signal.addEventListener("abort", stop, { once: true });
    });
  }

  #serve(): void {
    const next = () => this.#waiting.find((waiter) => this.hasShare(waiter));
    for (let first = next(); first && first.bytes <= this.#leftBytes; first = next()) {
      this.#waiting.splice(this.#waiting.indexOf(first), 1);
      this.#count(first, 1);
      first.go();
    }
  }
}
