const DIGITS = /^\d{1,15}$/;
/** The three date forms of RFC 9110 §5.6.7 begin with a day's name; Date.parse alone would take far more. */
const HTTP_DATE = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? /;

/**
 * A Retry-After header (RFC 9110 §10.2.3: seconds, or an HTTP date) as milliseconds from `nowMs`.
 * Null: absent, garbage, negative or not in the future. No upper bound here; the schedule clamps it.
 */
export function parseRetryAfterMs(text: string | null, nowMs: number): number | null {
  if (text === null) return null;
  const value = text.trim();
  if (DIGITS.test(value)) return Number(value) * 1000;
  if (!HTTP_DATE.test(value)) return null;
  // asctime's form means GMT and does not say so; said twice, as with the others, it is the same.
  const atMs = Date.parse(`${value} GMT`);
  return Number.isNaN(atMs) || atMs <= nowMs ? null : atMs - nowMs;
}

/**
 * When to try again. Pure: times are milliseconds since the Unix epoch in the database's time, chance is an argument.
 *
 * Attempt 1 is at once; the delays before the others grow by RATIO and add up to the window, so 24 h and 8 attempts
 * give 15.8 s, 63 s, 4.2 min, 17 min, 67 min, 4.5 h, 18 h; each is multiplied by a uniform factor from [0.8, 1.2) and
 * counted from the end of the attempt before it.
 */
export type RetryPolicy = {
  /** Nominal time from the first attempt to the last. */
  readonly windowMs: number;
  /** Attempts of one run, the first included: 1 to ATTEMPTS_MAX. */
  readonly attempts: number;
};

export const ATTEMPTS_MAX = 8;

const RATIO = 4;
const JITTER_LOW = 0.8;
const JITTER_SPAN = 0.4;
/** Jitter and a receiver's Retry-After move nothing past this multiple of the window, */
const LATEST_DUE = 1.2;
/** and what is still due a twentieth of the window later (1.25 windows) is abandoned: its lane could not catch up. */
const CATCH_UP_SHARE = 0.05;
/** … but never sooner than this after it: a window compressed to seconds has no time for eight attempts otherwise. */
const CATCH_UP_MIN_MS = 5_000;

/** Nominal delay after attempt `number` (1-based), before jitter. */
export function nominalDelayMs(policy: RetryPolicy, number: number): number {
  const steps = policy.attempts - 1;
  const unit = policy.windowMs / ((RATIO ** steps - 1) / (RATIO - 1));
  return unit * RATIO ** (number - 1);
}

/**
 * When attempt `number` + 1 is due. `random` is uniform in [0, 1).
 * `retryAfterMs` is what the receiver asked for, counted from `endedAtMs`; null when it asked for nothing. It can only
 * make the attempt later, by at most the delay of the step after, and never past 1.2 windows.
 */
export function nextDueAtMs(input: {
  readonly policy: RetryPolicy;
  readonly number: number;
  readonly runStartedAtMs: number;
  readonly endedAtMs: number;
  readonly retryAfterMs: number | null;
  readonly random: number;
}): number {
  const { policy, number, endedAtMs } = input;
  const delayMs = nominalDelayMs(policy, number) * (JITTER_LOW + JITTER_SPAN * input.random);
  const ownDueAtMs = endedAtMs + delayMs;
  const askedForMs = Math.min(
    endedAtMs + (input.retryAfterMs ?? 0),
    endedAtMs + nominalDelayMs(policy, number + 1),
    input.runStartedAtMs + LATEST_DUE * policy.windowMs,
  );
  return Math.max(ownDueAtMs, askedForMs);
}

/** The moment from which a run gets no more attempts, however many are left. */
export function windowEndsAtMs(policy: RetryPolicy, runStartedAtMs: number): number {
  const catchUpMs = Math.max(CATCH_UP_SHARE * policy.windowMs, CATCH_UP_MIN_MS);
  return runStartedAtMs + LATEST_DUE * policy.windowMs + catchUpMs;
}
