import { expect, test } from "vitest";
import { TemporarilyUnavailable } from "../../src/api/problems.ts";
import { createTurns } from "../../src/workspace/visiting/turns.ts";

/** Work that goes on until it is told to end. */
function working() {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const work = (name: string) => () => {
    begun.push(name);
    return new Promise<string>((resolve) => ends.set(name, () => resolve(name)));
  };
  return { begun, work, end: (name: string) => ends.get(name)!() };
}

/** The first begins at once, so its owner is the first who waits, too. */
test("owners take turns, each in the order in which it came", async () => {
  const takeTurn = createTurns({ name: "work", atOnceMax: 1, waitingMax: 10 });
  const { begun, work, end } = working();
  const all = ["a1", "a2", "a3", "b1"].map((name) => takeTurn(name[0]!, work(name)));
  for (const name of ["a1", "a2", "b1", "a3"]) {
    await expect.poll(() => begun.at(-1)).toBe(name);
    end(name);
  }
  expect(await Promise.all(all)).toEqual(["a1", "a2", "a3", "b1"]);
});

test("one owner has half of the places, and nobody more than there are", async () => {
  const takeTurn = createTurns({ name: "work", atOnceMax: 1, waitingMax: 4 });
  const { begun, work, end } = working();
  const refused = (owner: string) =>
    expect(takeTurn(owner, work("refused"))).rejects.toThrow(TemporarilyUnavailable);
  const all = ["a1", "a2"].map((name) => takeTurn("a", work(name)));
  await refused("a");
  all.push(...["b1", "c1"].map((name) => takeTurn(name[0]!, work(name))));
  await refused("d");
  for (const name of ["a1", "a2", "b1", "c1"]) {
    await expect.poll(() => begun.at(-1)).toBe(name);
    end(name);
  }
  await Promise.all(all);
  expect(begun).not.toContain("refused");
  const again = takeTurn("a", work("a3"));
  await expect.poll(() => begun.at(-1)).toBe("a3");
  end("a3");
  await again;
});

test("work that fails fails for its owner, and the next begins", async () => {
  const takeTurn = createTurns({ name: "work", atOnceMax: 1, waitingMax: 4 });
  await expect(takeTurn("a", () => Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(await takeTurn("a", async () => 1)).toBe(1);
});
