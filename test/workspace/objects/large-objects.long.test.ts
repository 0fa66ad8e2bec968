import { describe, expect, test } from "vitest";
import { patience } from "../../support/time-limits.ts";
import { measureLargeObject } from "../support/object-processes.ts";
import { storeKinds } from "../support/object-stores.ts";

const GROWN_BYTES_MAX = 100_000_000;

describe.each(storeKinds)("a gigabyte in $name", ({ name, open }) => {
  test("takes bounded memory to put and to get", { timeout: patience(300_000) }, async () => {
    const { address, close } = await open();
    try {
      const figures = await measureLargeObject(address, 1_000_000_000);
      console.log(`1 GB in ${name}: ${JSON.stringify(figures)}`);
      expect(figures.grownBytes).toBeLessThan(GROWN_BYTES_MAX);
    } finally {
      await close();
    }
  });
});
