import { setTimeout as delay } from "node:timers/promises";

/** Milliseconds before the next try: doubled each time, and from the beginning once something was well. */
export type Backoff = { readonly nextMs: () => number; readonly reset: () => void };

export function createBackoff(minMs: number, maxMs: number): Backoff {
  let ms = minMs;
  return {
    nextMs: () => {
      const now = ms;
      ms = Math.min(2 * ms, maxMs);
      return now;
    },
    reset: () => {
      ms = minMs;
    },
  };
}

/** Waits, but no longer than until `asked` is aborted. */
export async function pause(ms: number, asked: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal: asked }).catch(() => undefined);
}
