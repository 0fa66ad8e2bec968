const MEBIBYTE = 1_024 * 1_024;

/** What one process allows itself with S3. */
export type S3Limits = { readonly [Name in keyof typeof s3Limits]: number };

export const s3Limits = {
  /** For TCP and TLS. */
  connectMs: 5_000,
  /** From a request's first byte to the head of its answer: at a part's size, 2.2 Mbit/s. */
  answerMs: 30_000,
  /** For one call with all its attempts and its whole answer, but for an object's body. */
  callMs: 75_000,
  /** For putting an object together from its parts, less than an upload's end may take. */
  completeMs: 100_000,
  /** For cleaning up after an upload that failed or was aborted, before its caller is told. */
  cleanupMs: 5_000,
  /** How long somebody waits for the next bytes of an object. While nobody asks for them, time does not count. */
  stallMs: 30_000,
  /** Of one call. What S3 answers with 500, 503 and 429, and broken connections, are tried again after a pause. */
  attemptsMax: 3,
  /** Each object that is being read holds one for as long as its reader takes. */
  connectionsMax: 1_024,
  /** Held in memory until S3 has it, because a part is sent again when it fails. S3 takes 5 MiB or more. */
  partBytes: 5 * MEBIBYTE,
  /**
   * For parts of all puts together, a quarter of it for one account: a put holds one from its start to its end, and
   * where there is memory left a second, which fills while the first is sent.
   */
  heldBytesMax: 160 * MEBIBYTE,
  /** Of these, for accounts that store nothing yet: twenty parts. */
  keptBytes: 100 * MEBIBYTE,
  /** While all memory is held, a put whose body comes more slowly makes room for an account that has none. */
  movingBytesPerSecond: 65_536,
  /** How long a put waits for its place among them: less than its request has until its body is wanted. */
  heldWaitMs: 2_500,
  /** What S3 copies in a call, within `answerMs`; its own limit is 5 GB. */
  copyPartBytes: 256 * MEBIBYTE,
  /** Of one copy at a time. */
  copyPartsAtOnce: 4,
} as const satisfies Record<string, number>;
