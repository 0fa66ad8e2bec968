/**
 * Unix time in seconds. The only place where the library reads a clock, for receivers that pass no time; the
 * service itself always passes one.
 */
export function systemNowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
