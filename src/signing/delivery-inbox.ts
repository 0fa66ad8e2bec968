/**
 * Remembers which deliveries a receiver has accepted. The same one can arrive again: when an answer was lost on its
 * way, and when somebody replays it.
 *
 * `Context` is what an implementation hands to `accept`, such as the client of its open transaction.
 */
export interface DeliveryInbox<Context = void> {
  /**
   * Runs `accept` the first time that an id is seen. When `accept` throws, the id is not remembered and the error is
   * passed on, so that the next attempt is accepted. A call that comes while the same id is being accepted waits for
   * the outcome: to answer it "duplicate" before would lose the event if the first one failed.
   */
  acceptOnce(
    deliveryId: string,
    accept: (context: Context) => void | Promise<void>,
  ): Promise<"accepted" | "duplicate">;
}

/**
 * An inbox for one process that forgets at its end. With several processes, or across restarts, keep the ids in the
 * database instead, in the transaction in which the work itself is stored.
 *
 * @param options.idsMax how many ids are kept before the oldest is forgotten; 100,000 (about 10 MB) when left out
 * @throws RangeError when `idsMax` is not a whole number above 0
 */
export function createMemoryInbox(options: { readonly idsMax?: number | undefined } = {}): DeliveryInbox {
  const { idsMax = 100_000 } = options;
  if (!Number.isSafeInteger(idsMax) || idsMax < 1) {
    throw new RangeError("idsMax must be a whole number above 0.");
  }
  const accepted = new Set<string>();
  const accepting = new Map<string, Promise<void>>();

  return {
    async acceptOnce(deliveryId, accept) {
      for (let other = accepting.get(deliveryId); other !== undefined; other = accepting.get(deliveryId)) {
        await other.catch(() => undefined);
      }
      if (accepted.has(deliveryId)) return "duplicate";

      // Begun a moment later, so that it stands in the map before anything of it runs.
      const acceptance = Promise.resolve().then(accept);
      accepting.set(deliveryId, acceptance);
      try {
        await acceptance;
      } finally {
        accepting.delete(deliveryId);
      }
      accepted.add(deliveryId);
      // A Set keeps the order of insertion: its first is the oldest.
      if (accepted.size > idsMax) accepted.delete(accepted.values().next().value!);
      return "accepted";
    },
  };
}
