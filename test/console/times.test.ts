import { expect, test, vi } from "vitest";
import { momentOf } from "../../src/console/times.ts";

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
