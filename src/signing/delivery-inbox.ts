/**
 * Remembers which deliveries a receiver has accepted. Delivery is at least once: the same one arrives again when a
 * response got lost, and when somebody replays it.
 *
 * `Context` is what an implementation passes to `accept`, such as the client of its open transaction.
 */
export interface DeliveryInbox<Context = void> {
  /**
   * Runs `accept` the first time an id is seen. When `accept` throws, the id is not remembered and the error is
   * rethrown, so that the next attempt is accepted. A concurrent call with the same id waits for the first:
   * answering "duplicate" earlier would lose the event if the first one failed.
   */
  acceptOnce(
    deliveryId: string,
    accept: (context: Context) => void | Promise<void>,
  ): Promise<"accepted" | "duplicate">;
}

/**
 * An inbox in memory, for a single process. With several processes, or to survive restarts, keep the ids in the
 * database, in the transaction that stores the work.
 * @param options.idsMax number of ids kept before the oldest is dropped; default 100,000 (about 10 MB)
 * @throws RangeError if `idsMax` is not a positive integer
 */
export function createMemoryInbox(options: { readonly idsMax?: number | undefined } = {}): DeliveryInbox {
  const { idsMax = 100_000 } = options;
  if (!Number.isSafeInteger(idsMax) || idsMax < 1) {
    throw new RangeError("idsMax must be a positive integer.");
  }
  const accepted = new Set<string>();
  const accepting = new Map<string, Promise<void>>();

  return {
    async acceptOnce(deliveryId, accept) {
      for (let other = accepting.get(deliveryId); other !== undefined; other = accepting.get(deliveryId)) {
        await other.catch(() => undefined);
      }
      if (accepted.has(deliveryId)) return "duplicate";

      // Deferred, so that it is in the map before `accept` runs.
      const acceptance = Promise.resolve().then(accept);
      accepting.set(deliveryId, acceptance);
      try {
        await acceptance;
      } finally {
        accepting.delete(deliveryId);
      }
      accepted.add(deliveryId);
      // A Set keeps insertion order: the first is the oldest.
      if (accepted.size > idsMax) accepted.delete(accepted.values().next().value!);
      return "accepted";
    },
  };
}
