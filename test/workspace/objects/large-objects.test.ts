import { describe, expect, test } from "vitest";
import { measureLargeObject } from "../../support/object-processes.ts";
import { storeKinds } from "../../support/object-stores.ts";

// Measured: 20 MB with files, 50 with S3, of which 16 are two parts and the rest is what waits for the collector.
const GROWN_BYTES_MAX = 100_000_000;

describe.each(storeKinds)("200 MB in $name", ({ isHere, open }) => {
  test.skipIf(!isHere)("take bounded memory to put and to get", async () => {
    const { address, close } = await open();
    try {
      const { grownBytes } = await measureLargeObject(address, 200_000_000);
      expect(grownBytes).toBeLessThan(GROWN_BYTES_MAX);
    } finally {
      await close();
    }
  });
});
