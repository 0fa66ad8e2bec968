import { expect, test } from "vitest";
import { Pace } from "../../src/workspace/running/runner.ts";

/** How long a step that has taken 450 ms is followed by a rest. */
function restMs(attemptsPerSecond: number): number {
  const pace = new Pace();
  pace.told(attemptsPerSecond);
  pace.ended(450, 1_000);
  for (let ms = 0; ; ms++) if (pace.mayTake(1_000 + ms)) return ms;
}

test("steps are taken one after the other while no webhooks go out", () => {
  expect(new Pace().mayTake(0)).toBe(true);
  expect(restMs(0)).toBe(0);
});

test("the more webhooks go out, the longer a step is rested from, up to nine times what it took", () => {
  expect([125, 250, 300].map(restMs)).toEqual([150, 450, 675]);
  expect([450, 900, 1e6].map(restMs)).toEqual([4_050, 4_050, 4_050]);
});

test("two steps at a time rest for both", () => {
  const pace = new Pace();
  pace.told(250);
  pace.ended(100, 1_000);
  pace.ended(10, 1_005);
  expect([pace.mayTake(1_109), pace.mayTake(1_110)]).toEqual([false, true]);
});

test("no rest is longer than ten seconds", () => {
  const pace = new Pace();
  pace.told(450);
  for (let n = 0; n < 3; n++) pace.ended(5_000, 1_000);
  expect([pace.mayTake(10_999), pace.mayTake(11_000)]).toEqual([false, true]);
});

test("a rest ends when webhooks do", () => {
  const pace = new Pace();
  pace.told(450);
  pace.ended(30_000, 1_000);
  expect(pace.mayTake(2_000)).toBe(false);
  pace.told(0);
  expect(pace.mayTake(2_000)).toBe(true);
});

test("a long step is rested from like one of half a second", () => {
  const pace = new Pace();
  pace.told(450);
  pace.ended(30_000, 1_000);
  expect([pace.mayTake(5_499), pace.mayTake(5_501)]).toEqual([false, true]);
});
