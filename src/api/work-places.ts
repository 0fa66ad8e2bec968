import { withDeadline } from "./deadline.ts";

type Waiting = { readonly places: number; readonly start: () => void };

/** Of the free places, how many times as many one account may hold: alone, three quarters of all. */
const SHARE_OF_FREE = 3;

/**
 * Places for requests at work on the database, shared by account: the next one goes to whoever waits and has the
 * fewest. An account gets another only while it holds less than a multiple of what is free (a dynamic threshold,
 * Choudhury and Hahne, 1998), so a greedy one leaves room for the next account; and when many have taken all, whoever
 * has none is the first to get one.
 *
 * Losing option: the pool's own queue, first come, first served. Forty slow requests of one account had everybody else
 * answered with 503.
 */
export class WorkPlaces {
  readonly #atWork = new Map<string, number>();
  readonly #waiting = new Map<string, Set<Waiting>>();
  #free: number;

  constructor(placesMax: number) {
    this.#free = placesMax;
  }

  /**
   * Runs the work once it is its account's turn; it holds its places until the work itself has settled. Large work
   * takes several, perhaps more than are free: if it had to wait for all of them, small work would always come first.
   * @throws TemporarilyUnavailable when none was free within `waitMs`; the work is not begun then
   */
  async run<T>(accountId: string, places: number, waitMs: number, work: () => Promise<T>): Promise<T> {
    if (this.#mayStart(accountId)) this.#start(accountId, places);
    else await this.#wait(accountId, places, waitMs);
    try {
      return await work();
    } finally {
      this.#end(accountId, places);
    }
  }

  #mayStart(accountId: string): boolean {
    return this.#held(accountId) < SHARE_OF_FREE * this.#free;
  }

  #start(accountId: string, places: number): void {
    this.#free -= places;
    this.#atWork.set(accountId, this.#held(accountId) + places);
  }

  #end(accountId: string, places: number): void {
    this.#free += places;
    const left = this.#held(accountId) - places;
    if (left > 0) this.#atWork.set(accountId, left);
    else this.#atWork.delete(accountId);
    this.#startNext();
  }

  async #wait(accountId: string, places: number, waitMs: number): Promise<void> {
    const { promise, resolve: start } = Promise.withResolvers<void>();
    const waiting: Waiting = { places, start };
    const own = this.#waiting.get(accountId) ?? new Set();
    this.#waiting.set(accountId, own.add(waiting));
    try {
      await withDeadline(waitMs, "a place among the account's requests", promise);
    } catch (error) {
      // The place may have come in the very moment that the wait was over.
      if (own.has(waiting)) this.#leave(accountId, own, waiting);
      else this.#end(accountId, places);
      throw error;
    }
  }

  #startNext(): void {
    for (;;) {
      let next: string | null = null;
      for (const accountId of this.#waiting.keys()) {
        if (!this.#mayStart(accountId)) continue;
        if (next === null || this.#held(accountId) < this.#held(next)) next = accountId;
      }
      if (next === null) return;
      const own = this.#waiting.get(next)!;
      const [first] = own;
      this.#leave(next, own, first!);
      // To the end of the turn among those that hold as many.
      if (own.size > 0) {
        this.#waiting.delete(next);
        this.#waiting.set(next, own);
      }
      this.#start(next, first!.places);
      first!.start();
    }
  }

  #held(accountId: string): number {
    return this.#atWork.get(accountId) ?? 0;
  }

  #leave(accountId: string, own: Set<Waiting>, waiting: Waiting): void {
    own.delete(waiting);
    if (own.size === 0) this.#waiting.delete(accountId);
  }
}
