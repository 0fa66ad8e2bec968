import { expect, test } from "vitest";
import { canWatchMemory } from "../support/slow-readers.ts";
import { transferThrough } from "../support/transfers.ts";

// A gigabyte is in transfers.long.test.ts.
const BYTES = 100_000_000;
const MORE_BYTES_MAX = 100_000_000;

test.skipIf(!canWatchMemory)("100 MB up and down, four at once, are never held in memory", async () => {
  const { idleBytes, peakBytes, ...moved } = await transferThrough(BYTES / 4, 4);
  expect(moved).toMatchObject({ uploaded: BYTES, downloaded: BYTES });
  expect(peakBytes - idleBytes).toBeLessThan(MORE_BYTES_MAX);
});
