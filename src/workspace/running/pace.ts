/** Attempts to deliver a second, by this step process's dispatcher, from which on steps give way. */
const ATTEMPTS_PER_SECOND = 20;
/** Of the time, for each step that is taken meanwhile. */
const SHARE = 1 / 10;

/**
 * Says when the next step may be taken. What a low priority cannot lower (a database's work, a processor's caches, the
 * other half of a core) would slow webhooks down: while they go out, steps rest for nine times as long as they took.
 */
export class Pace {
  #restsUntilMs = Number.NEGATIVE_INFINITY;
  #share = 1;

  /** What the dispatcher does now. */
  told(attemptsPerSecond: number): void {
    this.#share = attemptsPerSecond < ATTEMPTS_PER_SECOND ? 1 : SHARE;
    if (this.#share === 1) this.#restsUntilMs = Number.NEGATIVE_INFINITY;
  }

  /** A step has taken so long. Times are of a clock that only goes on. */
  ended(tookMs: number, nowMs: number): void {
    this.#restsUntilMs = Math.max(this.#restsUntilMs, nowMs) + tookMs * (1 / this.#share - 1);
  }

  mayTake(nowMs: number): boolean {
    return nowMs >= this.#restsUntilMs;
  }
}
