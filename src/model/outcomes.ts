/**
 * How an attempt ended. Rows, metric labels, log fields and the API use the same string.
 *
 * - `succeeded`: the receiver returned a 2xx
 * - `rejected`: a response whose status is not 2xx
 * - `timed_out`: connected, but no response within the attempt's deadline
 * - `unreachable`: DNS or connect failure, a dropped connection, or a response that is not HTTP
 * - `tls_failed`: no trusted TLS connection, so nothing was sent
 * - `target_refused`: the target is not a public HTTPS address, so nothing was sent
 * - `interrupted`: our process stopped midway; the event may have arrived
 */
export const OUTCOMES = [
  "succeeded",
  "rejected",
  "timed_out",
  "unreachable",
  "tls_failed",
  "target_refused",
  "interrupted",
] as const;

export type Outcome = (typeof OUTCOMES)[number];
