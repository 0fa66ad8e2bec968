// When a schedule is due, on ordinary days and when clocks change.
import { fc } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import { readCron } from "../../src/base/database/graphile-worker.ts";
import { lastDue, nextDue } from "../../src/workspace/model/due-times.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

async function due(expression: string, timeZone: string) {
  const cron = await readCron(expression);
  if (typeof cron === "string") throw new Error(cron);
  return { cron, timeZone };
}

type Due = Awaited<ReturnType<typeof due>>;

/** All due times from the first moment to the last one, which does not count. */
function dueBetween(of: Due, fromMs: number, toMs: number): readonly number[] {
  const found: number[] = [];
  for (let at = nextDue(of, fromMs - 1); at !== null && at < toMs; at = nextDue(of, at)) found.push(at);
  return found;
}

describe("clocks are put forward and back", () => {
  test.each([
    [
      "a time that is left out",
      "30 2 * * *",
      "Europe/Berlin",
      "2040-03-24T12:00Z",
      48,
      ["25T01:30", "26T00:30"],
    ],
    [
      "one that is there anyway when that is due",
      "30 2,3 * * *",
      ...["Europe/Berlin", "2040-03-24T23:00Z"],
      12,
      ["25T01:30"],
    ],
    [
      "every half an hour",
      "*/30 * * * *",
      ...["Europe/Berlin", "2040-03-25T00:00Z"],
      2,
      ["25T00:00", "25T00:30", "25T01:00", "25T01:30"],
    ],
    [
      "a time that comes twice",
      "30 2 * * *",
      "Europe/Berlin",
      "2040-10-27T12:00Z",
      48,
      ["28T00:30", "29T01:30"],
    ],
    [
      "hours of which one comes twice",
      "0 1-3 * * *",
      ...["Europe/Berlin", "2040-10-27T12:00Z"],
      24,
      ["27T23:00", "28T00:00", "28T02:00"],
    ],
    [
      "every hour, of which one comes twice",
      "0 * * * *",
      ...["Europe/Berlin", "2040-10-27T23:00Z"],
      4,
      ["27T23:00", "28T00:00", "28T01:00", "28T02:00"],
    ],
    ["a change of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2040-10-06T00:00Z", 36, ["06T15:45"]],
    [
      "a change at midnight",
      "15 0 * * *",
      "America/Havana",
      "2040-03-10T12:00Z",
      48,
      ["11T05:15", "12T04:15"],
    ],
  ] as [string, string, string, string, number, string[]][])(
    "%s: %s in %s",
    async (_, cron, zone, from, hours, times) => {
      const of = await due(cron, zone);
      const found = dueBetween(of, Date.parse(from), Date.parse(from) + hours * HOUR_MS);
      expect(found.map((at) => new Date(at).toISOString().slice(8, 16))).toEqual(times);
    },
  );
});

const ZONES = [
  ...["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata", "UTC"],
  ...["America/St_Johns", "Pacific/Chatham", "Asia/Beirut"],
];

/** By a clock that is looked at each minute, as a person would: it changes at quarters of an hour. */
function readByMinutes({ cron, timeZone }: Due, fromMs: number, toMs: number): readonly number[] {
  const clock = new Intl.DateTimeFormat("en", {
    ...{ timeZone, hourCycle: "h23", year: "numeric", month: "numeric" },
    ...{ day: "numeric", hour: "numeric", minute: "numeric" },
  } as Intl.DateTimeFormatOptions);
  const read = new Map<number, number>();
  const localOf = (at: number) => {
    const quarter = at - (at % (15 * MINUTE_MS));
    if (!read.has(quarter)) read.set(quarter, readClock(quarter));
    return read.get(quarter)! + (at - quarter);
  };
  const readClock = (at: number) => {
    const parts = new Map(clock.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
    const [year, month, day] = [parts.get("year")!, parts.get("month")!, parts.get("day")!];
    return Date.UTC(year, month - 1, day, parts.get("hour"), parts.get("minute"));
  };
  const isMeant = (local: number) => {
    const of = new Date(local);
    return (
      cron.minutes.includes(of.getUTCMinutes()) &&
      cron.hours.includes(of.getUTCHours()) &&
      cron.isOn(of.getUTCDate(), of.getUTCMonth() + 1, of.getUTCDay())
    );
  };
  const found = new Set<number>();
  const shown = new Set<number>();
  let before = localOf(fromMs - 26 * HOUR_MS);
  for (let at = fromMs - 26 * HOUR_MS; at < toMs; at += MINUTE_MS) {
    const local = localOf(at);
    // What the clock jumps over is due as much later.
    for (let left = before + MINUTE_MS; left < local; left += MINUTE_MS)
      if (isMeant(left)) found.add(at + (left - before - MINUTE_MS));
    if (isMeant(local) && (cron.hours.length === 24 || !shown.has(local))) found.add(at);
    shown.add(local);
    before = local;
  }
  return [...found].filter((at) => at >= fromMs && at < toMs).sort((one, other) => one - other);
}

/** A day in which clocks change somewhere, or none. */
const days = fc.constantFrom(
  "2027-03-14",
  "2027-03-28",
  "2027-10-31",
  "2027-11-07",
  "2027-04-04",
  "2027-10-03",
  "2027-06-01",
  "2027-09-26",
);
const list = (min: number, max: number) =>
  fc.oneof(
    fc.constant("*"),
    fc.integer({ min: 1, max: 12 }).map((n) => `*/${n}`),
    fc.uniqueArray(fc.integer({ min, max }), { minLength: 1, maxLength: 4 }).map((those) => those.join()),
  );
const expressions = fc
  .tuple(
    list(0, 59),
    list(0, 23),
    fc.oneof(fc.constant("*"), list(1, 31)),
    fc.constant("*"),
    fc.oneof(fc.constant("*"), list(0, 7)),
  )
  .map((fields) => fields.join(" "));

test("is due as a clock shows it that is read each minute", async () => {
  await fc.assert(
    fc.asyncProperty(expressions, fc.constantFrom(...ZONES), days, async (expression, zone, day) => {
      const of = await due(expression, zone);
      const from = Date.parse(day) - 24 * HOUR_MS;
      const to = from + 60 * HOUR_MS;
      const expected = readByMinutes(of, from, to);
      expect(dueBetween(of, from, to)).toEqual(expected);
      for (const [n, at] of expected.slice(0, 20).entries()) {
        expect(lastDue(of, from - 1, at)).toBe(at);
        expect(lastDue(of, from - 1, at - 1)).toBe(expected[n - 1] ?? null);
      }
    }),
    { numRuns: 25, seed: 38 },
  );
});

test("a leap day comes, and a February 30 never does", async () => {
  const leap = await due("0 0 29 2 *", "UTC");
  expect(new Date(nextDue(leap, Date.parse("2096-03-01"))!).toISOString()).toBe("2104-02-29T00:00:00.000Z");
  expect(nextDue(await due("0 0 30 2 *", "UTC"), 0)).toBeNull();
});

test("a day of the month or of the week, where both are given", async () => {
  const of = await due("0 0 13 * 5", "UTC");
  const found = dueBetween(of, Date.parse("2027-08-10"), Date.parse("2027-08-21"));
  expect(found.map((at) => new Date(at).getUTCDate())).toEqual([13, 20]);
});
