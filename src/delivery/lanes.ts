import {
  type Account,
  AccountTurns,
  drain,
  first,
  type Lane,
  LanesInTurn,
  Share,
  SilentReady,
  takeInTurn,
} from "./account-turns.ts";
import {
  type AnsweredLane,
  isToBeTold,
  type LaneAnswer,
  type LaneKey,
  type LaneLimits,
  LaneState,
  learn,
  type Overflow,
  ReceiverRests,
  roomFor,
  setAnsweredBefore,
  type TakenDelivery,
  type TurnTaken,
  type WaitingDelivery,
} from "./lane.ts";

/**
 * What waits in this process, and who may start next: places and memory are shared by account first and by lane second.
 * Within an account its lanes take turns; which account's turn it is, `AccountTurns` says.
 *
 * Nothing here is the truth: an id that overflows, or is lost with the process, is a row that stays due.
 *
 * Losing option: turns by lane alone. An account that named 4,000 new hosts had 4,000 turns.
 */
export class Lanes {
  readonly #limits: LaneLimits;
  readonly #turns: AccountTurns<Account>;
  readonly #accounts = new Map<string, Account>();
  /** Lanes that have nothing to do, the longest idle first. */
  readonly #idle = new Set<Lane>();
  readonly #rests = new ReceiverRests<Lane>((lane) => {
    this.#requeue(lane);
    if (isUnused(lane)) this.#rest(lane);
  });
  /** Lanes that have never answered, as far as is known here, those not asked about for the longest time first. */
  readonly #neverAnswered = new Set<Lane>();
  /** What there is to do in the database: see `drainCreated`, `drainAnswered` and `drainOverflow`. */
  readonly created = new Set<Lane>();
  readonly answered = new Set<Lane>();
  readonly wanted = new LanesInTurn<Lane>();
  #ids = 0;

  constructor(limits: LaneLimits) {
    this.#limits = limits;
    this.#turns = new AccountTurns(limits);
  }

  /** Attempts in flight (claimed or about to be). */
  get inFlight(): number {
    return this.#turns.inFlight;
  }

  /** Of those, attempts to receivers that gave no answer last time, or never did. */
  get silentInFlight(): number {
    return this.#turns.silentInFlight;
  }

  get waitingIds(): number {
    return this.#ids;
  }

  /** Accounts with something waiting or in flight. */
  get activeAccounts(): number {
    return this.#turns.activeAccounts;
  }

  /** Lanes that have ids waiting but are at their limit. */
  get lanesAtCapacity(): number {
    return this.#count((lane) => lane.ids.size > 0 && lane.inFlight >= lane.limit);
  }

  /** Lanes whose receiver gave no answer last time, or never did. */
  get silentLanes(): number {
    return this.#count((lane) => lane.isSilent);
  }

  /** Lanes that something overflowed from and that have not got it back yet. */
  get overflowingLanes(): number {
    return this.#count((lane) => lane.overflowFrom !== null || lane.isRefillRequested);
  }

  /** False: there is no room, in the lane, its account or the process. Its row stays due. */
  add({ deliveryId, accountId, lane: key }: WaitingDelivery): boolean {
    const account = this.#accountOf(accountId);
    const lane = account.lanes.get(key) ?? this.#newLane(account, key);
    if (lane.ids.has(deliveryId)) return true;
    if (roomFor(lane, this.#limits, this.#ids) === 0) {
      this.#overflow(lane, deliveryId);
      if (isUnused(lane)) this.#rest(lane);
      return false;
    }
    lane.ids.add(deliveryId);
    this.#idle.delete(lane);
    this.#countIds(lane, 1);
    this.#requeue(lane);
    return true;
  }

  /** The next up to `max` deliveries; each holds its place until it is released. */
  take(max: number): TakenDelivery[] {
    const taken: TakenDelivery[] = [];
    const room = this.#roomInFlight(max);
    // Silent lanes get at most every second place of a batch.
    for (let left = Math.ceil(room / 2); left > 0; left--) {
      const account = this.#turns.nextSilent();
      if (account === undefined) break;
      taken.push(this.#start(account.silentReady.next()!));
    }
    return this.#takeTurns(taken, room, () => this.#turns.next());
  }

  /** The same, one delivery of each account that has nothing in flight and a receiver that answers. */
  takeOfIdle(max: number): TakenDelivery[] {
    return this.#takeTurns([], this.#roomInFlight(max), () => this.#turns.nextIdle());
  }

  #roomInFlight(max: number): number {
    return Math.min(max, this.#limits.inFlightMax - this.inFlight);
  }

  #takeTurns(taken: TakenDelivery[], room: number, next: () => Account | undefined): TakenDelivery[] {
    while (taken.length < room) {
      const account = next();
      if (account === undefined) break;
      taken.push(this.#start(first(account.ready)!));
    }
    return taken;
  }

  /** The attempt is over, and has told this much of its receiver. */
  release({ accountId, lane: key, epoch }: TakenDelivery, answer: LaneAnswer, turn: TurnTaken | null = null) {
    const lane = this.#laneOf({ accountId, lane: key });
    if (lane === undefined) throw new Error(`the lane ${key} of account ${accountId} has nothing in flight`);
    this.#turns.countInFlight(lane.account, -1, lane.isSilent);
    lane.inFlight--;
    const wasSilent = lane.isSilent;
    learn(lane, answer, epoch, this.#limits.laneInFlightMax);
    this.#rests.learn(lane, accountId, turn);
    if (wasSilent && answer.kind !== "unknown") {
      this.#turns.learnOfSilent(lane.account, answer.kind !== "silent");
    }
    if (lane.isSilent !== wasSilent) this.#changeSides(lane);
    if (lane.hasAnswered) this.#neverAnswered.delete(lane);
    if (isToBeTold(lane)) this.answered.add(lane);
    this.#requeue(lane);
    if (isUnused(lane)) this.#rest(lane);
  }

  /** It was not its turn: it is the first of its lane again. */
  putBack(waiting: TakenDelivery): void {
    const lane = this.#laneOf(waiting);
    const behind = [...(lane?.ids ?? [])];
    if (this.add(waiting)) for (const id of behind) if (lane?.ids.delete(id)) lane.ids.add(id);
  }

  /** Lanes whose receivers have proven nothing. */
  get rests(): Pick<ReceiverRests<Lane>, "look" | "size" | "resting" | "endAll"> {
    return this.#rests;
  }

  /** An account that holds too much of something else (bytes) starts nothing until it does no more. */
  setOverBudget(accountId: string, isOverBudget: boolean): void {
    const account = this.#accounts.get(accountId);
    if (account === undefined || account.isOverBudget === isOverBudget) return;
    account.isOverBudget = isOverBudget;
    this.#requeueAccount(account);
  }

  /** So many of the ids that wait, of accounts and their lanes in turn, and none waits any more. */
  clear(max = Number.POSITIVE_INFINITY): string[] {
    const waiting: string[][] = [];
    for (const { lanes } of this.#accounts.values()) {
      const ids = [...lanes.values()].map((lane) => lane.ids);
      waiting.push(takeInTurn(ids, max));
      for (const lane of lanes.values()) {
        this.#countIds(lane, -lane.ids.size);
        lane.ids.clear();
        lane.overflowFrom = null;
        this.#requeue(lane);
      }
    }
    this.wanted.clear();
    return takeInTurn(waiting, max);
  }

  /** Lanes that are new here since the last call: somebody may know whether they have ever answered. */
  drainCreated(max: number): LaneKey[] {
    return drain(this.created, max).map(keyOf);
  }

  /** Nobody could say: those of them that are still here are as new. */
  askAgainFor(keys: readonly LaneKey[]): void {
    for (const lane of keys.map((key) => this.#laneOf(key))) if (lane !== undefined) this.created.add(lane);
  }

  /** Lanes with something waiting that have never answered here: meanwhile they may have, elsewhere. */
  askAgain(max: number): void {
    for (const lane of drain(this.#neverAnswered, max)) {
      this.#neverAnswered.add(lane);
      if (lane.ids.size > 0) this.created.add(lane);
    }
  }

  /** Lanes that answered for the first time in a day, or were suspended or opened, since the last call. */
  drainAnswered(max: number): AnsweredLane[] {
    return drain(this.answered, max).map((lane) => ({ ...keyOf(lane), isSuspended: lane.isSuspended }));
  }

  /** It has answered before, in another process or another life of this one. */
  setAnsweredBefore(answered: AnsweredLane): void {
    const lane = this.#laneOf(answered);
    if (lane === undefined) return;
    const { isSilent } = lane;
    setAnsweredBefore(lane, answered.isSuspended);
    this.#neverAnswered.delete(lane);
    if (lane.isSilent !== isSilent) this.#changeSides(lane);
    this.#requeue(lane);
  }

  /** They have been asked about: what had no room waits for no answer any more. */
  settle(keys: readonly LaneKey[]): void {
    for (const lane of keys.flatMap((key) => this.#laneOf(key) ?? [])) {
      lane.isUnknown = false;
      if (isUnused(lane)) this.#rest(lane);
    }
  }

  /** Lanes that have room again for what overflowed. Each is out again after `refill`. */
  drainOverflow(max: number): Overflow[] {
    return this.wanted.drain(max).map((lane) => {
      const fromId = lane.overflowFrom!;
      lane.overflowFrom = null;
      return { ...keyOf(lane), fromId, room: roomFor(lane, this.#limits, this.#ids) };
    });
  }

  /** What a lane got back of its overflow. `nextFromId`: where more may follow; null: that was all. */
  refill({ accountId, lane: key }: LaneKey, deliveryIds: readonly string[], nextFromId: string | null): void {
    for (const deliveryId of deliveryIds) this.add({ deliveryId, accountId, lane: key });
    const lane = this.#laneOf({ accountId, lane: key });
    if (lane === undefined) return;
    lane.isRefillRequested = false;
    if (nextFromId !== null) this.#overflow(lane, nextFromId);
    this.#requeue(lane);
    if (isUnused(lane)) this.#rest(lane);
  }

  #start(lane: Lane): TakenDelivery {
    const deliveryId = first(lane.ids)!;
    lane.ids.delete(deliveryId);
    this.#countIds(lane, -1);
    this.#turns.countInFlight(lane.account, 1, lane.isSilent);
    lane.inFlight++;
    // To the end of both turns.
    (lane.isSilent ? lane.account.silentReady : lane.account.ready).delete(lane);
    this.#turns.dequeue(lane.account);
    this.#requeue(lane);
    return { deliveryId, ...keyOf(lane), epoch: lane.epoch };
  }

  #overflow(lane: Lane, deliveryId: string): void {
    // Ids are UUIDv7 in lower case: their order as texts is that of their time.
    if (lane.overflowFrom === null || deliveryId < lane.overflowFrom) lane.overflowFrom = deliveryId;
  }

  /** Puts the lane, and its account, where what they have waiting and in flight says. */
  #requeue(lane: Lane): void {
    const { account } = lane;
    const isReady = lane.ids.size > 0 && lane.inFlight < lane.limit && !lane.isResting;
    const [ready, other] = lane.isSilent
      ? [account.silentReady, account.ready]
      : [account.ready, account.silentReady];
    other.delete(lane);
    if (!isReady) ready.delete(lane);
    else ready.add(lane);
    const few = Math.min(2 * lane.limit, this.#limits.laneIdsMax / 2);
    if (lane.overflowFrom !== null && !lane.isSilent && !lane.isRefillRequested && lane.ids.size <= few) {
      lane.isRefillRequested = true;
      this.wanted.add(lane);
    }
    this.#requeueAccount(account);
  }

  #requeueAccount(account: Account): void {
    this.#turns.requeue(account, {
      start: account.ready.size > 0,
      startSilent: account.silentReady.size > 0,
      isActive: account.inFlight > 0 || account.ids > 0,
    });
  }

  #countIds(lane: Lane, change: number): void {
    this.#ids += change;
    lane.account.ids += change;
    if (lane.isSilent) lane.account.silentIds += change;
  }

  /** What a lane has waiting and in flight counts where it belongs now; what is too much for a silent one overflows. */
  #changeSides(lane: Lane): void {
    const sign = lane.isSilent ? 1 : -1;
    lane.account.silentIds += sign * lane.ids.size;
    this.#turns.countSilent(lane.account, sign * lane.inFlight);
    if (!lane.isSilent) return;
    const tooMany = [...lane.ids].slice(this.#limits.silentLaneIdsMax);
    for (const deliveryId of tooMany) {
      lane.ids.delete(deliveryId);
      this.#overflow(lane, deliveryId);
    }
    this.#countIds(lane, -tooMany.length);
  }

  #accountOf(id: string): Account {
    let account = this.#accounts.get(id);
    if (account === undefined) {
      const [ready, silentReady] = [new Set<Lane>(), new SilentReady<Lane>()];
      account = { ...new Share(), id, lanes: new Map(), ready, silentReady, ids: 0, silentIds: 0 };
      this.#accounts.set(id, account);
    }
    return account;
  }

  #laneOf({ accountId, lane }: LaneKey): Lane | undefined {
    return this.#accounts.get(accountId)?.lanes.get(lane);
  }

  #newLane(account: Account, key: string): Lane {
    const lane: Lane = {
      ...new LaneState(),
      key,
      account,
      ids: new Set(),
      inFlight: 0,
      isResting: false,
      isUnknown: true,
      overflowFrom: null,
      isRefillRequested: false,
    };
    account.lanes.set(key, lane);
    this.created.add(lane);
    this.#neverAnswered.add(lane);
    return lane;
  }

  /** An idle lane keeps its limit while there is room, the longest idle going first; one that never answered goes. */
  #rest(lane: Lane): void {
    // Nobody may be able to say for long.
    const isAwaited = lane.isUnknown && this.created.size <= this.#limits.idleLanesMax;
    if (lane.isResting || (isAwaited && lane.overflowFrom !== null)) return;
    if (lane.hasAnswered) this.#idle.add(lane);
    else this.#forget(lane);
    if (this.#idle.size > this.#limits.idleLanesMax) this.#forget(first(this.#idle)!);
  }

  #forget(lane: Lane): void {
    this.#idle.delete(lane);
    this.created.delete(lane);
    this.#neverAnswered.delete(lane);
    this.answered.delete(lane);
    this.wanted.delete(lane);
    lane.account.lanes.delete(lane.key);
    if (lane.account.lanes.size === 0) this.#accounts.delete(lane.account.id);
  }

  #count(fits: (lane: Lane) => boolean): number {
    let count = 0;
    for (const { lanes } of this.#accounts.values())
      for (const lane of lanes.values()) if (fits(lane)) count++;
    return count;
  }
}

const keyOf = (lane: Lane): LaneKey => ({ accountId: lane.account.id, lane: lane.key });
const isUnused = (lane: Lane) => lane.inFlight === 0 && lane.ids.size === 0;
