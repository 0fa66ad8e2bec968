/**
 * How one attempt ended. The same string is the row's value, the metric's label, the log's field and the API's.
 *
 * - `succeeded`: a 2xx was seen
 * - `rejected`: an answer whose status is not 2xx
 * - `timed_out`: connected, but no answer within the attempt's deadline
 * - `unreachable`: DNS, connecting, a cut connection, or an answer that is not HTTP
 * - `tls_failed`: no trustworthy TLS connection, so nothing was sent
 * - `target_refused`: the target is not a public HTTPS address, so nothing was sent
 * - `interrupted`: we stopped in the middle; it may or may not have arrived
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
