import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { abortableDelay, backoffMs, createBackoff } from "../../../src/base/model/backoff.ts";

const limits = { baseMs: 100, maxMs: 2_000 };
const almostOne = 1 - Number.EPSILON;

describe("backoffMs", () => {
  test("doubles up to the maximum", () => {
    const delays = [0, 1, 2, 3, 4, 5, 6, 1_000].map((failures) => backoffMs(failures, limits, almostOne));
    expect(delays).toEqual([100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000]);
  });

  test("takes from half of the nominal delay up to all of it", () => {
    expect([0, 0.5, almostOne].map((random) => backoffMs(2, limits, random))).toEqual([200, 300, 400]);
  });

  test("is a whole number between half the base and the maximum, whatever the failures and the chance", () => {
    const random = fc.double({ min: 0, max: almostOne, noNaN: true });
    fc.assert(
      fc.property(fc.nat(), random, (failures, chance) => {
        const ms = backoffMs(failures, limits, chance);
        expect(Number.isInteger(ms)).toBe(true);
        expect(ms).toBeGreaterThanOrEqual(50);
        expect(ms).toBeLessThanOrEqual(2_000);
      }),
    );
  });
});

describe("createBackoff", () => {
  test("counts failures, and begins again after a reset", () => {
    const backoff = createBackoff(limits, () => 0);
    expect([backoff.nextMs(), backoff.nextMs(), backoff.nextMs()]).toEqual([50, 100, 200]);
    backoff.reset();
    expect([backoff.nextMs(), backoff.nextMs()]).toEqual([50, 100]);
  });

  test("draws a new random number for each delay", () => {
    const draws = [0, 0.5];
    const backoff = createBackoff(limits, () => draws.shift() ?? 0);
    expect([backoff.nextMs(), backoff.nextMs()]).toEqual([50, 150]);
  });
});

describe("abortableDelay", () => {
  test("ends early when the signal aborts, and at once when it has aborted", async () => {
    const stopping = new AbortController();
    const paused = abortableDelay(60_000, stopping.signal);
    stopping.abort();
    await paused;
    await abortableDelay(60_000, stopping.signal);
  });

  test("lasts as long as it is told", async () => {
    const startedAtMs = performance.now();
    await abortableDelay(20, new AbortController().signal);
    expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(19);
  });

  test("is none where the time is over already, and warns of nothing", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on("warning", note);
    await abortableDelay(-5, new AbortController().signal);
    // Warnings are told in the next turn.
    await new Promise(setImmediate);
    process.off("warning", note);
    expect(warnings).toEqual([]);
  });
});
