import type { Resolution } from "./resolution.ts";

/** Names remembered at once; the oldest goes first, so that 100,000 hosts cost no more memory than these. */
const NAMES_MAX = 10_000;

/** A name with more addresses than any honest one has is asked again each time rather than kept. */
const ADDRESSES_MAX = 32;

export type AddressCache = {
  /** Undefined when the name was never put, or its lifetime is over. */
  get(hostname: string): Resolution | undefined;
  put(hostname: string, resolution: Resolution): void;
};

/** @param now a monotonic clock in milliseconds */
export function createAddressCache(now: () => number): AddressCache {
  const remembered = new Map<string, { resolution: Resolution; untilMs: number }>();
  return {
    get(hostname) {
      const entry = remembered.get(hostname);
      if (entry === undefined) return undefined;
      if (now() < entry.untilMs) return entry.resolution;
      remembered.delete(hostname);
      return undefined;
    },
    put(hostname, resolution) {
      remembered.delete(hostname);
      if ("addresses" in resolution && resolution.addresses.length > ADDRESSES_MAX) return;
      if (remembered.size >= NAMES_MAX) {
        const [oldest] = remembered.keys();
        if (oldest !== undefined) remembered.delete(oldest);
      }
      remembered.set(hostname, { resolution, untilMs: now() + resolution.lifetimeMs });
    },
  };
}
