/**
 * Remembers which accounts' logs are too long to be counted. Deliveries leave the log by whole days, oldest first: as
 * long as the one at position 10,001 is there, so are those before it, and nothing has to be counted.
 *
 * One exception: a day with an open delivery stays while younger days leave. Such a log may be taken for a long one for
 * up to `BELIEVED_MS`.
 */
export type LongLogs = {
  /** The delivery at that position when the log was counted last; null: not known. */
  find(accountId: string): string | null;
  remember(accountId: string, deliveryId: string): void;
  forget(accountId: string): void;
};

export const BELIEVED_MS = 600_000;
/** Some 2 MB. */
export const ACCOUNTS_MAX = 10_000;

/** @param monotonicMs milliseconds that only ever grow */
export function createLongLogs(monotonicMs: () => number): LongLogs {
  const ids = new Map<string, string>();
  let sinceMs = monotonicMs();

  function forgetAll(): void {
    ids.clear();
    sinceMs = monotonicMs();
  }

  return {
    find: (accountId) => {
      if (monotonicMs() - sinceMs > BELIEVED_MS) forgetAll();
      return ids.get(accountId) ?? null;
    },
    remember: (accountId, deliveryId) => {
      if (!ids.has(accountId) && ids.size >= ACCOUNTS_MAX) forgetAll();
      ids.set(accountId, deliveryId);
    },
    forget: (accountId) => void ids.delete(accountId),
  };
}
