import type { ProbeName } from "./probes.ts";

/**
 * `danger`: strangers can make it act. `fault`: webhooks get lost or come again. `warning`: all arrives today.
 * In the order in which people should hear of them.
 */
export const SEVERITIES = ["danger", "fault", "warning"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** Something about a receiver that its owner should mend. */
export type Fault = {
  /** Stable. */
  readonly code: FaultCode;
  readonly severity: Severity;
  /** What the receiver does, in plain words. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy: string;
  /** The probes that showed it; empty when it was seen otherwise. */
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
