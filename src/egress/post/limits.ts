/** Limits on one POST and on kept (keep-alive) connections. Times are milliseconds, sizes bytes. */
export const POST_LIMITS = {
  /** Of the answer's body. Beyond that nothing is read, and the connection is closed. */
  responseBytesMax: 65_536,
  /**
   * Of all that comes over a connection for one POST, and while it is kept after it. The limits on an answer do not see
   * what is skipped in reading it: TLS's own records, chunk extensions, empty lines.
   */
  transportBytesMax: 131_072,
  /** How often that is looked at. A reader of small records gets through some 20 MB a second. */
  transportCheckMs: 50,
  /** Of the answer's header names and values. */
  responseHeadBytesMax: 16_384,
  /** 1xx heads before the real one. A slow flood of them ends at the deadline, a fast one here. */
  informationalHeadsMax: 10_000,
  /** For reading the body, once the head has decided the outcome. */
  bodyReadMs: 2_000,
  /** Of the recorded beginning of the body, as UTF-8. */
  excerptBytesMax: 1_024,
  /** Idle timeout. With 4 s, a receiver whose own is 2 s would fail 2 % of the POSTs. */
  idleMs: 1_500,
  /** So that a receiver that moved to another address is found there. */
  connectionAgeMs: 300_000,
  requestsPerConnectionMax: 1_000,
  /** Over all origins. Connections of POSTs in flight come on top. */
  idleConnectionsMax: 1_000,
  /**
   * Of those, connections to newcomers: origins with one POST lately and no second one within `idleMs`. So a flood of
   * receivers that get one POST each keeps few connections. The same limit for busy origins would cost 200 of them
   * three times the CPU, since three POSTs out of four would need a new handshake.
   */
  idleNewcomersMax: 80,
  /** Origins remembered as having had a POST lately. */
  seenOriginsMax: 10_000,
  /** A receiver that closes a kept connection within this time, without `connection: close`, is distrusted. */
  soonMs: 200,
  /** For how long no connection to it is kept. Not for ever: a restart of a good receiver looks the same. */
  distrustMs: 30_000,
  distrustedOriginsMax: 1_000,
};

export type PostLimits = Readonly<typeof POST_LIMITS>;
