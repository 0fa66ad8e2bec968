import type { PostLimits } from "./limits.ts";

/**
 * Origins whose receivers close connections without having said so; for a while none is kept to them. A POST on such
 * a connection is lost, and waits for its next attempt.
 */
export type DistrustedOrigins = {
  add(origin: string): void;
  has(origin: string): boolean;
};

/** @param now a monotonic clock in milliseconds */
export function createDistrustedOrigins(
  { distrustMs, distrustedOriginsMax }: Pick<PostLimits, "distrustMs" | "distrustedOriginsMax">,
  now: () => number,
): DistrustedOrigins {
  // In order of their time, so that the first is the one to let go.
  const untilMs = new Map<string, number>();
  return {
    add(origin) {
      untilMs.delete(origin);
      untilMs.set(origin, now() + distrustMs);
      for (const oldest of untilMs.keys()) {
        if (untilMs.size <= distrustedOriginsMax) break;
        untilMs.delete(oldest);
      }
    },
    has(origin) {
      const until = untilMs.get(origin);
      if (until === undefined) return false;
      if (now() < until) return true;
      untilMs.delete(origin);
      return false;
    },
  };
}
