type DeliveryState = {
  /** For the API's document. */
  readonly meaning: string;
  /** No attempt is to come, unless a replay is asked for. */
  readonly hasEnded: boolean;
  /** A replay takes it. These have an index in SQL (`deliveries_undelivered`), the others do not. */
  readonly isReplayable: boolean;
};

const DELIVERY_STATES = {
  pending: { meaning: "no attempt of this run has ended", hasEnded: false, isReplayable: false },
  failed: { meaning: "the last one failed and another follows", hasEnded: false, isReplayable: true },
  succeeded: { meaning: "a 2xx was received", hasEnded: true, isReplayable: false },
  abandoned: { meaning: "no more attempts, see `reason`", hasEnded: true, isReplayable: true },
} as const satisfies Record<string, DeliveryState>;

type DeliveryStates = typeof DELIVERY_STATES;

/** Where a delivery stands: the row's value, the filter's and the API's. */
export type DeliveryStatus = keyof DeliveryStates;

export type ReplayableStatus = {
  [Status in DeliveryStatus]: DeliveryStates[Status]["isReplayable"] extends true ? Status : never;
}[DeliveryStatus];

export const DELIVERY_STATUSES = Object.keys(DELIVERY_STATES) as readonly DeliveryStatus[];
export const REPLAYABLE_STATUSES = DELIVERY_STATUSES.filter(isReplayable);

export function isReplayable(status: DeliveryStatus): status is ReplayableStatus {
  return DELIVERY_STATES[status].isReplayable;
}

export function hasEnded(status: DeliveryStatus): boolean {
  return DELIVERY_STATES[status].hasEnded;
}

export function meaningOfStatus(status: DeliveryStatus): string {
  return DELIVERY_STATES[status].meaning;
}

/** Where a replay of many stands. */
export const REPLAY_STATUSES = ["running", "done", "cancelled"] as const;

export type ReplayStatus = (typeof REPLAY_STATUSES)[number];

/** What became of one delivery whose replay was asked for. */
export const REPLAY_OUTCOMES = ["replayed", "not_found", "not_replayable", "expired"] as const;

export type ReplayOutcome = (typeof REPLAY_OUTCOMES)[number];

/** What became of one delivery of a replay of many. */
export const REPLAY_ITEM_OUTCOMES = ["replayed", "skipped"] as const;
