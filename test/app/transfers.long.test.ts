import { expect, test } from "vitest";
import { canWatchMemory } from "../support/slow-readers.ts";
import { patience } from "../support/time-limits.ts";
import { transferThrough } from "../support/transfers.ts";

const BYTES = 1_000_000_000;
const MORE_BYTES_MAX = 100_000_000;

test.skipIf(!canWatchMemory)(
  "a gigabyte up and down takes less than 100 MB of memory",
  async () => {
    const { idleBytes, peakBytes, uploadMs, downloadMs, ...moved } = await transferThrough(BYTES);
    const perSecond = (ms: number) => `${Math.round(BYTES / ms / 1000)} MB/s`;
    const more = `${Math.round((peakBytes - idleBytes) / 1e6)} MB more`;
    process.stdout.write(`up ${perSecond(uploadMs)}, down ${perSecond(downloadMs)}, ${more}\n`);
    expect(moved).toEqual({ uploaded: BYTES, downloaded: BYTES });
    expect(peakBytes - idleBytes).toBeLessThan(MORE_BYTES_MAX);
  },
  patience(120_000),
);
