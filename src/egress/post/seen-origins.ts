import type { PostLimits } from "./limits.ts";

/** Which origins got a POST just now: to those a kept connection pays. */
export type SeenOrigins = {
  /** Remembers the origin, and tells whether a connection kept since the last time would still be there. */
  see(origin: string): boolean;
};

/** @param now a monotonic clock in milliseconds */
export function createSeenOrigins(
  { idleMs, seenOriginsMax }: Pick<PostLimits, "idleMs" | "seenOriginsMax">,
  now: () => number,
): SeenOrigins {
  // In order of their time, so that the first is the one to let go.
  const seenAtMs = new Map<string, number>();
  return {
    see(origin) {
      const before = seenAtMs.get(origin);
      seenAtMs.delete(origin);
      seenAtMs.set(origin, now());
      for (const oldest of seenAtMs.keys()) {
        if (seenAtMs.size <= seenOriginsMax) break;
        seenAtMs.delete(oldest);
      }
      return before !== undefined && now() - before < idleMs;
    },
  };
}
