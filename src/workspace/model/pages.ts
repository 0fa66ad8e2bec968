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

/** Of a page's Markdown, in UTF-8: a long book's chapter, and rendered within seconds whatever it is. */
export const MARKDOWN_BYTES_MAX = 262_144;

/** What PostgreSQL takes, and not too long. */
export function isMarkdown(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0") && Buffer.byteLength(text) <= MARKDOWN_BYTES_MAX;
}
