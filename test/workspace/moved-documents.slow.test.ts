import { expect, test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { moveWhileRead } from "./support/moved-documents.ts";

test("200 documents are moved while 4 read them and movers are killed: nobody misses one", {
  timeout: patience(120_000),
}, async () => {
  const { failures, downloads } = await moveWhileRead(200, 4, 60_000);
  expect(failures).toEqual([]);
  expect(downloads).toBeGreaterThan(200);
});
