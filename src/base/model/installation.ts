/** The name of a cell. The database checks the same pattern. */
export const CELL_NAME = {
  rule: "1 to 32 lowercase letters, digits and hyphens, starting with a letter",
  pattern: /^[a-z][a-z0-9-]{0,31}$/,
} as const;

/** Tables with a partition for each day. */
export const PARTITIONED_TABLES = ["deliveries", "bodies", "attempts", "feed"] as const;

/** Where a list of the delivery log was read. */
export const LOG_SERVERS = ["primary", "standby"] as const;
export type LogServer = (typeof LOG_SERVERS)[number];

/** It does not answer, has not come as far as the primary, is another server or was promoted, has ended a statement. */
export const STANDBY_FAULTS = ["away", "behind", "refused", "cancelled"] as const;
export type StandbyFault = (typeof STANDBY_FAULTS)[number];

/** Which of a move's two databases this is: `out` of the source, `in` to the target. */
export const MOVE_DIRECTIONS = ["out", "in"] as const;
export type MoveDirection = (typeof MOVE_DIRECTIONS)[number];

/**
 * How far a move has come, as a database knows of itself.
 *
 * - `begun`: of the source: it is closed, or about to be; of the target: rows arrive
 * - `still`: of the source: nothing of the account changes any more
 * - `opening`: of the source: from now on the account may be open at the target
 * - `done`: the account is open at the target
 * - `deleting`: of the source: what was copied is going, and what is read of it may lack something; of the target: the
 *   move was called off, and what it brought is going
 * - `deleted`: of the source: it is gone
 */
export const MOVE_STEPS = ["begun", "still", "opening", "done", "deleting", "deleted"] as const;
export type MoveStep = (typeof MOVE_STEPS)[number];
