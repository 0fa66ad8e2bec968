import { RETRY_AFTER_UNAVAILABLE_SECONDS } from "./limits.ts";
import { Problem, TemporarilyUnavailable } from "./problems.ts";

/**
 * Places for transfers of one direction at a time in one process: they last as long as their client likes, so they wait
 * for none, and one account has at most half of them.
 */
export class TransferPlaces {
  readonly #name: string;
  readonly #max: number;
  readonly #byAccount = new Map<string, number>();
  #taken = 0;

  /** `name` is told in the headers of a 429. */
  constructor(name: "uploads" | "downloads", max: number) {
    this.#name = name;
    this.#max = max;
  }

  /**
   * Returns what gives the place back; calling it again does nothing.
   * @throws Problem 429 for an account that has its share
   * @throws TemporarilyUnavailable when all are taken
   */
  take(accountId: string): () => void {
    const own = this.#byAccount.get(accountId) ?? 0;
    const share = Math.ceil(this.#max / 2);
    if (own >= share) throw this.#refusal(share);
    if (this.#taken >= this.#max)
      throw new TemporarilyUnavailable(`all ${this.#max} places for ${this.#name}`);
    this.#taken += 1;
    this.#byAccount.set(accountId, own + 1);
    let isTaken = true;
    return () => {
      if (isTaken) this.#giveBack(accountId);
      isTaken = false;
    };
  }

  #giveBack(accountId: string): void {
    this.#taken -= 1;
    const left = (this.#byAccount.get(accountId) ?? 0) - 1;
    if (left > 0) this.#byAccount.set(accountId, left);
    else this.#byAccount.delete(accountId);
  }

  #refusal(share: number): Problem {
    const seconds = RETRY_AFTER_UNAVAILABLE_SECONDS;
    const headers = {
      ratelimit: `"${this.#name}";r=0;t=${seconds}`,
      "ratelimit-policy": `"${this.#name}";q=${share};qu="concurrent-requests"`,
      "retry-after": String(seconds),
    };
    return new Problem("rate_limited", { headers });
  }
}
