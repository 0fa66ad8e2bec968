import { fc, test } from "@fast-check/vitest";
import { expect } from "vitest";
import { dateAndTime, isoTime } from "../../../src/base/model/time.ts";

const LAST_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const moment = fc.oneof(
  fc.integer({ min: 0, max: LAST_MS }),
  fc.double({ min: 0, max: LAST_MS, noNaN: true }),
  // Days begin and end, one beside the other.
  fc
    .tuple(fc.integer({ min: 1, max: 40_000 }), fc.integer({ min: -2, max: 2 }))
    .map(([day, by]) => day * 86_400_000 + by),
);

test.prop([fc.array(moment, { minLength: 1, maxLength: 20 })])(
  "times are written as Date writes them",
  (moments) => {
    for (const ms of moments) {
      const written = new Date(ms).toISOString();
      expect(isoTime(ms)).toBe(written);
      const { date, time } = dateAndTime(ms);
      expect(`${date}T${time}`).toBe(written.slice(0, 19));
    }
  },
);

test("what is no time is refused", () => {
  expect(() => isoTime(Number.NaN)).toThrow(RangeError);
});
