/** A delivery that is due. Its account comes first in every share, its lane (one receiver) second. */
export type WaitingDelivery = {
  readonly deliveryId: string;
  readonly accountId: string;
  readonly lane: string;
};

/** A delivery that has a place in flight, until it is released. */
export type TakenDelivery = WaitingDelivery & { readonly epoch: number };

export type LaneKey = Pick<WaitingDelivery, "accountId" | "lane">;
export type LaneLimits = {
  /** Attempts in flight in this process. */
  readonly inFlightMax: number;
  /** Of those, how many may go to receivers that gave no answer last time, or never did. */
  readonly silentInFlightMax: number;
  /** Of these, how many of one account before any of them has answered; each that does adds one. */
  readonly accountSilentMin: number;
  /** Attempts in flight in one lane, however fast it answers. */
  readonly laneInFlightMax: number;
  /** Ids that are remembered, of all accounts together, … */
  readonly idsMax: number;
  /** … of one lane at most, … */
  readonly laneIdsMax: number;
  /** … of a silent lane at most, … */
  readonly silentLaneIdsMax: number;
  /** … of all silent lanes of one account, … */
  readonly accountSilentIdsMax: number;
  /** … and of every account at least, whatever the others do. */
  readonly accountIdsMin: number;
  /** Idle lanes kept with their limit. */
  readonly idleLanesMax: number;
};

/** What does not follow from the configuration. */
export const LANE_LIMITS = {
  accountSilentMin: 32,
  idsMax: 600_000,
  laneIdsMax: 10_000,
  silentLaneIdsMax: 1_000,
  accountSilentIdsMax: 10_000,
  accountIdsMin: 100,
  idleLanesMax: 20_000,
} satisfies Partial<LaneLimits>;

/** A receiver of an account. Its limit follows it like TCP's congestion window: additive increase, halving. */
export type LaneState = {
  /** POSTs that may be in flight. */
  limit: number;
  /** The last attempt got no answer, or there has been none yet. */
  isSilent: boolean;
  /** It has answered at some time, here or in another process. */
  hasAnswered: boolean;
  /** Rises with each halving for overload: what was started before it tells nothing new. */
  epoch: number;
  /** Time to the first byte when the receiver is at ease, and lately. Milliseconds; 0: not known. */
  easyMs: number;
  recentMs: number;
};

/** What an attempt told of its receiver. */
export type LaneAnswer =
  /** `firstByteMs` null: not measured. */
  | { readonly kind: "answered"; readonly firstByteMs: number | null }
  /** 429 or 503: the receiver asks for less. */
  | { readonly kind: "overloaded" }
  /** Time-out, reset, dead name: no answer at all. */
  | { readonly kind: "silent" }
  /** Nothing was posted, or it was our own failure. */
  | { readonly kind: "unknown" };

/** A receiver that answers for the first time, here or elsewhere, goes on with this many; each answer adds one. */
const FIRST_LIMIT = 2;
/** Weight of one answer in the moving average of the time to the first byte. */
const RECENT_WEIGHT = 0.2;
/** Rising latency: this many times the time at ease, … */
const RISING_RATIO = 4;
/** … and this much longer at least, so that the jitter of a fast receiver, or of this process, is not taken for it. */
const RISING_MIN_MS = 250;

export function newLaneState(): LaneState {
  return { limit: 1, isSilent: true, hasAnswered: false, epoch: 0, easyMs: 0, recentMs: 0 };
}

/** It has answered before, as the database remembers: tried like any other receiver that answers. */
export function setAnsweredBefore(state: LaneState): void {
  if (state.hasAnswered) return;
  state.hasAnswered = true;
  state.isSilent = false;
  state.limit = FIRST_LIMIT;
}

/** Learns from an attempt that was started in `epoch`. */
export function learn(state: LaneState, answer: LaneAnswer, epoch: number, limitMax: number): void {
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
