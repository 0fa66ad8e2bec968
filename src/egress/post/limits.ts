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
  /** Over all origins, so no more origins than this are remembered either. In-flight POSTs come on top. */
  readonly idleConnectionsMax: number;
  /**
   * Of those, connections to origins that had one POST lately, and no second one within `idleMs`. A flood of receivers
   * that get one POST each holds no more than these; 200 busy receivers in turn, held to as few, would shake hands
   * anew for three POSTs out of four, at three times the CPU.
   */
  readonly idleNewcomersMax: number;
  /** Origins of which it is known whether they had a POST lately. */
  readonly seenOriginsMax: number;
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
  idleNewcomersMax: 80,
  seenOriginsMax: 10_000,
  soonMs: 200,
  distrustMs: 30_000,
  distrustedOriginsMax: 1_000,
};
