/** Where a list of the delivery log was read. */
export const LOG_SERVERS = ["primary", "standby"] as const;
export type LogServer = (typeof LOG_SERVERS)[number];

/**
 * Why the standby did not serve: it does not answer; has not come as far as the primary; is another server, or one that
 * was promoted; or has ended a statement.
 */
export const STANDBY_FAULTS = ["away", "behind", "refused", "cancelled"] as const;
export type StandbyFault = (typeof STANDBY_FAULTS)[number];
