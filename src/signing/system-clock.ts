/** Unix time in seconds: the only place where the library reads a clock, for receivers that pass no time. */
export function systemNowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
