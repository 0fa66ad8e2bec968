/** A delivery that is due. Its account comes first in every share, its lane (one receiver) second. */
export type WaitingDelivery = {
  readonly deliveryId: string;
  readonly accountId: string;
  readonly lane: string;
};

/** A delivery that has a place in flight, until it is released. */
export type TakenDelivery = WaitingDelivery & { readonly epoch: number };

export type LaneKey = Pick<WaitingDelivery, "accountId" | "lane">;

/** A lane whose receiver has answered at some time. */
export type AnsweredLane = LaneKey & Pick<LaneState, "isSuspended">;

/** What a lane had no room for, to be taken back: its deliveries from this id on, as many as there is room for. */
export type Overflow = LaneKey & { readonly fromId: string; readonly room: number };

export type LaneLimits = Readonly<typeof LANE_LIMITS> & {
  /** Attempts in flight in this process. */
  readonly inFlightMax: number;
  /** Of those, how many may go to receivers that gave no answer last time, or never did. */
  readonly silentInFlightMax: number;
  /** Attempts in flight in one lane, however fast it answers. */
  readonly laneInFlightMax: number;
};

/** What does not follow from the configuration. */
export const LANE_LIMITS = {
  /** Silent attempts in flight of one account before any of them has answered; each that does adds one. */
  accountSilentMin: 32,
  /** Ids that are remembered, of all accounts together, … */
  idsMax: 600_000,
  /** … of one lane at most, … */
  laneIdsMax: 10_000,
  /** … of a silent lane at most, … */
  silentLaneIdsMax: 1_000,
  /** … of all silent lanes of one account, and as many again that are each the first of a lane, … */
  accountSilentIdsMax: 10_000,
  /** … and of every account at least, whatever the others do. */
  accountIdsMin: 100,
  /** Idle lanes kept with their limit. */
  idleLanesMax: 20_000,
};

type WaitingLane = Pick<LaneState, "isSilent"> & {
  readonly ids: ReadonlySet<string>;
  readonly inFlight: number;
  readonly account: { readonly ids: number; readonly silentIds: number; readonly silentInFlight: number };
};

/** Ids that the lane may remember beside those it has. @param idsOfAll that are remembered now */
export function roomFor(lane: WaitingLane, limits: LaneLimits, idsOfAll: number): number {
  const { isSilent, ids, inFlight, account } = lane;
  const { idsMax, laneIdsMax, silentLaneIdsMax, accountSilentIdsMax, accountIdsMin } = limits;
  if (!isSilent) {
    // A dynamic threshold again: an account alone may fill half of what there is.
    const inAccount = Math.max(accountIdsMin - account.ids, (idsMax - idsOfAll - account.ids) / 2);
    return Math.max(0, Math.min(laneIdsMax - ids.size, Math.ceil(inAccount)));
  }
  // What is in flight may come back, if it was not its turn.
  const held = ids.size + inFlight;
  const silent = account.silentIds + account.silentInFlight;
  const inProcess = Math.max(accountIdsMin - account.ids, idsMax - idsOfAll);
  const room = Math.min(silentLaneIdsMax - held, accountSilentIdsMax - silent, inProcess);
  // A lane's first is not kept out by what others have waiting, perhaps for days.
  const isFirst = held === 0 && inProcess > 0 && silent < 2 * accountSilentIdsMax;
  return Math.max(isFirst ? 1 : 0, room);
}

/** A receiver of an account. Its limit follows it like TCP's congestion window: additive increase, halving. */
export class LaneState {
  /** POSTs that may be in flight. */
  limit = 1;
  /** The last attempt got no answer, or there has been none yet. */
  isSilent = true;
  /** It has answered at some time, here or in another process. */
  hasAnswered = false;
  /** Rises with each halving for overload: what was started before it tells nothing new. */
  epoch = 0;
  /** In a row, and since when by the monotonic clock: no answer, or none that is a 2xx. */
  failures = 0;
  failingSinceMs = 0;
  /** For that: one at a time until the next 2xx, also in the next process. Null: not known here yet. */
  isSuspended: boolean | null = null;
  /** What the database knows of that, and when it was last told; by the monotonic clock. */
  told: LaneState["isSuspended"] = null;
  toldAtMs = Number.NEGATIVE_INFINITY;
  /** Time to the first byte when the receiver is at ease, and lately. Milliseconds; 0: not known. */
  easyMs = 0;
  recentMs = 0;
}

/** A place in line of those whose names are to be looked up. */
export type InLine = {
  /** True: it may begin anew, and if there is no token then, it keeps its place. */
  readonly isCalled: () => boolean;
  /** It does not come, so others do. Without effect once it has begun. */
  readonly leave: () => void;
};

/** At a receiver that has proven nothing. */
export type TurnTaken = {
  readonly origin: string;
  /** Until it may have another; null: it has proven itself. */
  readonly restMs: number | null;
  /** The rest goes on until it is called. Absent: it ends by itself. */
  readonly inLine?: InLine;
};

type Rest<Lane> = { readonly lanes: Set<Lane>; untilMs: number; inLine?: InLine | undefined };

/** A lane that rests. `receiver`: `account_id origin`, asked in its last turn. */
export type RestingLane = { readonly receiver: string; readonly lane: string };

/** While one of a receiver's lanes does nothing with its turn, this is how long the next one waits for it. */
const NEXT_LANE_MS = 1_000;
/** Of one receiver's lanes, at a time. */
const LOOKED_AT_MAX = 100;

/**
 * Lanes whose receivers have proven nothing. However its URLs are spelled a receiver has one turn at a time, and so of
 * its lanes one starts when the rest is over.
 */
export class ReceiverRests<
  Lane extends Pick<WaitingLane, "ids"> & { readonly key: string; limit: number; isResting: boolean },
> {
  /** By account and origin. */
  readonly #rests = new Map<string, Map<string, Rest<Lane>>>();
  /** Those that were called. */
  readonly #called = new WeakMap<Lane, { readonly inLine: InLine; readonly others: ReadonlySet<Lane> }>();
  readonly #onEnd: (lane: Lane) => void;

  constructor(onEnd: (lane: Lane) => void) {
    this.#onEnd = onEnd;
  }

  /** An attempt of the lane has ended. `turn` null: it took none. */
  learn(lane: Lane, accountId: string, turn: TurnTaken | null): void {
    if (turn === null) {
      this.#leaveIfEmpty(lane);
      return;
    }
    const { origin, restMs, inLine } = turn;
    if (restMs === null) {
      this.endAll(`${accountId} ${origin}`);
      return;
    }
    const ofAccount = this.#rests.get(accountId) ?? new Map<string, Rest<Lane>>();
    this.#rests.set(accountId, ofAccount);
    const rest: Rest<Lane> = ofAccount.get(origin) ?? { lanes: new Set(), untilMs: 0 };
    ofAccount.set(origin, rest);
    rest.untilMs = performance.now() + restMs;
    rest.inLine = inLine;
    rest.lanes.add(lane);
    lane.limit = 1;
    lane.isResting = true;
  }

  /** Of each receiver whose rest is over one lane may start. False: there is none. */
  look(nowMs: number): boolean {
    let hasEnded = false;
    for (const [accountId, ofAccount] of this.#rests)
      for (const [origin, rest] of ofAccount) {
        const { inLine } = rest;
        if (rest.untilMs > nowMs || inLine?.isCalled() === false) continue;
        rest.inLine = undefined;
        hasEnded = true;
        rest.untilMs = nowMs + NEXT_LANE_MS;
        const [lane] = rest.lanes;
        if (lane === undefined) this.#delete(accountId, origin);
        else {
          rest.lanes.delete(lane);
          if (inLine !== undefined) this.#called.set(lane, { inLine, others: rest.lanes });
          this.#leaveIfEmpty(lane);
          this.#end(lane);
        }
      }
    return hasEnded;
  }

  /** Accounts. */
  get size(): number {
    return this.#rests.size;
  }

  /** So many at most, of accounts, receivers and lanes in turn: elsewhere they may have been proven, or left. */
  resting(max: number): RestingLane[] {
    const resting: RestingLane[] = [];
    let turns = [...this.#rests].map(([accountId, ofAccount]) => ({ accountId, rests: ofAccount.entries() }));
    while (turns.length > 0 && resting.length < max)
      turns = turns.filter(({ accountId, rests }) => {
        const [origin, rest] = rests.next().value ?? [];
        for (const lane of [...(rest?.lanes ?? [])].slice(0, Math.min(LOOKED_AT_MAX, max - resting.length))) {
          rest?.lanes.delete(lane);
          rest?.lanes.add(lane);
          resting.push({ receiver: `${accountId} ${origin}`, lane: lane.key });
        }
        return rest !== undefined;
      });
    // Behind all others, or thousands that one has waiting would be all that is ever looked at.
    for (const [accountId = "", origin = ""] of resting.map(({ receiver }) => receiver.split(" "))) {
      moveToEnd(this.#rests, accountId);
      moveToEnd(this.#rests.get(accountId)!, origin);
    }
    return resting;
  }

  /** It has proven itself, or was left. */
  endAll(receiver: string): void {
    const [accountId = "", origin = ""] = receiver.split(" ");
    const rest = this.#rests.get(accountId)?.get(origin);
    this.#delete(accountId, origin);
    // If there are more, and it is the endpoint that has left, the others keep their place.
    if (rest?.lanes.size === 1) rest.inLine?.leave();
    for (const lane of rest?.lanes ?? []) this.#end(lane);
  }

  /** What it was called for is gone: unless others of its receiver wait, those behind them come. */
  #leaveIfEmpty(lane: Lane): void {
    const called = this.#called.get(lane);
    if (lane.ids.size === 0 && called?.others.size === 0) called.inLine.leave();
  }

  #delete(accountId: string, origin: string): void {
    const ofAccount = this.#rests.get(accountId);
    ofAccount?.delete(origin);
    if (ofAccount?.size === 0) this.#rests.delete(accountId);
  }

  #end(lane: Lane): void {
    lane.isResting = false;
    this.#onEnd(lane);
  }
}

export function moveToEnd<Value>(map: Map<string, Value>, key: string): void {
  const value = map.get(key)!;
  map.delete(key);
  map.set(key, value);
}

/** What an attempt told of its receiver. */
export type LaneAnswer =
  /** `firstByteMs` null: not measured. */
  | { readonly kind: "answered"; readonly firstByteMs: number | null; readonly isFailure?: boolean }
  /** 429 or 503: the receiver asks for less. */
  | { readonly kind: "overloaded" }
  /** Time-out, reset, dead name: no answer at all. */
  | { readonly kind: "silent" }
  /** Nothing was posted, or it was our own failure. */
  | { readonly kind: "unknown" };

/** A receiver that answers for the first time, here or elsewhere, goes on with this many; each answer adds one. */
const FIRST_LIMIT = 2;
/** A receiver that has failed so often in a row, for so long, is suspended: one at a time, until it succeeds. */
const SUSPENDED_FAILURES = 100;
const SUSPENDED_MS = 10 * 60_000;
/** Weight of one answer in the moving average of the time to the first byte. */
const RECENT_WEIGHT = 0.2;
/** Rising latency: this many times the time at ease, … */
const RISING_RATIO = 4;
/** … and this much longer at least, so that the jitter of a fast receiver, or of this process, is not taken for it. */
const RISING_MIN_MS = 250;

/** It has answered before, as the database remembers: tried like any other receiver that answers. */
export function setAnsweredBefore(state: LaneState, isSuspended: LaneState["isSuspended"]): void {
  // While the database was asked, it may have answered here; only a 2xx opens it.
  state.told = isSuspended;
  state.isSuspended ??= isSuspended;
  if (state.isSuspended) state.limit = 1;
  if (state.hasAnswered) return;
  state.hasAnswered = true;
  state.isSilent = false;
  if (!state.isSuspended) state.limit = FIRST_LIMIT;
}

/** As often the database notes that a receiver goes on answering. */
const TOLD_EVERY_MS = 86_400_000;

/** Whether it has answered for the first time in a day, or was suspended or opened, since this was last true. */
export function isToBeTold(state: LaneState, nowMs = performance.now()): boolean {
  const isNew = !state.isSilent && nowMs - state.toldAtMs >= TOLD_EVERY_MS;
  if (!state.hasAnswered || (!isNew && state.told === state.isSuspended)) return false;
  state.told = state.isSuspended;
  state.toldAtMs = nowMs;
  return true;
}

/** Learns from an attempt that was started in `epoch`. `nowMs` by the monotonic clock. */
export function learn(
  state: LaneState,
  answer: LaneAnswer,
  epoch: number,
  limitMax: number,
  nowMs = performance.now(),
): void {
  learnLimit(state, answer, epoch, limitMax);
  if (answer.kind === "unknown") return;
  if (answer.kind === "answered" && answer.isFailure !== true) {
    state.failures = 0;
    state.isSuspended = false;
  } else if (state.failures++ === 0) state.failingSinceMs = nowMs;
  if (state.failures >= SUSPENDED_FAILURES && nowMs - state.failingSinceMs >= SUSPENDED_MS)
    state.isSuspended = true;
  if (state.isSuspended) state.limit = 1;
}

function learnLimit(state: LaneState, answer: LaneAnswer, epoch: number, limitMax: number): void {
  switch (answer.kind) {
    case "unknown":
      return;
    case "silent":
      // Every silence halves, whenever it was started: a dead receiver is soon at one.
      state.isSilent = true;
      state.limit = Math.max(1, Math.floor(state.limit / 2));
      return;
    case "overloaded":
      hear(state);
      halve(state, epoch);
      return;
    case "answered": {
      const isFirst = !state.hasAnswered;
      hear(state);
      // It may have been suspended before: until a 2xx, or the database, says that it is not, it is tried no faster.
      if (answer.isFailure && state.isSuspended === null) return;
      if (isFirst) state.limit = FIRST_LIMIT;
      // What was in flight when it was halved would bring the limit right back up.
      if (isFirst || epoch < state.epoch) return;
      if (isLatencyRising(state, answer.firstByteMs)) halve(state, epoch);
      else state.limit = Math.min(limitMax, state.limit + 1);
      return;
    }
    default:
      throw new Error(`Unknown answer ${answer satisfies never}`);
  }
}

function hear(state: LaneState): void {
  state.isSilent = false;
  state.hasAnswered = true;
}

/** Once for all that was in flight together: 128 times 503 are one wish for less, not seven. */
function halve(state: LaneState, epoch: number): void {
  if (epoch < state.epoch) return;
  state.epoch++;
  state.limit = Math.max(1, Math.floor(state.limit / 2));
  // Judged anew by what the smaller number brings.
  state.recentMs = 0;
}

function isLatencyRising(state: LaneState, firstByteMs: number | null): boolean {
  if (firstByteMs === null) return false;
  if (state.easyMs === 0) state.easyMs = firstByteMs;
  // With so few in flight it is not our load that makes it slow.
  else if (state.limit <= FIRST_LIMIT) state.easyMs = average(state.easyMs, firstByteMs);
  else state.easyMs = Math.min(state.easyMs, firstByteMs);
  state.recentMs = state.recentMs === 0 ? firstByteMs : average(state.recentMs, firstByteMs);
  return state.recentMs > Math.max(RISING_RATIO * state.easyMs, state.easyMs + RISING_MIN_MS);
}

function average(before: number, measured: number): number {
  return before + (measured - before) * RECENT_WEIGHT;
}
