import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { filtersOf, searchOf } from "../../src/console/log-filters.ts";
import { momentAt, wallTimeOf } from "../../src/console/times.ts";

describe("a form's fields become filters of the API", () => {
  test.each([
    ["503", { status_code: "503" }],
    ["5xx", { status_code_min: "500", status_code_max: "599" }],
    ["500-503", { status_code_min: "500", status_code_max: "503" }],
    ["500 – 503", { status_code_min: "500", status_code_max: "503" }],
    ["500-", { status_code_min: "500" }],
    ["-499", { status_code_max: "499" }],
    ["teapot", { status_code: "teapot" }],
  ])("code %s", (code, filters) => {
    expect(filtersOf({ code }, null)).toEqual(filters);
  });

  test("times of the viewer's zone become moments, and what is no time is left for the API to refuse", () => {
    const asked = { from: "2026-11-22T02:14", to: "2026-07-01T12:00:30" };
    expect(filtersOf(asked, "Europe/Berlin")).toEqual({
      created_after: "2026-11-22T01:14:00.000Z",
      created_before: "2026-07-01T10:00:30.000Z",
    });
    expect(filtersOf({ from: "yesterday" }, null)).toEqual({ created_after: "yesterday" });
  });

  test("blank ones ask for nothing, and several reasons may come in one", () => {
    const fields = { target_host: " hooks.example.com ", analysis_id: " ", status: ["", "failed"] };
    expect(filtersOf({ ...fields, reason: "no_target,window_ended" }, null)).toEqual({
      target_host: "hooks.example.com",
      status: "failed",
      reason: ["no_target", "window_ended"],
    });
  });

  test("filters stay what they are, so that nobody is sent around in circles", () => {
    const field = fc.constantFrom("code", "from", "to", "reason", "status", "target_host", "error_code");
    const value = fc.oneof(
      fc.constantFrom("5xx", "500-", "-", "2026-11-22T02:14", "a,b", ",", "", " ", "x"),
      fc.string({ maxLength: 8 }),
    );
    fc.assert(
      fc.property(fc.dictionary(field, fc.oneof(value, fc.array(value, { maxLength: 3 }))), (fields) => {
        const filters = filtersOf(fields, "Europe/Berlin");
        const read = Object.fromEntries(Object.entries(filters));
        expect(searchOf(filtersOf(read, "Europe/Berlin"))).toBe(searchOf(filters));
      }),
    );
  });
});

describe("times of a zone's clock", () => {
  const zones = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Australia/Lord_Howe",
  ];

  test("come back as they were, outside the hour that a clock shows twice", () => {
    const ms = fc.integer({ min: Date.UTC(2020, 0), max: Date.UTC(2030, 0) });
    fc.assert(
      fc.property(ms, fc.constantFrom(...zones), (at, zone) => {
        const iso = new Date(at).toISOString();
        const wall = wallTimeOf(iso, zone);
        const both = [momentAt(wall, zone, "first"), momentAt(wall, zone, "last")];
        expect(both).toContain(iso);
        for (const moment of both) expect(wallTimeOf(moment!, zone)).toBe(wall);
      }),
    );
  });

  test("of the hour that comes twice, a range takes both; one that is skipped is moved", () => {
    const twice = "2026-10-25T02:30";
    expect(momentAt(twice, "Europe/Berlin", "first")).toBe("2026-10-25T00:30:00.000Z");
    expect(momentAt(twice, "Europe/Berlin", "last")).toBe("2026-10-25T01:30:00.000Z");
    expect(momentAt("2026-03-29T02:30", "Europe/Berlin", "first")).toBe("2026-03-29T01:30:00.000Z");
  });

  test("are shown without what is zero, and not at all if they are none", () => {
    expect(wallTimeOf("2026-11-22T01:14:00.000Z", "Europe/Berlin")).toBe("2026-11-22T02:14");
    expect(wallTimeOf("2026-11-22T01:14:05.120Z", null)).toBe("2026-11-22T01:14:05.120");
    expect(wallTimeOf("yesterday", null)).toBe("");
    expect(momentAt("2026-11-22", null, "first")).toBeNull();
  });
});
