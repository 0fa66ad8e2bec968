// Every limit of the kernel, with its unit and its reason. Those marked (platform) come from the platform's API
// rules.

/** An X-Request-Id longer than this is refused (platform). */
export const REQUEST_ID_CHARS_MAX = 128;

/** An Idempotency-Key has 1 to this many characters (platform). */
export const IDEMPOTENCY_KEY_CHARS_MAX = 200;

/** A continuation cursor is at most this long (platform). */
export const CURSOR_CHARS_MAX = 2048;

/** Items per page: maximum and default (platform). */
export const PAGE_ITEMS_MAX = 100;
export const PAGE_ITEMS_DEFAULT = 50;

/** A JSON body, unless the operation has a limit of its own; ours need less than a tenth of this. */
export const JSON_BODY_BYTES_MAX = 65_536;

/** Deeper JSON is rejected before parsing, so code that walks a value may recurse; SQL has the same limit. */
export const JSON_LEVELS_MAX = 512;

/** Time for all injected functions of a request together: a response is due within 5 s. */
export const ANSWER_WITHIN_MS = 4_000;

/** Time for the rate limiter alone, which a request can do without. On public pages it includes looking up the key. */
export const RATE_LIMIT_WITHIN_MS = 500;

/** Refusals for a limit go out so far apart, each after at most so long: a flood of them leaves others the thread. */
export const REFUSED_EVERY_MS = 10;
export const REFUSED_WITHIN_MS = 1_000;

/** Retry-After of a 503: a restarting database is back by then. */
export const RETRY_AFTER_UNAVAILABLE_SECONDS = 5;

/** A request's headers arrive within this; slow clients would only hold sockets. */
export const HEADERS_WITHIN_MS = 10_000;
/** How late that timeout may fire. */
export const CONNECTIONS_CHECKED_EVERY_MS = 5_000;

/** An idle connection is kept longer than load balancers keep theirs (60 s), so that they close first. */
export const KEEP_ALIVE_MS = 72_000;

/** A rejected body announced as smaller than this is read to its end, so that the client sees the response. */
export const REFUSED_BODY_BYTES_MAX = 16_777_216;

/** A path parameter, still percent-encoded: 200 characters of four bytes each. */
export const PATH_PARAM_CHARS_MAX = 2_400;

/** Errors reported per request, and characters of each. */
export const FIELD_ERRORS_MAX = 20;
export const FIELD_ERROR_CHARS_MAX = 200;

/** Rate-limit states cached for when the limiter's store is down. */
export const REMEMBERED_BUCKETS_MAX = 10_000;

/** Keys remembered for the buckets that their requests count in. */
export const REMEMBERED_KEYS_MAX = 10_000;

/** The claim of an operation that calls out is free again after this if its process died. */
export const CALL_CLAIM_MS = 120_000;
/** The same for an upload, whose claim is held for longer as it goes on: whoever repeats one waits no longer. */
export const UPLOAD_CLAIM_MS = 30_000;
/** An error response waits at most this long for its claim to be released. */
export const RELEASE_WITHIN_MS = 500;

/**
 * Writes that share a transaction, and the bytes they bring: reading 1 MiB of the worst JSON takes PostgreSQL half a
 * second, for which all in it would wait. A larger write has a transaction of its own.
 */
export const WRITES_PER_BATCH_MAX = 64;
export const WRITTEN_BYTES_PER_BATCH_MAX = 262_144;
export const WRITE_BYTES_IN_BATCH_MAX = 16_384;
/** How long a batch waits for a lock that somebody else holds before it is taken apart. */
export const LOCK_WAIT_IN_BATCH_MS = 50;
/** Names, and accounts, remembered for having met a lock. */
export const LOCKS_NOTED_MAX = 10_000;

/**
 * Requests at work on the database at a time, in one process; one account has at most half of these, and all that hold
 * up the others have three quarters, fewer than there are connections. Others wait their turn.
 */
export const WORK_PLACES_MAX = 8;
/**
 * Reads that were held and look again at a time. Thousands are told at once, and each look takes the event loop a few
 * milliseconds.
 */
export const LOOKS_AGAIN_MAX = 4;
/** Kept places are for accounts whose requests, all together, have not been at work for longer than this lately. */
export const LIGHT_WORK_MS = 1_000;

/** From so many bytes on a body is read, or an answer made, in its turn. A megabyte of small members takes 40 ms. */
export const BODY_BYTES_IN_TURN_MIN = 8_192;
export const ANSWER_BYTES_IN_TURN_MIN = 65_536;

/** A large body takes one more place for every so many bytes, up to `BODY_PLACES_MAX`, an account's share. */
export const BODY_BYTES_PER_PLACE = 102_400;
export const BODY_PLACES_MAX = 4;

/**
 * How long a read may be held that has nothing to answer yet: half of what load balancers allow a silent connection (60
 * s) and less than most clients wait by themselves (30 s).
 */
export const HELD_SECONDS_MAX = 25;
/** Reads held at a time by one process, fewer than it has connections; one account has at most half of them. */
export const HELD_READS_MAX = 4_000;

/** Requests on one connection: one at work, the others wait. Clients that pipeline at all send fewer ahead. */
export const PIPELINED_REQUESTS_MAX = 32;
/** Of the bodies of those that wait, which lie in memory before they are counted: 80 MiB of all connections. */
export const PIPELINED_BODY_BYTES_MAX = 16_384;

/** Of connections. */
export const CONNECTION_LIMITS = {
  /** That one process serves at a time; more are refused. A slow reader's takes about 45 KB. */
  connectionsMax: 5_000,
  /** Of those, one client's (an IPv4 address, or the /64 of an IPv6 one). Trusted proxies have no such limit. */
  perAddressMax: 500,
  /** All of a request, unless its body is streamed. */
  receiveWithinMs: 30_000,
  /** The rest of a refused body, if large or of unknown length, is read for this long: its client sees the answer. */
  lingerMs: 5_000,
  /**
   * One is cut when it takes longer than this to take `SEND_BYTES_MIN` of a waiting response: about 0.5 KiB/s. There is
   * no limit on a whole response: whoever reads slowly but steadily gets all of it.
   */
  sendWithinMs: 30_000,
  sendCheckedEveryMs: 5_000,
};
export type ConnectionLimits = Readonly<typeof CONNECTION_LIMITS>;
export const SEND_BYTES_MIN = 16_384;

/** A body larger than this is sent in slices, each when the one before has left: only so is its progress seen. */
export const UNSLICED_BODY_BYTES_MAX = 65_536;
export const BODY_SLICE_BYTES = 16_384;

/** Of bodies, and of answers that are streams or large. */
export const TRANSFER_LIMITS = {
  /** Uploads and downloads at a time in one process; one account has at most half. Each holds some 300 KB. */
  uploadsMax: 96,
  downloadsMax: 256,
  /** A body that is streamed, or the source of an answer that is, ends when it has not moved on for this long. */
  progressWithinMs: 30_000,
  /** What of a body that is streamed has to come within that, as of a response: about 0.5 KiB/s. It holds a place. */
  receivedBytesMin: 16_384,
  /** How often an upload's claim is held for another `UPLOAD_CLAIM_MS`, and a download's reader asked for again. */
  renewEveryMs: 7_500,
  /**
   * Bytes of bodies that one process has in memory at a time; one account has at most half. One that comes in chunks
   * takes twice its bytes for the moment in which its buffer grows.
   */
  bufferedBodyBytesMax: 134_217_728,
  /** The same of answers. Small ones do not count: with one for each of 5,000 connections they take 80 MiB. */
  answerBytesMax: 134_217_728,
};
export type TransferLimits = Readonly<typeof TRANSFER_LIMITS>;

/** Time for an upload to end once all of its bytes are here: a store puts a large object together. */
export const UPLOAD_ENDS_WITHIN_MS = 120_000;
/** While all places are taken, a transfer slower than this makes room for an account that has none. */
export const SCARCE_BYTES_PER_SECOND = 65_536;
/** What a body of unknown length has room for at first. */
export const BUFFERED_BODY_BYTES_FIRST = 16_384;
/** Of answers: up to this many bytes they do not count as in memory. */
export const UNCOUNTED_ANSWER_BYTES_MAX = 16_384;
