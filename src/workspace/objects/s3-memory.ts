import type { Held, Holding, S3 } from "./s3-connection.ts";

/**
 * The memory of one put: for a part from its start to its end, so that nobody who has begun waits for others, and where
 * there is more, for the next part as well.
 */
export class PartMemory {
  readonly #s3: S3;
  readonly #partBytes: number;
  readonly #to: Holding;
  readonly #held: Set<Held>;
  readonly #free: Held[];

  private constructor(s3: S3, partBytes: number, to: Holding, first: Held) {
    this.#s3 = s3;
    this.#partBytes = partBytes;
    this.#to = to;
    this.#held = new Set([first]);
    this.#free = [first];
  }

  /** As soon as there is some. @throws ObjectShareError, ObjectStoreAwayError */
  static async hold(s3: S3, partBytes: number, to: Holding, signal: AbortSignal): Promise<PartMemory> {
    return new PartMemory(s3, partBytes, to, await s3.hold(partBytes, to, signal));
  }

  /** For the next part. @param sending ends once what is in use was given back */
  async take(sending: Promise<void>): Promise<Held> {
    const free = this.#free.pop() ?? this.#tryHold();
    if (free !== null) return free;
    await sending;
    return this.#free.pop()!;
  }

  /** S3 has what is in it. */
  giveBack(memory: Held): void {
    if (this.#held.size === 1) {
      this.#free.push(memory);
      return;
    }
    this.#held.delete(memory);
    this.#s3.reuse(memory.bytes);
    memory.letGo();
  }

  /** All of it, whatever is in use. */
  letGo(): void {
    for (const memory of this.#held) memory.letGo();
  }

  #tryHold(): Held | null {
    const second = this.#s3.tryHold(this.#partBytes, this.#to);
    if (second !== null) this.#held.add(second);
    return second;
  }
}
