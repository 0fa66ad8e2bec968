const REST_MS = 1_000;
const MINUTE_MS = 60_000;
/** A look that takes this much longer than the quickest one has waited for others: for a processor, or the database. */
const CROWDED = { times: 3, addedMs: 2 };
/** One look alone may be late for any reason. */
const LOOKS = 5;

/**
 * Says when the next step may be taken. Webhooks come first, and what steps compute is theirs only while nobody else
 * wants it; but the database knows no priorities, so it is asked less: once the looks for work, which are always alike,
 * take longer than they can, one step a second is taken, so that runs go on all the same.
 */
export class Pace {
  #recentMs: number[] = [];
  /** The quickest looks of this minute and of the one before: a database that has moved away is not crowded for ever. */
  #quickestMs = { now: Number.POSITIVE_INFINITY, before: Number.POSITIVE_INFINITY };
  #minute = 0;
  #takenAtMs = Number.NEGATIVE_INFINITY;

  /** A look has taken so long. Times are of a clock that only goes on. */
  looked(tookMs: number, nowMs: number): void {
    const minute = Math.floor(nowMs / MINUTE_MS);
    if (minute !== this.#minute) {
      this.#quickestMs = { now: Number.POSITIVE_INFINITY, before: this.#quickestMs.now };
      this.#minute = minute;
    }
    this.#quickestMs.now = Math.min(this.#quickestMs.now, tookMs);
    this.#recentMs = [tookMs, ...this.#recentMs].slice(0, LOOKS);
  }

  /** A step is being taken. */
  took(nowMs: number): void {
    this.#takenAtMs = nowMs;
  }

  mayTake(nowMs: number): boolean {
    return nowMs - this.#takenAtMs >= REST_MS || !this.#isCrowded();
  }

  #isCrowded(): boolean {
    const { now, before } = this.#quickestMs;
    const median = this.#recentMs.toSorted((left, right) => left - right)[this.#recentMs.length >> 1] ?? 0;
    return median > Math.min(now, before) * CROWDED.times + CROWDED.addedMs;
  }
}
