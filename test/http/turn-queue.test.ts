import { expect, it } from "vitest";
import { inTurns, type Offered, TurnQueue } from "../../src/http/write-batches.ts";

function queueOf(items: readonly string[]): TurnQueue<string> {
  const queue = new TurnQueue<string>();
  for (const item of items) queue.add(item[0]!, item);
  return queue;
}

/** What goes when `max` may, and those that `stay` names do not. */
function take(queue: TurnQueue<string>, max: number, stay: readonly string[] = []): string[] {
  const taken: string[] = [];
  queue.offer((item): Offered => {
    if (taken.length >= max) return "stop";
    if (stay.includes(item)) return "stays";
    taken.push(item);
    return "gone";
  });
  return taken;
}

it("gives owners turns, and each its own items in order", () => {
  expect(take(queueOf(["a1", "a2", "a3", "b1", "c1", "c2"]), 10)).toEqual([
    "a1",
    "b1",
    "c1",
    "a2",
    "c2",
    "a3",
  ]);
});

it("begins with those that had no turn", () => {
  const queue = queueOf(["a1", "a2", "b1", "c1"]);
  expect(take(queue, 2)).toEqual(["a1", "b1"]);
  expect(take(queue, 1)).toEqual(["c1"]);
  queue.add("b", "b2");
  expect(take(queue, 9)).toEqual(["a2", "b2"]);
});

it("passes over what has to stay, and keeps its place", () => {
  const queue = queueOf(["a1", "a2", "b1"]);
  expect(take(queue, 9, ["a1"])).toEqual(["a2", "b1"]);
  queue.add("a", "a3");
  expect(take(queue, 9)).toEqual(["a1", "a3"]);
  expect(take(queue, 9)).toEqual([]);
});

it("works for so many at a time, owners in turn", async () => {
  const started: string[] = [];
  const ends: (() => void)[] = [];
  const add = inTurns(2, (item: string) => {
    started.push(item);
    return new Promise<void>((end) => ends.push(end));
  });
  for (const item of ["a1", "a2", "a3", "a4", "b1"]) add(item[0]!, item);
  expect(started).toEqual(["a1", "a2"]);
  while (ends.length > 0) {
    ends.shift()!();
    await new Promise(setImmediate);
  }
  expect(started).toEqual(["a1", "a2", "a3", "b1", "a4"]);
});
