import { TtlMap } from "../base/model/caches.ts";

/** A second: of an account's names in one domain, look-ups in vain or of a name whose receiver has to wait; … */
const OF_DOMAIN_PER_SECOND = 10;
/** … of all its names, those in vain; … */
const OF_ACCOUNT_PER_SECOND = 100;
/** … and before that, as many at once as are due in so many seconds. */
const BURST_SECONDS = 10;
/** Where none has cost anything for so long, look-ups are not counted. */
const COUNTED_MS = 20_000;
/** Whoever comes for the first time is behind one that waits, if that was told within this that it may not come yet. */
const TOLD_WITHIN_MS = 600;
/** A name whose turn it was waits for none of the others for so long: its turns are few. */
const LED_ON_MS = 600_000;
/** Whoever has been told that it may come does within this. */
const BOOKED_MS = 60_000;
const REMEMBERED_MAX = 10_000;

/** A token bucket, by the monotonic clock. */
class Bucket {
  readonly #perMs: number;
  readonly #max: number;
  #tokens: number;
  #atMs = performance.now();
  #toldAtMs = Number.NEGATIVE_INFINITY;

  constructor(perSecond: number) {
    this.#perMs = perSecond / 1_000;
    this.#max = perSecond * BURST_SECONDS;
    this.#tokens = this.#max;
  }

  /** Fills it up. */
  get hasToken(): boolean {
    const nowMs = performance.now();
    this.add((nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    return this.#tokens >= 1;
  }

  get hasWaiting(): boolean {
    return performance.now() - this.#toldAtMs < TOLD_WITHIN_MS;
  }

  /** One that waits is told that it may not come yet. */
  tellToWait(): void {
    this.#toldAtMs = performance.now();
  }

  add(tokens: number): void {
    this.#tokens = Math.min(this.#max, this.#tokens + tokens);
  }
}

/** Where a name has led: nowhere, to a receiver that has to wait for its turn, or to one whose turn it is. */
type Led = "nowhere" | "to_wait" | "on";

/** Tokens, 0 or 1 each. */
type Paid = { readonly ofDomain: number; readonly ofAccount: number };

export type LookUp = {
  /** Null: it has begun. Else it comes again, once this says that it may; asked in the order in which they came. */
  readonly mayCome: (() => boolean) | null;
  /** The first time counts, as soon as it is known. @param led null: nobody has said whose turn it is */
  readonly end: (led: Led | null) => void;
};

/**
 * Look-ups of receivers that have proven nothing. Whose name servers are asked for `RANDOM.example.com`, an account
 * says: theirs should not be flooded either, whether such names lead nowhere or all to one place.
 *
 * Losing option: each comes again at a time of its own. That is a lottery if it is soon; and if it is as late as those
 * before it need, names that lead on wait for what only others cost.
 */
export class LookUps {
  /** Of domains and accounts in which look-ups have cost something lately. */
  readonly #buckets = new TtlMap<string, Bucket>(REMEMBERED_MAX);
  /** Names that led on the last time. */
  readonly #ledOn = new TtlMap<string, true>(REMEMBERED_MAX);
  /** Names that have been told that they may come, with what they have paid. */
  readonly #booked = new TtlMap<string, Paid>(REMEMBERED_MAX);

  begin(accountId: string, hostname: string): LookUp {
    const name = `${accountId} ${hostname}`;
    // Without its first label, at most the last two.
    const domain = `${accountId} ${hostname.split(".").slice(1).slice(-2).join(".")}`;
    const pay = (isFree: boolean): Paid | null => {
      const [ofDomain, ofAccount] = [this.#buckets.get(domain), this.#buckets.get(accountId)];
      if (!isFree && (ofDomain?.hasToken === false || ofAccount?.hasToken === false)) {
        ofDomain?.tellToWait();
        return null;
      }
      ofDomain?.add(-1);
      ofAccount?.add(-1);
      return { ofDomain: ofDomain === undefined ? 0 : 1, ofAccount: ofAccount === undefined ? 0 : 1 };
    };
    const mayCome = () => {
      const paid = pay(false);
      if (paid !== null) this.#booked.set(name, paid, BOOKED_MS);
      return paid !== null;
    };
    const isFree = this.#ledOn.has(name);
    const isBehind = !isFree && this.#buckets.get(domain)?.hasWaiting === true;
    let paid = this.#booked.get(name) ?? (isBehind ? null : pay(isFree));
    this.#booked.delete(name);
    if (paid === null) return { mayCome, end: () => undefined };
    const end = (led: Led | null) => {
      if (paid === null) return;
      const isInVain = led === "nowhere";
      this.#settle(domain, OF_DOMAIN_PER_SECOND, paid.ofDomain, isInVain || led === "to_wait");
      this.#settle(accountId, OF_ACCOUNT_PER_SECOND, paid.ofAccount, isInVain);
      paid = null;
      if (led === "on") this.#ledOn.set(name, true, LED_ON_MS);
      else if (led !== null) this.#ledOn.delete(name);
    };
    return { mayCome: null, end };
  }

  #settle(key: string, perSecond: number, paid: number, isCostly: boolean): void {
    const bucket = this.#buckets.get(key) ?? (isCostly ? new Bucket(perSecond) : undefined);
    bucket?.add(paid - Number(isCostly));
    if (isCostly) this.#buckets.set(key, bucket!, COUNTED_MS);
  }
}
