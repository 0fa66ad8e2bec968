import { TemporarilyUnavailable } from "./problems.ts";

/**
 * Settles like `work`, or rejects with `TemporarilyUnavailable` after `ms`. The work itself continues: a retry finds
 * a late commit under its Idempotency-Key.
 */
export async function withDeadline<T>(ms: number, what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeUp = new Promise<never>((_, reject) => {
    const giveUp = () => reject(new TemporarilyUnavailable(`${what} took longer than ${Math.round(ms)} ms`));
    timer = setTimeout(giveUp, Math.max(0, ms));
  });
  try {
    return await Promise.race([work, timeUp]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves when `work` has settled, to true, or after `ms`, to false. */
export async function settlesWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const settled = Promise.allSettled([work]).then(() => true);
  return await withDeadline(ms, "the work", settled).catch(() => false);
}
