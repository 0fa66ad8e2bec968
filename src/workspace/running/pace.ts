/** Attempts a second of the dispatcher that would leave steps no time: half of what two cores carry. */
const ATTEMPTS_PER_SECOND_MAX = 500;
/** Of the time, however many there are: runs are slower then, and never stand still. */
const SHARE_MIN = 1 / 10;
/** A step usually takes half a second and rests 4.5 s at most: this is for one that took far longer. */
const REST_MAX_MS = 10_000;

/**
 * Says when the next step may be taken. What a low priority cannot lower (a database's work, a processor's caches, the
 * other half of a core) would slow webhooks down: the more of them go out, the longer steps rest.
 */
export class Pace {
  #restsUntilMs = Number.NEGATIVE_INFINITY;
  #share = 1;

  /** What the dispatcher does now. Returns the share of the time that steps may take beside it: 1 is all of it. */
  told(attemptsPerSecond: number): number {
    this.#share = Math.max(SHARE_MIN, 1 - attemptsPerSecond / ATTEMPTS_PER_SECOND_MAX);
    if (this.#share === 1) this.#restsUntilMs = Number.NEGATIVE_INFINITY;
    return this.#share;
  }

  /** A step has taken so long. Times are of a clock that only goes on. */
  ended(tookMs: number, nowMs: number): void {
    const restMs = tookMs * (1 / this.#share - 1);
    this.#restsUntilMs = Math.min(Math.max(this.#restsUntilMs, nowMs) + restMs, nowMs + REST_MAX_MS);
  }

  mayTake(nowMs: number): boolean {
    return nowMs >= this.#restsUntilMs;
  }
}
