import { TtlMap } from "../base/model/caches.ts";

/** A second: of an account's names in one domain, look-ups that fail or whose receiver has to wait for its turn; … */
const OF_DOMAIN_PER_SECOND = 50;
/** … of all its names, those that fail; … */
const OF_ACCOUNT_PER_SECOND = 100;
/** … and before that, as many at once as are due in so many seconds. */
const BURST_SECONDS = 10;
/** Where none has cost a token for so long, and none waits, look-ups are not counted: what they owed is paid. */
const COUNTED_MS = 2 * BURST_SECONDS * 1_000;
/** Those that wait in line are called so often. */
const CALLED_EVERY_MS = 200;
/** For so long a name that was admitted does not wait in line: its turns limit it; … */
const ADMITTED_MS = 600_000;
/** … and one that was not waits in turns with those that are new. */
const AGAIN_MS = 3_600_000;
/** Whoever is called and has not come after this is forgotten. */
const CALLED_MS = 60_000;
const REMEMBERED_MAX = 10_000;

/** A token bucket, by the monotonic clock. */
class Bucket {
  readonly #perMs: number;
  readonly #max: number;
  #tokens: number;
  #atMs = performance.now();

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

  add(tokens: number): void {
    this.#tokens = Math.max(-this.#max, Math.min(this.#max, this.#tokens + tokens));
  }
}

/** It failed; or its receiver has to wait for its turn; or it is its turn. */
type Outcome = "failed" | "waits" | "admitted";

/** Tokens, 0 or 1 each. */
type Paid = { readonly ofDomain: number; readonly ofAccount: number };

/** One that waits in line. `paid` null: it has not been called. */
type Waiting = { readonly domain: string; readonly isAgain: boolean; paid: Paid | null };

/** Of an account. */
type Line = {
  /** Receivers, in the order in which they came, … */
  readonly waiting: Map<string, Waiting>;
  /** … and how many of them are in each domain. */
  readonly ofDomain: Map<string, number>;
  /** The account has had no tokens for some of them. */
  isOfAccount: boolean;
};

/** A place in line. */
export type InLine = {
  /** True: it may begin anew. */
  readonly isCalled: () => boolean;
  /** It does not come, so others do. Without effect once it has begun. */
  readonly leave: () => void;
};

export type LookUp = {
  /** Null: it has begun. */
  readonly inLine: InLine | null;
  /** Only the first call counts. @param outcome null: nobody has said whose turn it is */
  readonly end: (outcome: Outcome | null) => void;
};

/**
 * Look-ups of receivers that have proven nothing. Whose name servers are asked for `RANDOM.example.com`, an account
 * says: theirs should not be flooded either, whether such names lead nowhere or all to one place.
 *
 * Losing options: a time to come again for each. If it is soon, chance decides who is next; if it is late, healthy
 * names wait for what only dead ones cost. And no line, each asking for itself: who keeps coming is always first.
 */
export class LookUps {
  /** Of domains and accounts in which look-ups have cost tokens lately. */
  readonly #buckets = new TtlMap<string, Bucket>(REMEMBERED_MAX);
  /** Names that were admitted the last time. */
  readonly #admitted = new TtlMap<string, true>(REMEMBERED_MAX);
  /** Names that were not. */
  readonly #again = new TtlMap<string, true>(REMEMBERED_MAX);
  /** Receivers that have been called, with what they have paid. */
  readonly #called = new TtlMap<string, Paid>(REMEMBERED_MAX);
  readonly #lines = new Map<string, Line>();
  #callAgainAtMs = 0;
  #isTurnOfAgain = false;

  /** Receivers stand in line by their origin, as their lanes rest: so a call brings one lane. */
  begin(accountId: string, { hostname, origin }: Pick<URL, "hostname" | "origin">): LookUp {
    const [name, place] = [`${accountId} ${hostname}`, `${accountId} ${origin}`];
    // Without its first label, at most the last two.
    const domain = `${accountId} ${hostname.split(".").slice(1).slice(-2).join(".")}`;
    const wasAdmitted = this.#admitted.has(name);
    const line = this.#lines.get(accountId);
    const isBehind = !wasAdmitted && line !== undefined && (line.isOfAccount || line.ofDomain.has(domain));
    let paid = this.#called.get(place) ?? (isBehind ? null : this.#pay(accountId, domain, wasAdmitted));
    this.#called.delete(place);
    const isAgain = this.#again.has(name);
    if (paid === null) return { inLine: this.#wait(accountId, domain, place, isAgain), end: () => undefined };
    const end = (outcome: Outcome | null) => {
      if (paid === null) return;
      const hasFailed = outcome === "failed";
      this.#settle(domain, OF_DOMAIN_PER_SECOND, paid.ofDomain, hasFailed || outcome === "waits");
      this.#settle(accountId, OF_ACCOUNT_PER_SECOND, paid.ofAccount, hasFailed);
      paid = null;
      if (outcome === null) return;
      const [its, other, forMs] =
        outcome === "admitted"
          ? [this.#admitted, this.#again, ADMITTED_MS]
          : [this.#again, this.#admitted, AGAIN_MS];
      other.delete(name);
      its.set(name, true, forMs);
    };
    return { inLine: null, end };
  }

  #wait(accountId: string, domain: string, place: string, isAgain: boolean): InLine {
    const line = this.#lines.get(accountId) ?? {
      waiting: new Map(),
      ofDomain: new Map(),
      isOfAccount: false,
    };
    const waiting: Waiting = line.waiting.get(place) ?? { domain, isAgain, paid: null };
    if (!line.waiting.has(place)) line.ofDomain.set(domain, (line.ofDomain.get(domain) ?? 0) + 1);
    line.waiting.set(place, waiting);
    this.#lines.set(accountId, line);
    const isCalled = () => {
      this.#callNext();
      return waiting.paid !== null;
    };
    const leave = () => {
      const { paid } = waiting;
      if (line.waiting.get(place) === waiting) takeOut(line, place, domain);
      else if (paid !== null && this.#called.get(place) === paid) {
        this.#called.delete(place);
        this.#settle(domain, OF_DOMAIN_PER_SECOND, paid.ofDomain, false);
        this.#settle(accountId, OF_ACCOUNT_PER_SECOND, paid.ofAccount, false);
      }
    };
    return { isCalled, leave };
  }

  /** Of each account as many as have tokens. */
  #callNext(): void {
    const nowMs = performance.now();
    if (nowMs < this.#callAgainAtMs) return;
    this.#callAgainAtMs = nowMs + CALLED_EVERY_MS;
    this.#isTurnOfAgain = !this.#isTurnOfAgain;
    for (const [accountId, line] of this.#lines) {
      this.#callOf(accountId, line);
      if (line.waiting.size === 0) this.#lines.delete(accountId);
    }
  }

  #callOf(accountId: string, line: Line): void {
    const refused = new Set<string>();
    // Those who wait are counted, however long nothing has cost a token: all would come at once.
    const ofAccount = this.#counted(accountId, OF_ACCOUNT_PER_SECOND);
    line.isOfAccount = false;
    for (const [place, waiting] of inTurn(line, this.#isTurnOfAgain)) {
      const { domain } = waiting;
      if (refused.has(domain)) continue;
      if (!ofAccount.hasToken) {
        line.isOfAccount = true;
        return;
      }
      if (!this.#buckets.has(domain)) this.#counted(domain, OF_DOMAIN_PER_SECOND);
      const paid = this.#pay(accountId, domain, false);
      if (paid === null) {
        refused.add(domain);
        continue;
      }
      waiting.paid = paid;
      this.#called.set(place, paid, CALLED_MS);
      takeOut(line, place, domain);
    }
  }

  /** Null: there are no tokens. */
  #pay(accountId: string, domain: string, wasAdmitted: boolean): Paid | null {
    const [ofDomain, ofAccount] = [this.#buckets.get(domain), this.#buckets.get(accountId)];
    if (!wasAdmitted && (ofDomain?.hasToken === false || ofAccount?.hasToken === false)) return null;
    ofDomain?.add(-1);
    ofAccount?.add(-1);
    return { ofDomain: ofDomain === undefined ? 0 : 1, ofAccount: ofAccount === undefined ? 0 : 1 };
  }

  #settle(key: string, perSecond: number, paid: number, isCostly: boolean): void {
    if (isCostly) this.#counted(key, perSecond).add(paid - 1);
    else this.#buckets.get(key)?.add(paid);
  }

  #counted(key: string, perSecond: number): Bucket {
    const bucket = this.#buckets.get(key) ?? new Bucket(perSecond);
    this.#buckets.set(key, bucket, COUNTED_MS);
    return bucket;
  }
}

/** Customers' new receivers would otherwise wait behind all that have been dead for long. */
function* inTurn({ waiting }: Line, isTurnOfAgain: boolean): Iterable<[string, Waiting]> {
  for (const isAgain of [isTurnOfAgain, !isTurnOfAgain])
    for (const one of waiting) if (one[1].isAgain === isAgain) yield one;
}

function takeOut({ waiting, ofDomain }: Line, place: string, domain: string): void {
  waiting.delete(place);
  const left = ofDomain.get(domain)! - 1;
  if (left > 0) ofDomain.set(domain, left);
  else ofDomain.delete(domain);
}
