/**
 * Which accounts' logs are too long to be counted. Deliveries leave the log only with their day, the oldest days first:
 * as long as the one at position 10,001 is there, so are those before it, and nothing has to be counted to know.
 */
export type LongLogs = {
  /** The delivery at that position when the log was counted last; null: not known. */
  find(accountId: string): string | null;
  remember(accountId: string, deliveryId: string): void;
};

/** A day whose deliveries were not all done stays when younger ones leave: so nothing is believed for long. */
const BELIEVED_MS = 600_000;
const ACCOUNTS_MAX = 10_000;

export function createLongLogs(): LongLogs {
  const ids = new Map<string, string>();
  let sinceMs = performance.now();

  function forgetAll(): void {
    ids.clear();
    sinceMs = performance.now();
  }

  return {
    find: (accountId) => {
      if (performance.now() - sinceMs > BELIEVED_MS) forgetAll();
      return ids.get(accountId) ?? null;
    },
    remember: (accountId, deliveryId) => {
      if (ids.size >= ACCOUNTS_MAX) forgetAll();
      ids.set(accountId, deliveryId);
    },
  };
}
