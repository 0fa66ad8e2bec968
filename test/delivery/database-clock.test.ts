import { describe, expect, it } from "vitest";
import { createDatabaseClock } from "../../src/delivery/deliver.ts";

const NOON = Date.UTC(2026, 0, 1, 12);

describe("the database's clock", () => {
  it("has no time before the database has told one", () => {
    expect(() => createDatabaseClock(() => 5).nowMs()).toThrow("before the database was asked");
  });

  it("goes on by the monotonic clock, whatever that started from", () => {
    let monotonicMs = 1_000_000;
    const clock = createDatabaseClock(() => monotonicMs);
    clock.observe(NOON, 1_000_000, 1_000_000);
    monotonicMs += 2_500;
    expect(clock.nowMs()).toBe(NOON + 2_500);
  });

  it("takes an answer to have been given half-way between question and answer", () => {
    const clock = createDatabaseClock(() => 40);
    clock.observe(NOON, 10, 30);
    expect(clock.nowMs()).toBe(NOON + 20);
  });

  it("is corrected by every answer, forwards and back", () => {
    let monotonicMs = 0;
    const clock = createDatabaseClock(() => monotonicMs);
    clock.observe(NOON, 0, 0);
    monotonicMs = 100;
    clock.observe(NOON + 3_600_000, 100, 100);
    expect(clock.nowMs()).toBe(NOON + 3_600_000);
    clock.observe(NOON + 50, 100, 100);
    expect(clock.nowMs()).toBe(NOON + 50);
  });
});
