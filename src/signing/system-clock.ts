/**
 * Unix time in seconds. The one place where the library reads a clock, and only for receivers that pass no time
 * of their own; the service itself always passes one.
 */
export function systemNowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
