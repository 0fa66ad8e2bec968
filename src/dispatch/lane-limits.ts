export type LaneLimits = {
  /** Attempts in flight in this process. */
  readonly inFlightMax: number;
  /** Of those, how many may go to receivers that gave no answer last time, or never did. */
  readonly silentInFlightMax: number;
  /** Of these, how many of one account before any of them has answered; each that does adds one. */
  readonly accountSilentMin: number;
  /** Attempts in flight of one account. */
  readonly accountInFlightMax: number;
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
export const LANE_LIMITS: Omit<
  LaneLimits,
  "inFlightMax" | "silentInFlightMax" | "accountInFlightMax" | "laneInFlightMax"
> = {
  accountSilentMin: 32,
  idsMax: 100_000,
  laneIdsMax: 10_000,
  silentLaneIdsMax: 100,
  accountSilentIdsMax: 5_000,
  accountIdsMin: 100,
  idleLanesMax: 20_000,
};
