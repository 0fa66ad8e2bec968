import type { ProbeName } from "./probes.ts";

/**
 * `danger`: strangers can make it act. `fault`: webhooks get lost or come again. `warning`: everything still
 * arrives. In order of severity.
 */
export const SEVERITIES = ["danger", "fault", "warning"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** A fault of a receiver that its owner should fix. */
export type Fault = {
  /** Stable. */
  readonly code: FaultCode;
  readonly severity: Severity;
  /** What the receiver does wrong. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy: string;
  /** The probes that showed it; empty if it was seen otherwise. */
  readonly probes: readonly ProbeName[];
};

export const FAULT_CODES = [
  "verifies_nothing",
  "accepts_unsigned",
  "accepts_any_signature",
  "ignores_body",
  "accepts_malformed_header",
  "ignores_time",
  "accepts_old",
  "accepts_ahead",
  "unreachable",
  "redirects",
  "clock_wrong",
  "decodes_secret",
  "refuses_everything",
  "refuses_genuine",
  "no_answer",
  "compares_parsed_body",
  "refuses_odd_number",
  "reads_one_signature",
  "refuses_two_signatures",
  "refuses_repeats",
  "slow",
  "certificate_ends_soon",
] as const;

export type FaultCode = (typeof FAULT_CODES)[number];
