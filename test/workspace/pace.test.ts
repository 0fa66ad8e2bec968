import { expect, test } from "vitest";
import { Pace } from "../../src/workspace/running/pace.ts";

test("steps are taken one after the other while next to no webhooks go out", () => {
  const pace = new Pace();
  expect(pace.mayTake(0)).toBe(true);
  pace.told(19);
  pace.ended(500, 1_000);
  expect(pace.mayTake(1_000)).toBe(true);
});

test("while webhooks go out, a step is followed by a rest nine times as long", () => {
  const pace = new Pace();
  pace.told(20);
  pace.ended(100, 1_000);
  expect(pace.mayTake(1_899)).toBe(false);
  pace.ended(10, 1_000);
  expect(pace.mayTake(1_989)).toBe(false);
  expect(pace.mayTake(1_990)).toBe(true);
  pace.ended(1, 5_000);
  expect([pace.mayTake(5_008), pace.mayTake(5_009)]).toEqual([false, true]);
});

test("a rest ends when webhooks do", () => {
  const pace = new Pace();
  pace.told(450);
  pace.ended(30_000, 1_000);
  expect(pace.mayTake(2_000)).toBe(false);
  pace.told(0);
  expect(pace.mayTake(2_000)).toBe(true);
});
