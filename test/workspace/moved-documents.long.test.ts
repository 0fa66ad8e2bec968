import { expect, test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { moveWhileRead } from "./support/moved-documents.ts";

test("10,000 documents are moved while 20 read them and movers are killed: nobody misses one", {
  timeout: patience(1_200_000),
}, async () => {
  const { failures, downloads } = await moveWhileRead(10_000, 20, 600_000);
  expect(failures).toEqual([]);
  expect(downloads).toBeGreaterThan(10_000);
});
