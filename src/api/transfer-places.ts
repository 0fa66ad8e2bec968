import { AccountPlaces, type Place } from "../model/account-places.ts";
import { RETRY_AFTER_UNAVAILABLE_SECONDS, SCARCE_BYTES_PER_SECOND } from "./limits.ts";
import { Problem, TemporarilyUnavailable } from "./problems.ts";

/**
 * Places for transfers of one direction at a time in one process: they last as long as their client likes, so they wait
 * for none. While all are taken, one that hardly moves makes room for an account that has none.
 */
export class TransferPlaces {
  readonly #name: string;
  readonly #max: number;
  readonly #places: AccountPlaces;

  /** `name` is told in the headers of a 429. */
  constructor(name: "uploads" | "downloads", max: number) {
    this.#name = name;
    this.#max = max;
    this.#places = new AccountPlaces({ placesMax: max, movingBytesPerSecond: SCARCE_BYTES_PER_SECOND });
  }

  /**
   * @param onCut ends it: its place is another account's
   * @throws Problem 429 for an account that has its share
   * @throws TemporarilyUnavailable when all are taken
   */
  take(accountId: string, onCut: (reason: TemporarilyUnavailable) => void): Place {
    const reason = () =>
      new TemporarilyUnavailable(`one of the ${this.#name} moved too slowly while all places were taken`);
    const place = this.#places.tryTake(accountId, { onCut: () => onCut(reason()) });
    if (place !== null) return place;
    if (this.#places.held(accountId) > 0) throw this.#refusal();
    throw new TemporarilyUnavailable(`all ${this.#max} places for ${this.#name} are taken`);
  }

  #refusal(): Problem {
    const seconds = RETRY_AFTER_UNAVAILABLE_SECONDS;
    const headers = {
      ratelimit: `"${this.#name}";r=0;t=${seconds}`,
      "ratelimit-policy": `"${this.#name}";q=${Math.ceil(this.#max / 2)};qu="concurrent-requests"`,
      "retry-after": String(seconds),
    };
    return new Problem("rate_limited", { headers });
  }
}
