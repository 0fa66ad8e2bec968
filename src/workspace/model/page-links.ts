/** `REVOKED` for good. */
export const LINK_STATUSES = ["ACTIVE", "REVOKED"] as const;
export type LinkStatus = (typeof LINK_STATUSES)[number];

/** What becomes of a visitor: only an active link opens. */
export const LINK_STATES = ["active", "expired", "exhausted", "revoked"] as const;
export type LinkState = (typeof LINK_STATES)[number];

export const ACCESS_MODES = ["ANONYMOUS", "PASSWORD"] as const;

export type LinkLimits = {
  readonly status: LinkStatus;
  /** Whether its time is over. */
  readonly isExpired: boolean;
  readonly maxVisits: number | null;
  readonly visitCount: number;
};

export function linkState({ status, isExpired, maxVisits, visitCount }: LinkLimits): LinkState {
  if (status === "REVOKED") return "revoked";
  if (isExpired) return "expired";
  return maxVisits !== null && visitCount >= maxVisits ? "exhausted" : "active";
}
