import { expect, test, vi } from "vitest";
import { distanceOf, durationText, inZone, momentOf } from "../../src/console/times.ts";

const NOON = "2026-11-22T12:00:00.000Z";

/** One zone, written in many ways. */
function written(way: number): string {
  let bits = way;
  return "america/argentina/buenos_aires".replaceAll(/[a-z]/g, (letter) => {
    const isLarge = bits % 2 === 1;
    bits = Math.floor(bits / 2);
    return isLarge ? letter.toUpperCase() : letter;
  });
}

test("a zone that is written in a thousand ways costs the others nothing", () => {
  for (let way = 0; way < 1_000; way++)
    expect(momentOf(NOON, written(way)).text).toContain("22 Nov 2026, 09:00:00");
  const made = vi.spyOn(Intl, "DateTimeFormat");
  for (let n = 0; n < 100; n++) momentOf(NOON, "Asia/Kathmandu");
  expect(made.mock.calls.length).toBe(1);
  made.mockRestore();
});

test("a text of the API shows the viewer's times, and leaves what is quoted or no time", () => {
  const noon = "2026-11-22 12:00:00 UTC";
  const quoted = `"Retry-After: ${noon}"`;
  const shown = inZone(
    `Due at ${noon}. <b> ${quoted}, 2026-99-99 12:00:00 UTC, until ${noon}.`,
    "Europe/Berlin",
  ).text;
  const time = momentOf("2026-11-22T12:00:00.000Z", "Europe/Berlin").text;
  expect(time).toContain("13:00:00");
  const left = `&#60;b&#62; ${quoted.replaceAll('"', "&#34;")}, 2026-99-99 12:00:00 UTC`;
  expect(shown).toBe(`Due at ${time}. ${left}, until ${time}.`);
});

test.each([
  [-20_000, "under 1 min ago"],
  [20_000, "in under 1 min"],
  [4 * 60_000, "in 4 min"],
  [-89 * 60_000, "89 min ago"],
  [-2 * 3_600_000, "2 h ago"],
  [3 * 86_400_000, "in 3 d"],
])("%i ms from now is %s", (ms, said) => {
  const nowMs = Date.parse(NOON);
  expect(distanceOf(nowMs + ms, nowMs)).toBe(said);
});

test.each([
  [840, "840 ms"],
  [1_200, "1.2 s"],
  [59_900, "59.9 s"],
  [125_000, "2 min 5 s"],
  [12_000_000, "3 h 20 min"],
  [187_200_000, "2 d 4 h"],
])("%d ms take %s", (ms, text) => {
  expect(durationText(ms)).toBe(text);
});
