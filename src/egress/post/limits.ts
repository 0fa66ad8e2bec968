/** Limits on one POST and on kept (keep-alive) connections. Times are milliseconds, sizes bytes. */
export type PostLimits = {
  /** Of the answer's body. Beyond that nothing is read, and the connection is closed. */
  readonly responseBytesMax: number;
  /**
   * Of all that comes over a connection for one POST, and while it is kept after it. The limits on an answer do not see
   * what is skipped in reading it: TLS's own records, chunk extensions, empty lines.
   */
  readonly transportBytesMax: number;
  /** How often that is looked at. A reader of small records gets through some 20 MB a second. */
  readonly transportCheckMs: number;
  /** Of the answer's header names and values. */
  readonly responseHeadBytesMax: number;
  /** 1xx heads before the real one. A slow flood of them ends at the deadline, a fast one here. */
  readonly informationalHeadsMax: number;
  /** For reading the body, once the head has decided the outcome. */
  readonly bodyReadMs: number;
  /** Of the recorded beginning of the body, as UTF-8. */
  readonly excerptBytesMax: number;
  /** Idle timeout. With 4 s, a receiver whose own is 2 s would fail 2 % of the POSTs. */
  readonly idleMs: number;
  /** So that a receiver that moved to another address is found there. */
  readonly connectionAgeMs: number;
  readonly requestsPerConnectionMax: number;
  /** Over all origins. Connections of POSTs in flight come on top. */
  readonly idleConnectionsMax: number;
  /**
   * Of those, connections to newcomers: origins with one POST lately and no second one within `idleMs`. So a flood of
   * receivers that get one POST each keeps few connections. The same limit for busy origins would cost 200 of them
   * three times the CPU, since three POSTs out of four would need a new handshake.
   */
  readonly idleNewcomersMax: number;
  /** Origins remembered as having had a POST lately. */
  readonly seenOriginsMax: number;
  /** A receiver that closes a kept connection within this time, without `connection: close`, is distrusted. */
  readonly soonMs: number;
  /** For how long no connection to it is kept. Not for ever: a restart of a good receiver looks the same. */
  readonly distrustMs: number;
  readonly distrustedOriginsMax: number;
};

export const POST_LIMITS: PostLimits = {
  responseBytesMax: 65_536,
  transportBytesMax: 131_072,
  transportCheckMs: 50,
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
