import { describe, expect, it } from "vitest";
import { takeInTurn, Wanted } from "../../src/delivery/account-turns.ts";
import { FIRST_ID } from "../../src/delivery/lane.ts";
import { LanesBench } from "../support/lanes-bench.ts";

it("takes one of each list in turn, and no more than it is asked for", () => {
  const lists = [["a1", "a2", "a3", "a4"], ["b1"], [], ["c1", "c2"]];
  expect(takeInTurn(lists, 5)).toEqual(["a1", "b1", "c1", "a2", "c2"]);
  expect(takeInTurn(lists, 99)).toHaveLength(7);
  expect(takeInTurn(lists, 0)).toEqual([]);
});

describe("lanes that have something to take back", () => {
  const account = { id: "a" };
  const laneOf = (name: string, overflowFrom: string, of: object = account) => ({
    name,
    account: of,
    overflowFrom,
  });
  const bench = () => {
    const wanted = new Wanted<ReturnType<typeof laneOf>>();
    return { wanted, drain: (max: number) => wanted.drain(max).map(({ name }) => name) };
  };

  it("take turns by account, however many one has", () => {
    const { wanted, drain } = bench();
    const other = { id: "b" };
    for (let n = 0; n < 100; n++) wanted.add(laneOf(`a${n}`, "01"));
    for (let n = 0; n < 3; n++) wanted.add(laneOf(`b${n}`, "01", other));
    expect([drain(4), drain(4), drain(2)]).toEqual([
      ["a0", "a1", "a2", "a3"],
      ["b0", "b1", "b2"],
      ["a4", "a5"],
    ]);
    for (let n = 0; n < 3; n++) wanted.add(laneOf(`c${n}`, "01", { id: `c${n}` }));
    expect([drain(2), drain(9)].map((names) => names[0])).toEqual(["a6", "c0"]);
  });

  it("look for what was put off apart, an account at a time, until they have seen everything", () => {
    const { wanted, drain } = bench();
    const seekers = [0, 1, 2].map((n) => laneOf(`s${n}`, FIRST_ID));
    const other = laneOf("other", FIRST_ID, { id: "b" });
    const known = [0, 1, 2].map((n) => laneOf(`k${n}`, "01"));
    for (const lane of [...seekers, other, ...known]) wanted.add(lane);
    expect([drain(2), drain(2), drain(2), drain(2), drain(2)]).toEqual([
      ["s0", "s1"],
      ["k0", "k1"],
      ["other"],
      ["k2"],
      ["s2"],
    ]);
    expect(wanted.size).toBe(0);
    // It goes on from where it is, and is one of the others when it has seen everything.
    const again = Object.assign(seekers[0]!, { overflowFrom: "05" });
    for (const lane of [known[0]!, again]) wanted.add(lane);
    expect([drain(9), drain(9)].map((names) => names.length)).toEqual([1, 1]);
    wanted.delete(again);
    for (const lane of [known[0]!, again]) wanted.add(lane);
    expect(drain(9)).toHaveLength(2);
  });
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
