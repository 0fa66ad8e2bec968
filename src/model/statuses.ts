type DeliveryState = {
  /** For the OpenAPI document. */
  readonly meaning: string;
  /** No more attempts, unless it is replayed. */
  readonly hasEnded: boolean;
  /** Bulk replays include it. Only these are in the partial index `deliveries_undelivered`. */
  readonly isReplayable: boolean;
};

const DELIVERY_STATES = {
  pending: { meaning: "no attempt of the current run has ended", hasEnded: false, isReplayable: false },
  failed: { meaning: "the last attempt failed and another follows", hasEnded: false, isReplayable: true },
  succeeded: { meaning: "the receiver returned a 2xx", hasEnded: true, isReplayable: false },
  abandoned: { meaning: "no more attempts, see `reason`", hasEnded: true, isReplayable: true },
} as const satisfies Record<string, DeliveryState>;

type DeliveryStates = typeof DELIVERY_STATES;

/** A delivery's status, in rows, filters and the API. */
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

/** A bulk replay's status. */
export const REPLAY_STATUSES = ["running", "done", "cancelled"] as const;

export type ReplayStatus = (typeof REPLAY_STATUSES)[number];

/** The result of replaying a single delivery. */
export const REPLAY_OUTCOMES = ["replayed", "not_found", "not_replayable", "expired"] as const;

export type ReplayOutcome = (typeof REPLAY_OUTCOMES)[number];

/** The result for one delivery of a bulk replay. */
export const REPLAY_ITEM_OUTCOMES = ["replayed", "skipped"] as const;
