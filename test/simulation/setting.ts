import type { RetryPolicy } from "../../src/delivery/schedule/retry-schedule.ts";

/** All deliveries of a history are published on this day; what becomes of them may take weeks. */
export const FIRST_MOMENT = Date.UTC(2031, 4, 6, 1);
export const LAST_PUBLISHED = FIRST_MOMENT + 20 * 3_600_000;
export const RETENTION_MS = 7 * 86_400_000;
/** One for each delivery. */
export const BODY_BYTES = [60, 90, 130] as const;

export const LEASE_MARGIN_MS = 5_000;
export const START_WITHIN_MS = 3_000;
export const POLICIES: readonly RetryPolicy[] = [
  { windowMs: 86_400_000, attempts: 8 },
  { windowMs: 86_400_000, attempts: 8 },
  { windowMs: 60_000, attempts: 8 },
  { windowMs: 6_000, attempts: 3 },
  { windowMs: 3_600_000, attempts: 1 },
];
export const DEADLINES_MS = [15_000, 15_000, 2_000, 100];
export const DELIVERIES_MAX = 3;
/** Enough for every delivery to use up every attempt of every run it can have by then. */
export const CALM_STEPS_MAX = 2_000;
