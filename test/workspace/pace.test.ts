import { describe, expect, test } from "vitest";
import { Pace } from "../../src/workspace/running/pace.ts";

/** Looks a fifth of a second apart, the last of them at that time. */
function afterLooks(...tookMs: readonly number[]): { pace: Pace; nowMs: number } {
  const pace = new Pace();
  let nowMs = 0;
  for (const ms of tookMs) {
    nowMs += 200;
    pace.looked(ms, nowMs);
  }
  return { pace, nowMs };
}

describe("a step may be taken", () => {
  test("before anything is known, and at once behind another while looks are quick", () => {
    expect(new Pace().mayTake(0)).toBe(true);
    const { pace, nowMs } = afterLooks(1, 1.2, 0.9, 3, 1, 1.5);
    pace.took(nowMs);
    expect(pace.mayTake(nowMs)).toBe(true);
  });

  test("once a second while looks are slow, whatever they take at their best", () => {
    for (const bestMs of [0.3, 40]) {
      const slowMs = bestMs * 3 + 3;
      const { pace, nowMs } = afterLooks(bestMs, slowMs, slowMs, slowMs);
      expect(pace.mayTake(nowMs)).toBe(true);
      pace.took(nowMs);
      expect(pace.mayTake(nowMs + 999)).toBe(false);
      expect(pace.mayTake(nowMs + 1_000)).toBe(true);
    }
  });

  test("at once although one look was late, or when they are quick again", () => {
    const { pace, nowMs } = afterLooks(1, 500, 1, 1, 400);
    pace.took(nowMs);
    expect(pace.mayTake(nowMs)).toBe(true);
    for (const ms of [300, 300, 1, 1, 1]) pace.looked(ms, nowMs);
    expect(pace.mayTake(nowMs)).toBe(true);
  });

  test("at once where the database has moved away, two minutes later", () => {
    const { pace } = afterLooks(1);
    const lookAt = (nowMs: number) => pace.looked(30, nowMs);
    for (let nowMs = 400; nowMs < 120_000; nowMs += 200) lookAt(nowMs);
    pace.took(119_900);
    expect(pace.mayTake(119_900)).toBe(false);
    lookAt(120_000);
    expect(pace.mayTake(120_000)).toBe(true);
  });
});
