/**
 * The database's time without asking it: its last answer plus the monotonic clock since then. Schedules, signatures and
 * the log follow it, so that a dispatcher whose wall clock is an hour off signs and schedules like all others.
 */
export class DatabaseClock {
  readonly #monotonicMs: () => number;
  #offsetMs: number | null = null;

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** Corrects the clock by an answer given at some moment between the two monotonic ones. */
  observe(databaseNowMs: number, askedAtMs: number, answeredAtMs: number): void {
    this.#offsetMs = databaseNowMs - (askedAtMs + answeredAtMs) / 2;
  }

  /** Milliseconds since the epoch. Throws before the first observation: there is nothing to guess from. */
  nowMs(): number {
    if (this.#offsetMs === null)
      throw new Error("the database's clock was read before the database was asked");
    return this.#offsetMs + this.#monotonicMs();
  }
}
