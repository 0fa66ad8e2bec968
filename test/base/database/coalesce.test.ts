import { describe, expect, it } from "vitest";
import { coalesceByTurn, gatherByTurn } from "../../../src/base/database/coalesce.ts";

it("asks once for all who come in one turn, key by key, when all of them are there", async () => {
  const asked: [string, number][] = [];
  const gathered = coalesceByTurn((key, callers) => {
    asked.push([key, callers]);
    return Promise.resolve(key.toUpperCase());
  });
  const answers = [gathered("a"), gathered("b"), gathered("a")];
  expect(asked).toEqual([]);
  expect(await Promise.all(answers)).toEqual([
    { answer: "A", callers: 2, place: 1 },
    { answer: "B", callers: 1, place: 1 },
    { answer: "A", callers: 2, place: 2 },
  ]);
  expect(asked).toEqual([
    ["a", 2],
    ["b", 1],
  ]);
});

it("gives nobody an answer that was asked for before they came", async () => {
  const answers: ((value: number) => void)[] = [];
  const gathered = coalesceByTurn(() => new Promise<number>((resolve) => answers.push(resolve)));
  const first = gathered("a");
  while (answers.length === 0) await new Promise(setImmediate);
  const second = gathered("a");
  while (answers.length === 1) await new Promise(setImmediate);
  answers[1]?.(2);
  expect((await second).answer).toBe(2);
  answers[0]?.(1);
  expect((await first).answer).toBe(1);
});

it("gives an error to all, and asks anew after it", async () => {
  let isBroken = true;
  const gathered = coalesceByTurn((key) =>
    isBroken ? Promise.reject(new Error("away")) : Promise.resolve(key),
  );
  const settled = await Promise.allSettled([gathered("a"), gathered("a")]);
  expect(settled.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  isBroken = false;
  expect((await gathered("a")).answer).toBe("a");
});

describe("many keys", () => {
  it("are asked for together, and nobody gets what was asked for before they came", async () => {
    const asked: [string, number][][] = [];
    const gathered = gatherByTurn((callers) => {
      asked.push([...callers]);
      return Promise.resolve(new Map([["a", asked.length]]));
    });
    const answers = [gathered("a"), gathered("b"), gathered("a")];
    expect(await Promise.all(answers)).toEqual([
      { answer: 1, callers: 2, place: 1 },
      { answer: undefined, callers: 1, place: 1 },
      { answer: 1, callers: 2, place: 2 },
    ]);
    expect((await gathered("a")).answer).toBe(2);
    expect(asked).toEqual([
      [
        ["a", 2],
        ["b", 1],
      ],
      [["a", 1]],
    ]);
  });

  it("share an error, and are asked for anew after it", async () => {
    let isBroken = true;
    const gathered = gatherByTurn((callers) =>
      isBroken ? Promise.reject(new Error("away")) : Promise.resolve(callers),
    );
    const settled = await Promise.allSettled([gathered("a"), gathered("b")]);
    expect(settled.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    isBroken = false;
    expect((await gathered("a")).answer).toBe(1);
  });
});
