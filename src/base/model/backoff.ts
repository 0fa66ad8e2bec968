import { setTimeout as delay } from "node:timers/promises";

export type BackoffLimits = {
  /** Nominal delay before the first retry; each further one doubles it. */
  readonly baseMs: number;
  /** No nominal delay is longer. */
  readonly maxMs: number;
};

/**
 * Exponential backoff with equal jitter, from half of the nominal delay up to all of it: what failed together does not
 * come back together, and (unlike with full jitter) a child that cannot start is never started again at once.
 *
 * @param failures how many failures in a row came before this one
 * @param random uniform in [0, 1)
 * @returns whole milliseconds
 */
export function backoffMs(failures: number, { baseMs, maxMs }: BackoffLimits, random: number): number {
  const nominalMs = Math.min(baseMs * 2 ** failures, maxMs);
  return Math.round((nominalMs * (1 + random)) / 2);
}

export type Backoff = ReturnType<typeof createBackoff>;

/**
 * Counts the failures in a row of one thing that is retried until it works.
 * @param random uniform in [0, 1), a new number for each call
 */
export function createBackoff(limits: BackoffLimits, random: () => number) {
  let failures = 0;
  return {
    /** Milliseconds to wait before the next try. */
    nextMs: () => backoffMs(failures++, limits, random()),
    /** The thing worked: the next failure is a first one. */
    reset: () => {
      failures = 0;
    },
  };
}

/** Resolves after `ms` (none where it is negative), or as soon as `signal` aborts; never rejects. */
export async function abortableDelay(ms: number, signal: AbortSignal): Promise<void> {
  await delay(Math.max(0, ms), undefined, { signal }).catch(() => undefined);
}

/**
 * Does `step` again and again until `signal` aborts: at once where it says that there is more to do, else in `everyMs`.
 * What it throws before is told, and it is tried again as if there were no more.
 */
export async function repeat(
  everyMs: number,
  signal: AbortSignal,
  step: () => Promise<boolean>,
  onError: (error: unknown) => void,
): Promise<void> {
  while (!signal.aborted) {
    const hasMore = await step().catch((error: unknown) => {
      if (!signal.aborted) onError(error);
      return false;
    });
    if (!hasMore) await abortableDelay(everyMs, signal);
  }
}
