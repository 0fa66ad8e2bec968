// Places on a bench, to which nothing happens but what the test does.
import { AccountPlaces, type Place, type PlacesOptions } from "../../src/base/model/account-places.ts";

export const NEVER = new AbortController().signal;

/** Places, who holds them, and a clock that only the test moves on. */
export class Bench {
  nowMs = 0;
  readonly places: AccountPlaces;
  readonly taken: { readonly accountId: string; readonly place: Place }[] = [];
  readonly cut: string[] = [];
  /** Whose turn came, in order. */
  readonly started: string[] = [];

  constructor(options: PlacesOptions) {
    this.places = new AccountPlaces({ ...options, now: () => this.nowMs });
  }

  tryTake(accountId: string, places = 1, placesMin = places): boolean {
    const taken = this.places.tryTake(accountId, { places, placesMin, onCut: () => this.#onCut(accountId) });
    if (taken !== null) this.#keep(accountId, taken);
    return taken !== null;
  }

  /** As many as it gets. */
  takeAll(accountId: string): number {
    let count = 0;
    while (this.tryTake(accountId)) count++;
    return count;
  }

  /** Waits; its turn is in `started`. */
  ask(accountId: string, signal = NEVER, placesMin = 1, places = placesMin, expectedMs = 0): Promise<void> {
    const onCut = () => this.#onCut(accountId);
    return this.places
      .take(accountId, { places, placesMin, expectedMs, onCut }, signal)
      .then((taken) => this.#keep(accountId, taken));
  }

  async askMany(accountId: string, count: number): Promise<void> {
    for (let n = 0; n < count; n++) void this.ask(accountId);
    await turn();
  }

  async end(accountId: string): Promise<void> {
    const at = this.taken.findIndex((one) => one.accountId === accountId);
    const [ended] = this.taken.splice(at, 1);
    ended!.place.giveBack();
    await turn();
  }

  move(accountId: string, bytes: number): void {
    for (const one of this.taken) if (one.accountId === accountId) one.place.moved(bytes);
  }

  #keep(accountId: string, place: Place): void {
    this.started.push(accountId);
    this.taken.push({ accountId, place });
  }

  #onCut(accountId: string): void {
    this.cut.push(accountId);
    this.taken.splice(
      this.taken.findIndex((one) => one.accountId === accountId),
      1,
    );
  }
}

/** All promises that can settle by themselves have settled. */
export const turn = () => new Promise((resolve) => setImmediate(resolve));
