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
