import { AccountPlaces } from "../base/model/account-places.ts";

/** Tells one reader that there may be something new for its account. */
export type Watch = {
  /** Resolves to true when there is, or was since the last call; to false after `ms`, or when the watch has ended. */
  news(ms: number): Promise<boolean>;
  end(): void;
};

type Watcher = { isTold: boolean; wake: () => void };

/**
 * Readers that wait for something new, in memory alone: one that waits holds neither a connection to the database nor a
 * place among the requests at work.
 */
export class AccountNews {
  readonly #watchers = new Map<string, Set<Watcher>>();
  readonly #onWaiting: (count: number) => void;
  readonly #places: AccountPlaces;
  #isClosed = false;

  /** `onWaiting` is told how many wait, whenever that changes. */
  constructor(watchersMax: number, onWaiting: (count: number) => void) {
    this.#places = new AccountPlaces({ placesMax: watchersMax });
    this.#onWaiting = onWaiting;
    onWaiting(0);
  }

  /** News that is told from now on reaches this watch. Null: too many wait already, or nobody may any more. */
  watch(accountId: string, sharer = accountId): Watch | null {
    const place = this.#isClosed ? null : this.#places.tryTake(sharer);
    if (place === null) return null;
    const own = this.#watchers.get(accountId) ?? new Set();
    const watcher: Watcher = { isTold: false, wake: () => undefined };
    this.#watchers.set(accountId, own.add(watcher));
    this.#onWaiting(this.#places.taken);
    return {
      news: (ms) => this.#wait(own, watcher, ms),
      end: () => {
        if (!own.delete(watcher)) return;
        if (own.size === 0) this.#watchers.delete(accountId);
        place.giveBack();
        this.#onWaiting(this.#places.taken);
        watcher.wake();
      },
    };
  }

  tell(accountIds: Iterable<string>): void {
    for (const accountId of accountIds) {
      for (const watcher of this.#watchers.get(accountId) ?? []) {
        watcher.isTold = true;
        watcher.wake();
      }
    }
  }

  /** For when news may have been missed. */
  tellAll(): void {
    this.tell(this.#watchers.keys());
  }

  /** Ends all waiting, now and from now on: the process is stopping. */
  close(): void {
    this.#isClosed = true;
    for (const own of this.#watchers.values()) for (const watcher of own) watcher.wake();
  }

  async #wait(own: ReadonlySet<Watcher>, watcher: Watcher, ms: number): Promise<boolean> {
    if (!watcher.isTold && !this.#isClosed && own.has(watcher)) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, ms);
      watcher.wake = resolve;
      await promise;
      clearTimeout(timer);
    }
    const { isTold } = watcher;
    watcher.isTold = false;
    return isTold && !this.#isClosed && own.has(watcher);
  }
}
