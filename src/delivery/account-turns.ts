import type { LaneLimits, LaneState } from "./lane.ts";

/** What an account holds in this process, and where it stands in the turns. */
export class Share {
  inFlight = 0;
  /** Of those, to receivers that gave no answer last time, or never did. */
  silentInFlight = 0;
  /** Of its silent receivers, how many more have answered lately than have not: so many more it may try at once. */
  silentCredit = 0;
  /** It starts nothing for now, whatever it may hold. */
  isOverBudget = false;
  /** Something waits, or is in flight. */
  isActive = false;
  turn: Turn | null = null;
  silentTurn: Turn | null = null;
}

/**
 * Silent lanes that can start something. Those that have answered at some time and those that never did take turns, in
 * the order of their own: new names may be thousands, and each may hold its place for seconds.
 */
export class SilentReady<Lane extends { readonly hasAnswered: boolean }> {
  readonly #known = new Set<Lane>();
  readonly #new = new Set<Lane>();
  #isTurnOfNew = true;

  get size(): number {
    return this.#known.size + this.#new.size;
  }

  add(lane: Lane): void {
    const [its, others] = lane.hasAnswered ? [this.#known, this.#new] : [this.#new, this.#known];
    others.delete(lane);
    its.add(lane);
  }

  delete(lane: Lane): void {
    this.#known.delete(lane);
    this.#new.delete(lane);
  }

  /** The one whose turn it is now. */
  next(): Lane | undefined {
    this.#isTurnOfNew = !this.#isTurnOfNew;
    const [its, others] = this.#isTurnOfNew ? [this.#new, this.#known] : [this.#known, this.#new];
    return first(its) ?? first(others);
  }
}

type Turn = Set<Share>;

/** Of the places, those that only accounts with few in flight get: a POST cannot be taken back for a neighbour's. */
const RESERVED_SHARE = 1 / 8;
/** Of the places, those that only accounts with none in flight get; of the silent ones' budget, twice that share. */
const STRICTLY_RESERVED_SHARE = 1 / 16;
/** Of what is left of the reserve, how much an account may hold in all to get one more of it. */
const RESERVE_THRESHOLD = 1 / 4;
/** 0, 1, 2 to 3, 4 to 7, … in flight: enough for 16,383. */
const CLASSES = 15;

/**
 * Which account starts next: the one with the least in flight, to a power of two, and those of one class in turn (round
 * robin). That is max-min fair: whoever asks for little gets all of it, the rest is shared equally.
 *
 * What cannot be taken back is kept back: an eighth of the places is for accounts that hold few, by a dynamic threshold
 * (Choudhury and Hahne, 1998: a queue may grow while it is shorter than a multiple of the free space), half of it for
 * those that hold none. So an account alone gets nearly all, and a hundred greedy ones, even one after the other, leave
 * room for the next. Silent receivers, and those that have never answered, share a budget of their own in the same way;
 * an account begins with a few of them (slow start): each is a new connection, and a hundred handshakes at once hold up
 * everybody.
 *
 * Losing option: deficit round robin shares starts, not places; accounts whose receivers hang would hold them all.
 */
export class AccountTurns<Account extends Share> {
  readonly #limits: Pick<LaneLimits, "inFlightMax" | "silentInFlightMax" | "accountSilentMin">;
  readonly #reserved: number;
  readonly #strictlyReserved: number;
  readonly #silentReserved: number;
  /** Accounts that can start something, by the class of what they have in flight. */
  readonly #turns = newTurns();
  /** Accounts that can start something in a silent lane, by the class of what they have in flight in such. */
  readonly #silentTurns = newTurns();
  /** Accounts with something waiting or in flight. */
  activeAccounts = 0;
  inFlight = 0;
  /** Of those, attempts to receivers that gave no answer last time, or never did. */
  silentInFlight = 0;

  constructor(limits: LaneLimits) {
    this.#limits = limits;
    this.#reserved = Math.floor(limits.inFlightMax * RESERVED_SHARE);
    this.#strictlyReserved = Math.floor(limits.inFlightMax * STRICTLY_RESERVED_SHARE);
    this.#silentReserved = Math.floor(limits.silentInFlightMax * 2 * STRICTLY_RESERVED_SHARE);
  }

  /** The account whose turn it is among those with a lane that answers, where a place is free. */
  next(): Account | undefined {
    return firstBelow(this.#turns, this.#mostToTake());
  }

  /** The same, if that one has nothing in flight. */
  nextIdle(): Account | undefined {
    return firstBelow(this.#turns, 1);
  }

  /** The same among those with a silent lane. */
  nextSilent(): Account | undefined {
    const free = this.#limits.silentInFlightMax - this.silentInFlight;
    if (free <= 0) return undefined;
    const most = Math.max(1, free - this.#silentReserved);
    return firstBelow(this.#silentTurns, Math.min(most, this.#mostToTake()));
  }

  countInFlight(account: Account, change: number, isSilent: boolean): void {
    account.inFlight += change;
    this.inFlight += change;
    if (isSilent) this.countSilent(account, change);
  }

  countSilent(account: Account, change: number): void {
    account.silentInFlight += change;
    this.silentInFlight += change;
  }

  /** A receiver of the account that was silent has answered, or has not. */
  learnOfSilent(account: Account, hasAnswered: boolean): void {
    const credit = account.silentCredit + (hasAnswered ? 1 : -1);
    account.silentCredit = Math.max(0, Math.min(credit, this.#limits.silentInFlightMax));
  }

  /** Puts an account where it belongs now; where that is where it was, it keeps its place in the turns. */
  requeue(account: Account, can: { start: boolean; startSilent: boolean; isActive: boolean }): void {
    if (can.isActive !== account.isActive) this.activeAccounts += can.isActive ? 1 : -1;
    account.isActive = can.isActive;
    const { isOverBudget } = account;
    const turn = !isOverBudget && can.start ? this.#turns[classOf(account.inFlight)]! : null;
    const hasSilentRoom = account.silentInFlight < this.#limits.accountSilentMin + account.silentCredit;
    const mayStartSilent = !isOverBudget && can.startSilent && hasSilentRoom;
    const silentTurn = mayStartSilent ? this.#silentTurns[classOf(account.silentInFlight)]! : null;
    account.turn = moved(account, account.turn, turn);
    account.silentTurn = moved(account, account.silentTurn, silentTurn);
  }

  /** It had its turn: queued again, it is the last. */
  dequeue(account: Account): void {
    account.turn = moved(account, account.turn, null);
    account.silentTurn = moved(account, account.silentTurn, null);
  }

  /** An account that has this many in flight gets no more; one that has none always does. */
  #mostToTake(): number {
    const free = this.#limits.inFlightMax - this.inFlight;
    if (free > this.#reserved) return Number.POSITIVE_INFINITY;
    return Math.max(1, (free - this.#strictlyReserved) * RESERVE_THRESHOLD);
  }
}

function newTurns(): readonly Turn[] {
  return Array.from({ length: CLASSES }, () => new Set<Share>());
}

function classOf(inFlight: number): number {
  return Math.min(32 - Math.clz32(inFlight), CLASSES - 1);
}

/** The first account of the lowest class, if such a class has fewer than `most`. */
function firstBelow<Account extends Share>(turns: readonly Turn[], most: number): Account | undefined {
  for (const [index, turn] of turns.entries()) {
    const fewest = index === 0 ? 0 : 2 ** (index - 1);
    if (fewest >= most) return undefined;
    if (turn.size > 0) return first(turn) as Account;
  }
  return undefined;
}

function moved(share: Share, from: Turn | null, to: Turn | null): Turn | null {
  if (from === to) return to;
  from?.delete(share);
  to?.add(share);
  return to;
}

export function first<T>(items: ReadonlySet<T>): T | undefined {
  return items.values().next().value;
}

/** One of each in turn, until there are no more or so many. */
export function takeInTurn<T>(lists: readonly Iterable<T>[], max: number): T[] {
  const taken: T[] = [];
  let turns = lists.map((list) => list[Symbol.iterator]());
  while (turns.length > 0 && taken.length < max)
    turns = turns.filter((turn) => {
      const next = taken.length < max ? turn.next() : undefined;
      if (next?.done === false) taken.push(next.value);
      return next?.done === false;
    });
  return taken;
}

/** Lanes that have something to take back, of each account some. */
export class LanesInTurn<Lane extends { readonly account: object }> {
  readonly #accounts = new Map<object, Set<Lane>>();

  /** Accounts. */
  get size(): number {
    return this.#accounts.size;
  }

  add(lane: Lane): void {
    const lanes = this.#accounts.get(lane.account) ?? new Set();
    this.#accounts.set(lane.account, lanes.add(lane));
  }

  /** The account's next turn is behind all others'. */
  delete(lane: Lane): void {
    const lanes = this.#accounts.get(lane.account);
    if (lanes?.delete(lane) !== true) return;
    this.#accounts.delete(lane.account);
    if (lanes.size > 0) this.#accounts.set(lane.account, lanes);
  }

  /** All lanes of the next accounts; of one that has more, some, and of no other. */
  drain(max: number): Lane[] {
    const drained: Lane[] = [];
    for (const lanes of this.#accounts.values()) {
      if (drained.length > 0 && drained.length + lanes.size > max) break;
      for (const lane of lanes) if (drained.length < max) drained.push(lane);
    }
    for (const lane of drained) this.delete(lane);
    return drained;
  }

  clear(): void {
    this.#accounts.clear();
  }
}

/** Takes the first items out, at most so many. */
export function drain<T>(items: Set<T>, max: number): T[] {
  const drained: T[] = [];
  for (const item of items) {
    if (drained.length >= max) break;
    items.delete(item);
    drained.push(item);
  }
  return drained;
}

export type Lane = LaneState & {
  readonly key: string;
  readonly account: Account;
  readonly ids: Set<string>;
  inFlight: number;
  /** Its receiver has proven nothing, and it is not its turn. */
  isResting: boolean;
  /** Nobody has said yet whether it has answered before: it may not be as silent as it is taken for. */
  isUnknown: boolean;
  /** The smallest id that there was no room for; null: there was room for all. */
  overflowFrom: string | null;
  isRefillRequested: boolean;
};

export type Account = Share & {
  readonly id: string;
  readonly lanes: Map<string, Lane>;
  /** Lanes that can start something, in the order of their turns: those that answer, and silent ones. */
  readonly ready: Set<Lane>;
  readonly silentReady: SilentReady<Lane>;
  ids: number;
  silentIds: number;
};
