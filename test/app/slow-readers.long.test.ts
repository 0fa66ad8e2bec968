import { expect, test } from "vitest";
import { canWatchMemory, memoryUnderSlowReaders } from "../support/slow-readers.ts";
import { patience } from "../support/time-limits.ts";

// Measured: 45 MB. When each reader had a copy of its own, 4,360 MB.
const MORE_BYTES_MAX = 64 * 1024 * 1024;

test.skipIf(!canWatchMemory)(
  "a thousand slow readers take at most 64 MiB of serve's memory",
  async () => {
    const { idleBytes, peakBytes } = await memoryUnderSlowReaders(1_000);
    expect(peakBytes - idleBytes).toBeLessThan(MORE_BYTES_MAX);
  },
  patience(120_000),
);
