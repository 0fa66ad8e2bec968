import { fc, test } from "@fast-check/vitest";
import { expect } from "vitest";
import { createdAtMs } from "../../../src/base/database/partitions.ts";

test.prop([fc.nat({ max: 2 ** 48 - 1 }), fc.uuid({ version: 7 })])(
  "a delivery's time is the first 48 bits of its id",
  (ms, anyId) => {
    const digits = ms.toString(16).padStart(12, "0");
    expect(createdAtMs(`${digits.slice(0, 8)}-${digits.slice(8)}${anyId.slice(13)}`)).toBe(ms);
  },
);
