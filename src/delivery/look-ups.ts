import { TtlMap } from "../base/model/caches.ts";
import { type InLine, moveToEnd } from "./lane.ts";

/** A second: of an account's names in one domain, look-ups that fail or whose receiver has to wait for its turn; … */
const OF_DOMAIN_PER_SECOND = 50;
/** … of all its names, those that fail; … */
const OF_ACCOUNT_PER_SECOND = 100;
/** … and before that, as many at once as are due in so many seconds. */
const BURST_SECONDS = 10;
/** Where none has cost a token for so long, and none waits, look-ups are not counted: what they owed is paid. */
const COUNTED_MS = 2 * BURST_SECONDS * 1_000;
/** Of those that wait in line, as many are called as there are tokens, so often; … */
const CALLED_EVERY_MS = 200;
/** … others in place of those that have not come after so many rounds, … */
const ROUNDS_TO_COME = 5;
/** … and who has not come after this has no place any more. */
const CALLED_MS = 60_000;
/** For so long a name that was admitted does not wait in line unless tokens are owed: its turns limit it; … */
const ADMITTED_MS = 600_000;
/** … and one that has failed takes turns with all others. */
const FAILED_MS = 3_600_000;
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
  get tokens(): number {
    const nowMs = performance.now();
    this.add((nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    return this.#tokens;
  }

  /** @param mayOwe as many as it holds */
  hasToken(mayOwe = false): boolean {
    return this.tokens >= (mayOwe ? 1 - this.#max : 1);
  }

  add(tokens: number): void {
    this.#tokens = Math.max(-this.#max, Math.min(this.#max, this.#tokens + tokens));
  }
}

/** It failed; or its receiver has to wait for its turn; or it is its turn. */
type Outcome = "failed" | "waits" | "admitted";

/** Where a look-up's tokens are from, of its domain and of its account; undefined: nothing was counted there. */
type Paid = readonly (Bucket | undefined)[];

/** One that waits in line. `calledAtMs` null: it is not called. */
type Waiting = { readonly origin: string; readonly domain: string; calledAtMs: number | null };

/** Of a domain, or of an account. `called`: lately, and they have not come. */
type Group = { readonly bucket: Bucket; called: number };

/** Its names, in the order in which they came. */
type Domain = Group & { readonly failed: Set<Waiting>; readonly others: Set<Waiting> };

/** Of an account. */
type Line = {
  readonly waiting: Map<string, Waiting>;
  /** In the order in which they were called. */
  readonly called: Set<Waiting>;
  /** In turn. */
  readonly ofDomain: Map<string, Domain>;
  readonly ofAccount: Group;
  /** The account has had no tokens for some of them. */
  isOfAccount: boolean;
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
 * A look-up takes its tokens when it begins, however long ago it was called: who is called may have to wait for a place
 * in flight, or be gone.
 *
 * Losing options: a time to come again for each. If it is soon, chance decides who is next; if it is late, healthy
 * names wait for what only dead ones cost. And no line, each asking for itself: who keeps coming is always first.
 */
export class LookUps {
  /** Of domains and accounts in which look-ups have cost tokens lately. Those that wait hold theirs themselves. */
  readonly #buckets = new TtlMap<string, Bucket>(REMEMBERED_MAX);
  /** Names that were admitted the last time. */
  readonly #admitted = new TtlMap<string, true>(REMEMBERED_MAX);
  /** Names that failed the last time. */
  readonly #failed = new TtlMap<string, true>(REMEMBERED_MAX);
  readonly #lines = new Map<string, Line>();
  #callAgainAtMs = 0;
  #rounds = 0;

  /** Receivers stand in line by their origin, as their lanes rest: so a call brings one lane. */
  begin(accountId: string, { hostname, origin }: Pick<URL, "hostname" | "origin">): LookUp {
    const name = `${accountId} ${hostname}`;
    // Without its first label, at most the last two.
    const domain = `${accountId} ${hostname.split(".").slice(1).slice(-2).join(".")}`;
    const wasAdmitted = this.#admitted.has(name);
    const line = this.#lines.get(accountId);
    const waiting = line?.waiting.get(origin);
    const isBehind =
      waiting === undefined
        ? line !== undefined && (line.isOfAccount || line.ofDomain.has(domain))
        : waiting.calledAtMs === null;
    let paid = isBehind && !wasAdmitted ? null : this.#pay(accountId, domain, wasAdmitted);
    if (paid === null) {
      const inLine = this.#wait(accountId, { origin, domain }, this.#failed.has(name));
      return { inLine, end: () => undefined };
    }
    if (waiting !== undefined) this.#takeOut(accountId, waiting);
    const end = (outcome: Outcome | null) => {
      if (paid === null) return;
      const [ofDomain, ofAccount] = paid;
      paid = null;
      const hasFailed = outcome === "failed";
      this.#settle(accountId, domain, OF_DOMAIN_PER_SECOND, ofDomain, hasFailed || outcome === "waits");
      this.#settle(accountId, accountId, OF_ACCOUNT_PER_SECOND, ofAccount, hasFailed);
      if (outcome === null) return;
      if (outcome === "admitted") this.#admitted.set(name, true, ADMITTED_MS);
      else this.#admitted.delete(name);
      if (hasFailed) this.#failed.set(name, true, FAILED_MS);
      else this.#failed.delete(name);
    };
    return { inLine: null, end };
  }

  #wait(accountId: string, named: Pick<Waiting, "origin" | "domain">, hasFailed: boolean): InLine {
    const { origin, domain } = named;
    const newGroup = (key: string, perSecond: number): Group => {
      return { bucket: this.#buckets.get(key) ?? new Bucket(perSecond), called: 0 };
    };
    const line = this.#lines.get(accountId) ?? {
      waiting: new Map<string, Waiting>(),
      called: new Set<Waiting>(),
      ofDomain: new Map<string, Domain>(),
      ofAccount: newGroup(accountId, OF_ACCOUNT_PER_SECOND),
      isOfAccount: false,
    };
    this.#lines.set(accountId, line);
    const known = line.waiting.get(origin);
    const waiting = known ?? { ...named, calledAtMs: null };
    if (known === undefined) {
      line.waiting.set(origin, waiting);
      const names = line.ofDomain.get(domain) ?? {
        ...newGroup(domain, OF_DOMAIN_PER_SECOND),
        failed: new Set(),
        others: new Set(),
      };
      line.ofDomain.set(domain, names);
      names[hasFailed ? "failed" : "others"].add(waiting);
    } else setCalled(line, known, null);
    const isIn = () => line.waiting.get(origin) === waiting;
    const isCalled = () => {
      this.#callNext();
      return !isIn() || waiting.calledAtMs !== null;
    };
    const leave = () => {
      if (isIn()) this.#takeOut(accountId, waiting);
    };
    return { isCalled, leave };
  }

  #takeOut(accountId: string, waiting: Waiting): void {
    const line = this.#lines.get(accountId)!;
    setCalled(line, waiting, null);
    line.waiting.delete(waiting.origin);
    const { failed, others } = line.ofDomain.get(waiting.domain)!;
    for (const names of [failed, others]) names.delete(waiting);
    if (failed.size + others.size === 0) line.ofDomain.delete(waiting.domain);
    if (line.waiting.size === 0) this.#lines.delete(accountId);
  }

  /** Of each account as many as have tokens. */
  #callNext(): void {
    const nowMs = performance.now();
    if (nowMs < this.#callAgainAtMs) return;
    this.#callAgainAtMs = nowMs + CALLED_EVERY_MS;
    this.#rounds++;
    for (const [accountId, line] of this.#lines) this.#callOf(accountId, line, nowMs);
  }

  #callOf(accountId: string, line: Line, nowMs: number): void {
    const { ofAccount, ofDomain, called } = line;
    for (const waiting of called) {
      if (nowMs - waiting.calledAtMs! < CALLED_MS) break;
      this.#takeOut(accountId, waiting);
    }
    if (this.#rounds % ROUNDS_TO_COME === 0)
      for (const group of [ofAccount, ...ofDomain.values()]) group.called = 0;
    // Customers' new receivers would otherwise wait behind all that have been dead for long, …
    for (const kind of this.#rounds % 2 === 0 ? KINDS : KINDS.toReversed()) {
      // … and behind thousands of names of other domains. At the end it comes again in the same loop.
      for (const domain of ofDomain.values()) {
        if (!hasTokens(ofAccount)) break;
        const waiting = hasTokens(domain) ? nextOf(domain[kind]) : undefined;
        if (waiting === undefined) continue;
        setCalled(line, waiting, nowMs);
        moveToEnd(ofDomain, waiting.domain);
      }
    }
    line.isOfAccount = !hasTokens(ofAccount);
  }

  #bucketOf(accountId: string, key: string): Bucket | undefined {
    const line = this.#lines.get(accountId);
    const group = key === accountId ? line?.ofAccount : line?.ofDomain.get(key);
    return group?.bucket ?? this.#buckets.get(key);
  }

  /** Null: there are no tokens. */
  #pay(accountId: string, domain: string, wasAdmitted: boolean): Paid | null {
    const buckets = [domain, accountId].map((key) => this.#bucketOf(accountId, key));
    if (buckets.some((bucket) => bucket?.hasToken(wasAdmitted) === false)) return null;
    for (const bucket of buckets) bucket?.add(-1);
    return buckets;
  }

  #settle(
    accountId: string,
    key: string,
    perSecond: number,
    paidFrom: Bucket | undefined,
    isCostly: boolean,
  ): void {
    if (!isCostly) {
      paidFrom?.add(1);
      return;
    }
    const bucket = this.#bucketOf(accountId, key) ?? new Bucket(perSecond);
    this.#buckets.set(key, bucket, COUNTED_MS);
    if (bucket !== paidFrom) bucket.add(-1);
  }
}

const KINDS = ["failed", "others"] as const;

const hasTokens = ({ bucket, called }: Group) => bucket.tokens - called >= 1;

/** The first that is not called. */
function nextOf(names: Iterable<Waiting>): Waiting | undefined {
  for (const waiting of names) if (waiting.calledAtMs === null) return waiting;
  return undefined;
}

/** @param calledAtMs null: it has come, or is gone */
function setCalled({ called, ofAccount, ofDomain }: Line, waiting: Waiting, calledAtMs: number | null): void {
  if ((waiting.calledAtMs === null) === (calledAtMs === null)) return;
  waiting.calledAtMs = calledAtMs;
  if (calledAtMs === null) called.delete(waiting);
  else called.add(waiting);
  for (const group of [ofAccount, ofDomain.get(waiting.domain)!])
    group.called = Math.max(0, group.called + (calledAtMs === null ? -1 : 1));
}
