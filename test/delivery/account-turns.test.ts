import { expect, it } from "vitest";
import { LanesInTurn, takeInTurn } from "../../src/delivery/account-turns.ts";
import { LanesBench } from "../support/lanes-bench.ts";

it("takes one of each list in turn, and no more than it is asked for", () => {
  const lists = [["a1", "a2", "a3", "a4"], ["b1"], [], ["c1", "c2"]];
  expect(takeInTurn(lists, 5)).toEqual(["a1", "b1", "c1", "a2", "c2"]);
  expect(takeInTurn(lists, 99)).toHaveLength(7);
  expect(takeInTurn(lists, 0)).toEqual([]);
});

it("lanes that have something to take back take turns by account, however many one has", () => {
  const wanted = new LanesInTurn<{ readonly name: string; readonly account: object }>();
  const drain = (max: number) => wanted.drain(max).map(({ name }) => name);
  const [many, few] = [{ id: "a" }, { id: "b" }];
  for (let n = 0; n < 100; n++) wanted.add({ name: `a${n}`, account: many });
  for (let n = 0; n < 3; n++) wanted.add({ name: `b${n}`, account: few });
  expect([drain(4), drain(4), drain(2)]).toEqual([
    ["a0", "a1", "a2", "a3"],
    ["b0", "b1", "b2"],
    ["a4", "a5"],
  ]);
  for (let n = 0; n < 3; n++) wanted.add({ name: `c${n}`, account: { id: `c${n}` } });
  expect([drain(2), drain(9)].map((names) => names[0])).toEqual(["a6", "c0"]);
  wanted.clear();
  expect([wanted.size, drain(9)]).toEqual([0, []]);
});

it("what waits is given back of accounts and their lanes in turn", () => {
  const bench = new LanesBench();
  for (let n = 0; n < 20; n++) bench.fill(`flood/${n}`, 50);
  bench.fill("one/1", 3);
  bench.fill("one/2", 3);
  const given = bench.lanes.clear(10);
  expect(["flood/", "one/1", "one/2"].map((of) => given.filter((id) => id.startsWith(of)).length)).toEqual([
    5, 3, 2,
  ]);
  expect(bench.lanes.waitingIds).toBe(0);
  const all = new LanesBench();
  all.fill("a/1", 3);
  expect(all.lanes.clear()).toHaveLength(3);
});
