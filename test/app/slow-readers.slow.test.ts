import { expect, test } from "vitest";
import { canWatchMemory, memoryUnderSlowReaders } from "../support/slow-readers.ts";

// A thousand are in slow-readers.long.test.ts: on one machine they also fill the kernel's buffers.
const READERS = 200;
const MORE_BYTES_MAX = 32 * 1024 * 1024;

test.skipIf(!canWatchMemory)("slow readers share what they read: serve's memory hardly grows", async () => {
  const { idleBytes, peakBytes } = await memoryUnderSlowReaders(READERS);
  expect(peakBytes - idleBytes).toBeLessThan(MORE_BYTES_MAX);
});
