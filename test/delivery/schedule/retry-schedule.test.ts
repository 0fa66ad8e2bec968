import fc from "fast-check";
import { beforeAll, describe, expect, it, vi } from "vitest";
import {
  decideAfterAttempt,
  decideBeforeAttempt,
  dueAfterRelease,
} from "../../../src/delivery/schedule/life.ts";
import {
  nextDueAtMs,
  nominalDelayMs,
  parseRetryAfterMs,
  type RetryPolicy,
  windowEndsAtMs,
} from "../../../src/delivery/schedule/retry-schedule.ts";

const DAY: RetryPolicy = { windowMs: 86_400_000, attempts: 8 };
const MIDDLE = 0.5;

describe("the nominal day", () => {
  it("waits 15.8 s, 63 s, 4.2 min, 17 min, 67 min, 4.5 h, 18 h", () => {
    const seconds = [1, 2, 3, 4, 5, 6, 7].map((number) => nominalDelayMs(DAY, number) / 1000);
    expect(seconds.map((s) => Number(s.toPrecision(3)))).toEqual([15.8, 63.3, 253, 1010, 4050, 16200, 64800]);
    expect(seconds.reduce((sum, s) => sum + s, 0)).toBeCloseTo(86_400, 6);
  });

  it("multiplies by 0.8 up to just below 1.2, counted from the end of the attempt", () => {
    const base = { policy: DAY, number: 3, runStartedAtMs: 0, endedAtMs: 1_000_000, retryAfterMs: null };
    const nominal = nominalDelayMs(DAY, 3);
    expect(nextDueAtMs({ ...base, random: 0 })).toBeCloseTo(1_000_000 + 0.8 * nominal, 6);
    expect(nextDueAtMs({ ...base, random: MIDDLE })).toBeCloseTo(1_000_000 + nominal, 6);
    expect(nextDueAtMs({ ...base, random: 1 - 2 ** -53 })).toBeLessThanOrEqual(1_000_000 + 1.2 * nominal);
  });

  it("adds up to the window for any number of attempts", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 8 }),
        fc.integer({ min: 1_000, max: 400_000_000 }),
        (attempts, windowMs) => {
          let sum = 0;
          for (let number = 1; number < attempts; number++)
            sum += nominalDelayMs({ attempts, windowMs }, number);
          expect(sum / windowMs).toBeCloseTo(1, 9);
        },
      ),
    );
  });
});

describe("Retry-After", () => {
  const base = { policy: DAY, number: 1, runStartedAtMs: 0, endedAtMs: 0, random: MIDDLE };
  const own = nominalDelayMs(DAY, 1);

  it("never makes it earlier", () => {
    expect(nextDueAtMs({ ...base, retryAfterMs: 0 })).toBeCloseTo(own, 6);
    expect(nextDueAtMs({ ...base, retryAfterMs: own - 1 })).toBeCloseTo(own, 6);
  });
  it("makes it later as asked, up to the next step's delay", () => {
    expect(nextDueAtMs({ ...base, retryAfterMs: own + 5_000 })).toBeCloseTo(own + 5_000, 6);
    expect(nextDueAtMs({ ...base, retryAfterMs: 315_360_000_000 })).toBeCloseTo(nominalDelayMs(DAY, 2), 6);
  });
  it("moves nothing past 1.2 windows, jitter and all", () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.double({ min: 0, max: 0.999, noNaN: true }), fc.nat(1e12)), {
          minLength: 7,
          maxLength: 7,
        }),
        (steps) => {
          let atMs = 0;
          for (const [i, [random, retryAfterMs]] of steps.entries()) {
            const next = nextDueAtMs({
              policy: DAY,
              number: i + 1,
              runStartedAtMs: 0,
              endedAtMs: atMs,
              retryAfterMs,
              random,
            });
            expect(next).toBeGreaterThan(atMs);
            atMs = next;
          }
          // Retry-After may use up the window before the last step, whose own delay then still follows.
          expect(atMs).toBeLessThanOrEqual(1.2 * DAY.windowMs + 1.2 * nominalDelayMs(DAY, 7));
        },
      ),
    );
  });

  // A process' time zone is its own to set; asctime's form of a date names none, and means GMT.
  beforeAll(() => {
    vi.stubEnv("TZ", "America/New_York");
    expect(new Date(0).getTimezoneOffset()).toBe(300);
    return () => vi.unstubAllEnvs();
  });
  const NOW = Date.UTC(2026, 10, 20, 12, 0, 0);
  it.each([
    ["120", 120_000],
    [" 0 ", 0],
    ["Fri, 20 Nov 2026 12:01:00 GMT", 60_000],
    ["Friday, 20-Nov-26 12:01:00 GMT", 60_000],
    ["Fri Nov 20 12:01:00 2026", 60_000],
    ["Fri, 20 Nov 2026 12:00:00 GMT", null],
    ["Fri, 20 Nov 2026 11:59:00 GMT", null],
    ["On Fri, 20 Nov 2026 12:01:00 GMT", null],
    ["-5", null],
    ["1.5", null],
    ["1e3", null],
    ["soon", null],
    ["2026-11-20T12:01:00Z", null],
    ["", null],
    [null, null],
    ["99999999999999999999", null],
  ])("reads %j as %j", (text, expected) => {
    expect(parseRetryAfterMs(text, NOW)).toBe(expected);
  });
});

describe("decisions", () => {
  const claimed = {
    attemptsInRun: 0,
    runStartedAtMs: 0,
    wasInterruptedInQuarantine: false,
    isErased: false,
    expiresAtMs: 1e12,
    target: "allowed",
  } as const;

  it("posts the eighth attempt and no ninth", () => {
    expect(decideBeforeAttempt({ ...claimed, attemptsInRun: 7 }, DAY, 1)).toEqual({ kind: "post" });
    expect(decideBeforeAttempt({ ...claimed, attemptsInRun: 8 }, DAY, 1)).toEqual({
      kind: "end",
      reason: "attempts_exhausted",
    });
  });
  it("ends at the window's end, not before", () => {
    const end = windowEndsAtMs(DAY, 0);
    expect(end).toBe(1.25 * DAY.windowMs);
    expect(decideBeforeAttempt(claimed, DAY, end - 1)).toEqual({ kind: "post" });
    expect(decideBeforeAttempt(claimed, DAY, end)).toEqual({ kind: "end", reason: "window_ended" });
    // How long it was waited for is not known without a target.
    expect(decideBeforeAttempt({ ...claimed, target: null }, DAY, end)).toMatchObject({
      reason: "no_target",
    });
  });
  it("ends when the analysis is no longer readable, the target is gone or refused, or it was cut while alone", () => {
    expect(decideBeforeAttempt({ ...claimed, expiresAtMs: 5 }, DAY, 4)).toEqual({ kind: "post" });
    expect(decideBeforeAttempt({ ...claimed, expiresAtMs: 5 }, DAY, 5)).toEqual({
      kind: "end",
      reason: "analysis_expired",
    });
    expect(decideBeforeAttempt({ ...claimed, target: null }, DAY, 1)).toEqual({
      kind: "end",
      reason: "no_target",
    });
    expect(decideBeforeAttempt({ ...claimed, target: "refused" }, DAY, 1)).toEqual({
      kind: "end",
      reason: "target_refused",
    });
    expect(decideBeforeAttempt({ ...claimed, wasInterruptedInQuarantine: true }, DAY, 1)).toEqual({
      kind: "end",
      reason: "interrupted",
    });
  });
  it("ends as erased what was erased, whatever else would end it", () => {
    expect(
      decideBeforeAttempt({ ...claimed, isErased: true, attemptsInRun: 8, target: null }, DAY, 1e13),
    ).toEqual({
      kind: "end",
      reason: "analysis_erased",
    });
  });
  it("after an attempt: succeeded, failed with a due time, or abandoned after the last", () => {
    const attempt = { hasSucceeded: false, number: 1, runStartedAtMs: 0, endedAtMs: 10, retryAfterMs: null };
    expect(decideAfterAttempt({ ...attempt, hasSucceeded: true, number: 8 }, DAY, MIDDLE)).toEqual({
      status: "succeeded",
    });
    expect(decideAfterAttempt(attempt, DAY, MIDDLE)).toEqual({
      status: "failed",
      dueAtMs: 10 + nominalDelayMs(DAY, 1),
    });
    expect(decideAfterAttempt({ ...attempt, number: 8 }, DAY, MIDDLE)).toEqual({
      status: "abandoned",
      reason: "attempts_exhausted",
    });
  });
  it("gives an unused lease back at once on our own stop, else after a first retry's delay", () => {
    expect(dueAfterRelease(DAY, 7, true, MIDDLE)).toBe(7);
    expect(dueAfterRelease(DAY, 7, false, MIDDLE)).toBeCloseTo(7 + nominalDelayMs(DAY, 1), 6);
  });
  it("gives it back as soon when a run has fewer attempts, or only one", () => {
    for (const attempts of [1, 2, 7]) {
      const due = dueAfterRelease({ ...DAY, attempts }, 7, false, MIDDLE);
      expect(due).toBeCloseTo(7 + nominalDelayMs(DAY, 1), 6);
    }
  });
});
