import { fc, test as property } from "@fast-check/vitest";
import { expect, test } from "vitest";
import { chooseRange } from "../../src/http/bytes.ts";

test.each([
  ["bytes=0-0", { first: 0, last: 0 }],
  ["bytes=0-99", { first: 0, last: 99 }],
  ["bytes=0-100", { first: 0, last: 99 }],
  ["bytes=99-", { first: 99, last: 99 }],
  ["bytes=10-19", { first: 10, last: 19 }],
  ["bytes=10-99999999999999999999999", { first: 10, last: 99 }],
  ["bytes=-1", { first: 99, last: 99 }],
  ["bytes=-100", { first: 0, last: 99 }],
  ["bytes=-500", { first: 0, last: 99 }],
  ["BYTES = 5-6 ", { first: 5, last: 6 }],
  ["bytes=100-", "unsatisfiable"],
  ["bytes=100-200", "unsatisfiable"],
  ["bytes=99999999999999999999999-", "unsatisfiable"],
  ["bytes=-0", "unsatisfiable"],
  ["bytes=6-5", "whole"],
  ["bytes=0-1,3-4", "whole"],
  ["bytes=0-1,", "whole"],
  ["bytes=-", "whole"],
  ["bytes=", "whole"],
  ["bytes=a-b", "whole"],
  ["bytes=+1-2", "whole"],
  ["bytes=1 - 2", "whole"],
  ["bytes=--1", "whole"],
  ["items=0-1", "whole"],
  ["", "whole"],
])("of 100 bytes, %s", (header, expected) => {
  expect(chooseRange(header, 100)).toEqual(expected);
});

test.each(["bytes=0-", "bytes=0-0", "bytes=-1"])("of nothing there is no range: %s", (header) => {
  expect(chooseRange(header, 0)).toBe("unsatisfiable");
});

property.prop([fc.oneof(fc.string(), fc.stringMatching(/^bytes=\d{0,20}-\d{0,20}$/)), fc.nat(1000)])(
  "a range lies within the bytes, whatever is asked for",
  (header, bytes) => {
    const range = chooseRange(header, bytes);
    if (typeof range === "string") return;
    expect(range.first).toBeGreaterThanOrEqual(0);
    expect(range.last).toBeGreaterThanOrEqual(range.first);
    expect(range.last).toBeLessThan(bytes);
  },
);
