import { describe, expect, it } from "vitest";
import { ANSWERED, by, LanesBench, SILENT, UNKNOWN } from "../support/lanes-bench.ts";

describe("silent receivers", () => {
  it("of one account are few at first, one more with each that answers, one less with each that does not", () => {
    const bench = new LanesBench({ accountSilentMin: 4 });
    for (let n = 0; n < 100; n++) bench.fill(`a/${n}`, 1);
    expect(bench.takeAll()).toEqual([0, 1, 2, 3].map((n) => `a/${n}#00000000`));
    for (const n of [0, 1, 2]) bench.end(`a/${n}`, ANSWERED);
    bench.end("a/3", UNKNOWN);
    expect(bench.takeAll()).toHaveLength(7);
    for (const n of [4, 5]) bench.end(`a/${n}`, SILENT);
    expect(bench.takeAll()).toHaveLength(0);
    bench.end("a/6", ANSWERED);
    expect(bench.takeAll()).toHaveLength(2);
    bench.fill("b/1", 1);
    expect(bench.takeAll(), "another account's").toHaveLength(1);
  });

  it("of one account hold half of what silent ones may, and leave the rest to others", () => {
    const bench = new LanesBench({ accountSilentMin: 250 });
    for (let n = 0; n < 4_000; n++) bench.fill(`flood/${n}`, 1);
    expect(bench.takeAll(), "125, to a power of two").toHaveLength(128);
    expect([bench.lanes.silentInFlight, bench.lanes.activeAccounts]).toEqual([128, 1]);
    bench.fill("new/1", 1);
    expect(bench.takeAll(), "a new account's first attempt starts at once").toEqual(["new/1#00000000"]);
  });

  it("of one account leave an eighth of what is for silent ones, where that is less", () => {
    const bench = new LanesBench({ accountSilentMin: 250, silentInFlightMax: 200 });
    for (let n = 0; n < 400; n++) bench.fill(`flood/${n}`, 1);
    expect(bench.takeAll(), "64 to 127 are one class, and 25 are kept").toHaveLength(111);
  });

  it("of twenty accounts leave a place for the next account's first attempt", () => {
    const bench = new LanesBench();
    bench.answering("known/1", 3);
    for (let account = 0; account < 20; account++)
      for (let n = 0; n < 200; n++) bench.fill(`flood${account}/${n}`, 1);
    bench.takeAll();
    expect(bench.lanes.inFlight).toBeLessThan(250);
    bench.fill("new/1", 1);
    bench.fill("known/1", 3);
    const taken = bench.takeAll();
    expect([by(taken, "new"), by(taken, "known")]).toEqual([1, 3]);
  });

  it("of twenty accounts that come one after the other leave it, too", () => {
    const bench = new LanesBench();
    bench.answering("known/1", 3);
    for (let account = 0; account < 20; account++) {
      for (let n = 0; n < 200; n++) bench.fill(`flood${account}/${n}`, 1);
      bench.takeAll();
    }
    bench.fill("new/1", 1);
    bench.fill("known/1", 3);
    const taken = bench.takeAll();
    expect([by(taken, "new"), by(taken, "known")]).toEqual([1, 3]);
  });

  it("get at most every second place of a batch", () => {
    const bench = new LanesBench();
    for (let n = 0; n < 20; n++) bench.answering(`alive${n}/1`);
    for (let n = 0; n < 20; n++) {
      bench.fill(`dead${n}/1`, 1);
      bench.fill(`alive${n}/1`, 1);
    }
    const taken = bench.take(10);
    expect(taken.filter((id) => id.startsWith("dead"))).toHaveLength(5);
  });

  it("are among the others again after one answer, with what they have in flight", () => {
    const bench = new LanesBench({ silentInFlightMax: 1 });
    bench.fill("a/1", 10);
    bench.fill("b/1", 10);
    expect(bench.takeAll()).toEqual(["a/1#00000000"]);
    bench.end("a/1", ANSWERED);
    expect(bench.takeAll().sort()).toEqual(["a/1#00000001", "a/1#00000002", "b/1#00000000"]);
    expect(bench.lanes.silentLanes).toBe(1);
  });

  it("that have answered before, and others, take turns, however many wait", () => {
    const bench = new LanesBench({ accountSilentMin: 4 });
    for (let n = 0; n < 3; n++) bench.answering(`a/known${n}`, 1);
    for (let n = 0; n < 3; n++) bench.fill(`a/known${n}`, 1);
    for (const name of bench.takeAll()) bench.end(name.split("#")[0]!, SILENT);
    for (let n = 0; n < 100; n++) bench.fill(`a/${n}`, 1);
    const places = bench.takeAll().length;
    for (let n = 0; n < 3; n++) bench.fill(`a/known${n}`, 1);
    const started: string[] = [];
    for (let n = 0; n < places; n++) {
      bench.end(`a/${n}`, UNKNOWN);
      started.push(...bench.takeAll());
    }
    const known = started.map((name) => name.startsWith("a/known"));
    expect([known[0], known[1]].toSorted(), started.join()).toEqual([false, true]);
  });

  it("have room for their first, however many of their account wait, up to as many again", () => {
    const bench = new LanesBench({
      accountSilentIdsMax: 10,
      silentLaneIdsMax: 10,
      idsMax: 25,
      accountIdsMin: 2,
    });
    expect(bench.fill("a/full", 11).filter(Boolean)).toHaveLength(10);
    for (let n = 0; n < 10; n++) expect(bench.fill(`a/${n}`, 2), "one each").toEqual([true, false]);
    expect(bench.fill("a/late", 1)).toEqual([false]);
    expect(bench.fill("b/1", 10).filter(Boolean)).toHaveLength(5);
    expect(bench.fill("c/1", 3), "the process has no more, but for whoever has next to nothing").toEqual([
      true,
      true,
      false,
    ]);
  });

  it("that had no room are kept for as long as nobody says whether they have, up to a bound", () => {
    const bench = new LanesBench({ accountSilentIdsMax: 1, silentLaneIdsMax: 1, idleLanesMax: 10 });
    for (let n = 0; n < 50; n++) bench.fill(`a/${n}`, 1);
    expect([bench.lanes.silentLanes, bench.lanes.overflowingLanes]).toEqual([10, 8]);
  });

  it("that had no room may have answered elsewhere: they are asked about all the same", () => {
    const bench = new LanesBench({ accountSilentIdsMax: 1, silentLaneIdsMax: 1 });
    for (const name of ["a/1", "a/2"]) bench.fill(name, 1);
    expect([...bench.fill("a/known", 1), ...bench.fill("a/unknown", 1)]).toEqual([false, false]);
    const asked = bench.lanes.drainCreated(10);
    expect(asked.map(({ lane }) => lane)).toEqual(["1", "2", "known", "unknown"]);
    bench.lanes.setAnsweredBefore({ accountId: "a", lane: "known", isSuspended: false });
    bench.lanes.settle(asked);
    expect(bench.lanes.drainOverflow(10)).toMatchObject([{ lane: "known" }]);
    expect(bench.lanes.silentLanes, "what has no room and never answered is forgotten").toBe(2);
  });

  it("that have answered elsewhere are not among them", () => {
    const bench = new LanesBench({ silentInFlightMax: 0 });
    bench.fill("a/1", 5);
    expect(bench.takeAll()).toEqual([]);
    expect(bench.lanes.drainCreated(10)).toEqual([{ accountId: "a", lane: "1" }]);
    expect(bench.lanes.drainCreated(10)).toEqual([]);
    bench.lanes.setAnsweredBefore({ accountId: "a", lane: "1", isSuspended: false });
    expect(bench.takeAll()).toHaveLength(2);
    bench.end("a/1", ANSWERED);
    expect(bench.lanes.drainAnswered(10), "it goes on answering").toHaveLength(1);
    bench.end("a/1", ANSWERED);
    expect(bench.lanes.drainAnswered(10), "known already").toEqual([]);
  });

  it("are told of once when they answer for the first time", () => {
    const bench = new LanesBench();
    bench.answering("a/1", 3);
    expect(bench.lanes.drainAnswered(10)).toEqual([{ accountId: "a", lane: "1", isSuspended: false }]);
    expect(bench.lanes.drainAnswered(10)).toEqual([]);
  });

  it("are told of again when they are suspended, and when they are no longer", () => {
    const bench = new LanesBench();
    bench.fill("a/1", 3);
    bench.lanes.setAnsweredBefore({ accountId: "a", lane: "1", isSuspended: true });
    expect(bench.takeAll(), "one at a time").toHaveLength(1);
    bench.end("a/1", { kind: "answered", firstByteMs: null, isFailure: true });
    expect(bench.lanes.drainAnswered(10)).toEqual([{ accountId: "a", lane: "1", isSuspended: true }]);
    expect(bench.takeAll()).toHaveLength(1);
    bench.end("a/1", ANSWERED);
    expect(bench.lanes.drainAnswered(10)).toEqual([{ accountId: "a", lane: "1", isSuspended: false }]);
  });
});
