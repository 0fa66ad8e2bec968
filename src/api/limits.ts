// Every bound of the kernel, with its unit and its reason. The platform's document sets those marked (platform).

/** An X-Request-Id longer than this is refused (platform). */
export const REQUEST_ID_CHARS_MAX = 128;

/** An Idempotency-Key has 1 to this many characters (platform). */
export const IDEMPOTENCY_KEY_CHARS_MAX = 200;

/** A continuation cursor is at most this long (platform). */
export const CURSOR_CHARS_MAX = 2048;

/** Items of one page: what may be asked for, and what is given unasked (platform). */
export const PAGE_ITEMS_MAX = 100;
export const PAGE_ITEMS_DEFAULT = 50;

/** A JSON body where the operation names no bound of its own: none of ours needs a tenth of it. */
export const JSON_BODY_BYTES_MAX = 65_536;

/** Deeper JSON is refused before it is parsed, so that what walks it may recurse; publishing in SQL sets the same. */
export const JSON_LEVELS_MAX = 512;

/**
 * Waiting for the handed-in functions, all together, within one request. An answer within 5 s needs a margin, of which
 * the rate limiter may take its part.
 */
export const ANSWER_WITHIN_MS = 4_000;

/**
 * Waiting for the rate limiter alone: it is the one part whose absence does not matter to the caller. Where no key is
 * needed, looking up the one that came is in it.
 */
export const RATE_LIMIT_WITHIN_MS = 500;

/** The delay that a 503 asks for: a database that restarts is back by then. */
export const RETRY_AFTER_UNAVAILABLE_SECONDS = 5;

/** The headers of a request, and the whole of it, arrive within this; slower ones hold a socket for nothing. */
export const HEADERS_WITHIN_MS = 10_000;
export const REQUEST_WITHIN_MS = 30_000;

/** How late those two bounds may be noticed. */
export const CONNECTIONS_CHECKED_EVERY_MS = 5_000;

/** An idle connection is kept longer than load balancers keep theirs (60 s), so that they close first. */
export const KEEP_ALIVE_MS = 72_000;

/** A refused body that is announced as smaller than this is read to its end, so that the refusal is seen. */
export const REFUSED_BODY_BYTES_MAX = 16_777_216;

/** A path parameter, still percent-encoded: 200 characters of four bytes each. */
export const PATH_PARAM_CHARS_MAX = 2_400;

/** Of a request with many mistakes, this many are named, each in at most so many characters. */
export const FIELD_ERRORS_MAX = 20;
export const FIELD_ERROR_CHARS_MAX = 200;

/** Rate-limit states remembered for the time when the limiter's store is away. */
export const REMEMBERED_BUCKETS_MAX = 10_000;

/** A claim of an operation that calls out is free again after this, should its process have died. */
export const CALL_CLAIM_MS = 120_000;
/** An answer that is an error waits no longer than this for its claim to be free again. */
export const RELEASE_WITHIN_MS = 500;
