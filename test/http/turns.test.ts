import { expect, test } from "vitest";
import { AccountPlaces } from "../../src/base/model/account-places.ts";
import { TemporarilyUnavailable } from "../../src/http/problems.ts";
import { createTurns, untilGone } from "../../src/http/turns.ts";
import { patience } from "../support/time-limits.ts";

const LONG_MS = patience(10_000);
const never = new Promise<never>(() => {});

function bench(placesMax = 1) {
  const places = new AccountPlaces({ placesMax });
  const inTurn = createTurns(places, "work");
  const begun: string[] = [];
  const turn = (
    accountId: string,
    work: Promise<unknown>,
    more: { waitMs?: number; gone?: AbortSignal } = {},
  ) =>
    inTurn(accountId, { waitMs: LONG_MS, ...more }, () => {
      begun.push(accountId);
      return work;
    });
  return { places, begun, turn };
}

test("work whose turn does not come in time is refused, and not begun", async () => {
  const { begun, turn } = bench();
  const { promise, resolve: end } = Promise.withResolvers<void>();
  const running = turn("a", promise);
  await expect(turn("b", never, { waitMs: 1.5 })).rejects.toThrow(TemporarilyUnavailable);
  end();
  await running;
  await turn("c", Promise.resolve());
  expect(begun).toEqual(["a", "c"]);
});

test("work that nobody waits for any more is not begun, and in nobody's way", async () => {
  const { begun, turn } = bench();
  const { promise, resolve: end } = Promise.withResolvers<void>();
  const running = turn("a", promise);
  let leave: () => void = () => {};
  const left = untilGone(
    (gone) => {
      leave = gone;
    },
    (gone) => turn("b", never, { gone }),
  );
  const next = turn("c", Promise.resolve());
  leave();
  await expect(left).rejects.toThrow(TemporarilyUnavailable);
  end();
  await Promise.all([running, next]);
  expect(begun).toEqual(["a", "c"]);
});

test("places are free again after work that fails, or ends in time", async () => {
  const { places, turn } = bench();
  for (let n = 0; n < 3; n++) await expect(turn("a", Promise.reject(new Error("x")))).rejects.toThrow("x");
  expect(await turn("a", Promise.resolve(1))).toBe(1);
  expect(places.taken).toBe(0);
});
