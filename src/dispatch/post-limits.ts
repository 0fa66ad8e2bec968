/** Bounds on one POST and on the connections kept for the next ones. Times are milliseconds, sizes bytes. */
export type PostLimits = {
  /** Of the answer's body; more is not read, and the connection is not kept. */
  readonly responseBytesMax: number;
  /** Of the answer's header names and values. */
  readonly responseHeadBytesMax: number;
  /** 1xx heads before the real one. A slow flood of them ends at the deadline, a fast one here. */
  readonly informationalHeadsMax: number;
  /** For reading the body, once the head has decided what the answer is worth. */
  readonly bodyReadMs: number;
  /** Of the answer's text that is recorded, as UTF-8. */
  readonly excerptBytesMax: number;
  /** A receiver that closes at 2 s fails 2 % of the POSTs of a client that keeps connections for 4 s. */
  readonly idleMs: number;
  /** So that a receiver which moved to another address is found there. */
  readonly connectionAgeMs: number;
  readonly requestsPerConnectionMax: number;
  /**
   * Over all origins, so no more origins than this are remembered either. In-flight POSTs come on top. With fewer than
   * there are busy receivers most POSTs shake hands anew: 200 receivers and a limit of 80 took three times the CPU.
   */
  readonly idleConnectionsMax: number;
  /** A receiver that closes a kept connection within this time, unannounced, closes all of them. */
  readonly soonMs: number;
  /** For how long connections to such a receiver are not kept; a restart of a good one looks the same. */
  readonly distrustMs: number;
  readonly distrustedOriginsMax: number;
};

export const POST_LIMITS: PostLimits = {
  responseBytesMax: 65_536,
  responseHeadBytesMax: 16_384,
  informationalHeadsMax: 10_000,
  bodyReadMs: 2_000,
  excerptBytesMax: 1_024,
  idleMs: 1_500,
  connectionAgeMs: 300_000,
  requestsPerConnectionMax: 1_000,
  idleConnectionsMax: 1_000,
  soonMs: 200,
  distrustMs: 30_000,
  distrustedOriginsMax: 1_000,
};
