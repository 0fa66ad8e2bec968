/** Tells one reader that there may be something new for its account. */
export type Watch = {
  /** Resolves to true when there is, or was since the last call; to false after `ms`, or when the watch has ended. */
  news(ms: number): Promise<boolean>;
  end(): void;
};

type Watcher = { isTold: boolean; wake: () => void };

/**
 * Readers that wait for something new, in memory alone: one that waits holds neither a connection to the database nor a
 * place among the requests at work. An account gets another watch only while it has fewer than are free, so one that
 * takes all it can leaves half of them to the others.
 */
export class AccountNews {
  readonly #watchers = new Map<string, Set<Watcher>>();
  readonly #onWaiting: (count: number) => void;
  #free: number;
  #isClosed = false;
  readonly #watchersMax: number;

  /** `onWaiting` is told how many wait, whenever that changes. */
  constructor(watchersMax: number, onWaiting: (count: number) => void) {
    this.#watchersMax = watchersMax;
    this.#free = watchersMax;
    this.#onWaiting = onWaiting;
    onWaiting(0);
  }

  /** News that is told from now on reaches this watch. Null: too many wait already, or nobody may any more. */
  watch(accountId: string): Watch | null {
    const own = this.#watchers.get(accountId) ?? new Set();
    if (this.#isClosed || own.size >= this.#free) return null;
    const watcher: Watcher = { isTold: false, wake: () => undefined };
    this.#watchers.set(accountId, own.add(watcher));
    this.#changeFree(-1);
    return {
      news: (ms) => this.#wait(own, watcher, ms),
      end: () => {
        if (!own.delete(watcher)) return;
        if (own.size === 0) this.#watchers.delete(accountId);
        this.#changeFree(1);
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

  #changeFree(by: number): void {
    this.#free += by;
    this.#onWaiting(this.#watchersMax - this.#free);
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
