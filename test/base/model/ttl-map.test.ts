import { expect, it } from "vitest";
import { TtlMap } from "../../../src/base/model/caches.ts";

function createMap(entriesMax: number) {
  const clock = { nowMs: 0 };
  return { clock, map: new TtlMap<string, string>(entriesMax, () => clock.nowMs) };
}

it("has an entry until its time to live is over", () => {
  const { clock, map } = createMap(10);
  map.set("a", "1", 1_000);
  map.set("b", "2", 2_000);
  clock.nowMs = 999;
  expect([map.get("a"), map.get("b")]).toEqual(["1", "2"]);
  clock.nowMs = 1_000;
  expect([map.has("a"), map.has("b")]).toEqual([false, true]);
});

it("counts the time to live anew when a key is set again", () => {
  const { clock, map } = createMap(10);
  map.set("a", "1", 1_000);
  clock.nowMs = 999;
  map.set("a", "2", 1_000);
  clock.nowMs = 1_998;
  expect(map.get("a")).toBe("2");
  clock.nowMs = 1_999;
  expect(map.get("a")).toBeUndefined();
});

it("has nothing that was deleted, or set with no time to live", () => {
  const { map } = createMap(10);
  map.set("a", "1", 1_000);
  map.delete("a");
  map.set("b", "2", 0);
  expect([map.has("a"), map.has("b")]).toEqual([false, false]);
});

it("forgets the oldest entry when it is full; one that is set again counts as new", () => {
  const { map } = createMap(2);
  for (const key of ["a", "b", "a", "c"]) map.set(key, key, 1_000);
  expect(["a", "b", "c"].filter((key) => map.has(key))).toEqual(["a", "c"]);
});

it("forgets the oldest hundredth, and no more, when it is large", () => {
  const { map } = createMap(1_000);
  for (let index = 0; index <= 1_000; index += 1) map.set(`key-${index}`, "x", 1_000);
  const forgotten = Array.from({ length: 1_001 }, (_, index) => index).filter(
    (index) => !map.has(`key-${index}`),
  );
  expect(forgotten).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});
