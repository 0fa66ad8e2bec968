import { describe, expect, it } from "vitest";
import type { LaneAnswer } from "../../src/dispatch/lane.ts";
import { LANE_LIMITS, type LaneLimits } from "../../src/dispatch/lane-limits.ts";
import { Lanes, type TakenDelivery } from "../../src/dispatch/lanes.ts";
import { patience } from "../support/time-limits.ts";

const LIMITS: LaneLimits = {
  ...LANE_LIMITS,
  inFlightMax: 1_000,
  silentInFlightMax: 250,
  accountInFlightMax: 1_000,
  laneInFlightMax: 128,
};
const ANSWERED: LaneAnswer = { kind: "answered", firstByteMs: null };
const SILENT: LaneAnswer = { kind: "silent" };
const UNKNOWN: LaneAnswer = { kind: "unknown" };

/** Lanes are named `account/lane`; what is in flight is kept, to be ended by name. */
class Bench {
  readonly lanes: Lanes;
  readonly taken: TakenDelivery[] = [];

  constructor(limits: Partial<LaneLimits> = {}) {
    this.lanes = new Lanes({ ...LIMITS, ...limits });
  }

  fill(name: string, count: number, from = 0): boolean[] {
    return Array.from({ length: count }, (_, n) => this.lanes.add(waiting(name, `${name}#${pad(from + n)}`)));
  }

  take(max = 1_000): string[] {
    const taken = this.lanes.take(max);
    this.taken.push(...taken);
    return taken.map(({ deliveryId }) => deliveryId);
  }

  /** All that can start now, batch after batch. */
  takeAll(): string[] {
    const all: string[] = [];
    for (let batch = this.take(200); batch.length > 0; batch = this.take(200)) all.push(...batch);
    return all;
  }

  end(name: string, answer: LaneAnswer, count = 1): void {
    for (let n = 0; n < count; n++) {
      const index = this.taken.findIndex((one) => `${one.accountId}/${one.lane}` === name);
      const [taken] = this.taken.splice(index, 1);
      this.lanes.release(taken!, answer);
    }
  }

  /** A receiver that has answered so often, with nothing waiting or in flight. */
  answering(name: string, answers = 1): void {
    for (let n = 0; n < answers; n++) {
      this.fill(name, 1, 1_000_000 + n);
      this.take(1);
      this.end(name, ANSWERED);
    }
  }

  /** Tries of the first lane, one by one, until so many ids wait. */
  drainTo(waitingIds: number): void {
    while (this.lanes.waitingIds > waitingIds) {
      this.take(1);
      this.end("a/1", UNKNOWN);
    }
  }

  inFlight(account: string): number {
    return this.taken.filter(({ accountId }) => accountId === account).length;
  }
}

const pad = (n: number) => String(n).padStart(8, "0");

function waiting(name: string, deliveryId: string) {
  const [accountId = "", lane = ""] = name.split("/");
  return { deliveryId, accountId, lane };
}

const by = (ids: readonly string[], account: string) =>
  ids.filter((id) => id.startsWith(`${account}/`)).length;

describe("whose turn it is", () => {
  it("goes around the accounts, however many lanes and ids one of them has", () => {
    const bench = new Bench();
    for (const name of ["a/1", "a/2", "a/3", "b/1", "c/1"]) bench.answering(name, 6);
    for (const name of ["a/1", "a/2", "a/3"]) bench.fill(name, 5);
    bench.fill("b/1", 2);
    bench.fill("c/1", 1);
    expect(bench.take(6)).toEqual([
      "a/1#00000000",
      "b/1#00000000",
      "c/1#00000000",
      "a/2#00000000",
      "b/1#00000001",
      "a/3#00000000",
    ]);
  });

  it("keeps the order within a lane, and goes on where the last batch ended", () => {
    const bench = new Bench();
    for (const name of ["a/1", "b/1"]) bench.answering(name, 6);
    for (const name of ["a/1", "b/1"]) bench.fill(name, 3);
    expect(bench.take(3)).toEqual(["a/1#00000000", "b/1#00000000", "a/1#00000001"]);
    expect(bench.take(3)).toEqual(["b/1#00000001", "a/1#00000002", "b/1#00000002"]);
  });

  it("comes to those with the least in flight, until all have the same", () => {
    const bench = new Bench({ inFlightMax: 16 });
    for (const name of ["busy/1", "late/1"]) bench.answering(name, 50);
    bench.fill("busy/1", 30);
    expect(bench.takeAll()).toHaveLength(14);
    bench.fill("late/1", 30);
    for (let n = 0; n < 8; n++) {
      bench.end("busy/1", ANSWERED);
      bench.takeAll();
    }
    expect([bench.inFlight("busy"), bench.inFlight("late")]).toEqual([7, 7]);
  });
});

describe("places in flight", () => {
  it("are never more than the process has", () => {
    const bench = new Bench({ inFlightMax: 3, silentInFlightMax: 3 });
    for (const name of ["a/1", "b/1", "c/1", "d/1"]) bench.fill(name, 2);
    expect(bench.takeAll()).toHaveLength(3);
    bench.end("b/1", UNKNOWN);
    expect(bench.takeAll()).toHaveLength(1);
  });

  it("are nearly all an account's that is alone, but for the eighth that is kept for others", () => {
    const bench = new Bench();
    bench.answering("b/1", 1);
    for (let n = 0; n < 10; n++) bench.answering(`a/${n}`, 127);
    for (let n = 0; n < 10; n++) bench.fill(`a/${n}`, 200);
    expect(bench.takeAll()).toHaveLength(875);
    bench.fill("b/1", 5);
    expect(bench.takeAll(), "room for whoever comes next").toHaveLength(2);
  });

  it("are left for the next account even by a hundred greedy ones", () => {
    const bench = new Bench();
    bench.answering("next/1", 10);
    for (let n = 0; n < 100; n++) bench.answering(`greedy${n}/1`, 127);
    for (let n = 0; n < 100; n++) bench.fill(`greedy${n}/1`, 200);
    bench.takeAll();
    expect(bench.lanes.inFlight).toBeLessThanOrEqual(980);
    bench.fill("next/1", 10);
    expect(bench.takeAll().filter((id) => id.startsWith("next/")).length).toBeGreaterThanOrEqual(5);
  });

  it("are left for the next account by twenty greedy ones that come one after the other", () => {
    const bench = new Bench();
    bench.answering("next/1", 10);
    for (let n = 0; n < 20; n++)
      for (let lane = 0; lane < 8; lane++) bench.answering(`greedy${n}/${lane}`, 127);
    for (let n = 0; n < 20; n++) {
      for (let lane = 0; lane < 8; lane++) bench.fill(`greedy${n}/${lane}`, 200);
      bench.takeAll();
    }
    bench.fill("next/1", 10);
    expect(by(bench.takeAll(), "next")).toBeGreaterThanOrEqual(1);
    expect(bench.lanes.inFlight).toBeLessThan(1_000 - 30);
  });

  it("of one account have a cap where one is configured", () => {
    const bench = new Bench({ accountInFlightMax: 10 });
    bench.answering("a/1", 60);
    bench.fill("a/1", 50);
    for (let n = 0; n < 20; n++) bench.fill(`a/new${n}`, 1);
    expect(bench.takeAll()).toHaveLength(10);
    expect(bench.lanes.cappedAccounts).toBe(1);
    bench.end(`${bench.taken[0]!.accountId}/${bench.taken[0]!.lane}`, UNKNOWN);
    expect(bench.lanes.cappedAccounts).toBe(0);
    expect(bench.takeAll()).toHaveLength(1);
  });

  it("of one lane are at most so many", () => {
    const bench = new Bench({ laneInFlightMax: 4 });
    bench.answering("a/1", 60);
    bench.fill("a/1", 50);
    expect(bench.takeAll()).toHaveLength(4);
  });

  it("are started no more in a lane whose limit fell below what is in flight", () => {
    const bench = new Bench();
    bench.answering("a/1", 7);
    bench.fill("a/1", 20);
    expect(bench.takeAll()).toHaveLength(8);
    bench.end("a/1", SILENT);
    bench.end("a/1", UNKNOWN, 3);
    expect(bench.takeAll(), "four in flight, and the limit is four").toEqual([]);
    bench.end("a/1", UNKNOWN);
    expect(bench.takeAll()).toHaveLength(1);
  });
});

describe("silent receivers", () => {
  it("of one account are few at first, one more with each that answers, one less with each that does not", () => {
    const bench = new Bench({ accountSilentMin: 4 });
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
    const bench = new Bench({ accountSilentMin: 250 });
    for (let n = 0; n < 4_000; n++) bench.fill(`flood/${n}`, 1);
    expect(bench.takeAll(), "125, to a power of two").toHaveLength(128);
    expect([bench.lanes.silentInFlight, bench.lanes.activeAccounts]).toEqual([128, 1]);
    bench.fill("new/1", 1);
    expect(bench.takeAll(), "a new account's first attempt starts at once").toEqual(["new/1#00000000"]);
  });

  it("of twenty accounts leave a place for the next account's first attempt", () => {
    const bench = new Bench();
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
    const bench = new Bench();
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
    const bench = new Bench();
    for (let n = 0; n < 20; n++) bench.answering(`alive${n}/1`);
    for (let n = 0; n < 20; n++) {
      bench.fill(`dead${n}/1`, 1);
      bench.fill(`alive${n}/1`, 1);
    }
    const taken = bench.take(10);
    expect(taken.filter((id) => id.startsWith("dead"))).toHaveLength(5);
  });

  it("are among the others again after one answer, with what they have in flight", () => {
    const bench = new Bench({ silentInFlightMax: 1 });
    bench.fill("a/1", 10);
    bench.fill("b/1", 10);
    expect(bench.takeAll()).toEqual(["a/1#00000000"]);
    bench.end("a/1", ANSWERED);
    expect(bench.takeAll().sort()).toEqual(["a/1#00000001", "a/1#00000002", "b/1#00000000"]);
    expect(bench.lanes.silentLanes).toBe(1);
  });

  it("that have answered elsewhere are not among them", () => {
    const bench = new Bench({ silentInFlightMax: 0 });
    bench.fill("a/1", 5);
    expect(bench.takeAll()).toEqual([]);
    expect(bench.lanes.drainCreated(10)).toEqual([{ accountId: "a", lane: "1" }]);
    expect(bench.lanes.drainCreated(10)).toEqual([]);
    bench.lanes.setAnsweredBefore({ accountId: "a", lane: "1" });
    expect(bench.takeAll()).toHaveLength(2);
    bench.end("a/1", ANSWERED);
    expect(bench.lanes.drainAnswered(10), "known already").toEqual([]);
  });

  it("are told of once when they answer for the first time", () => {
    const bench = new Bench();
    bench.answering("a/1", 3);
    expect(bench.lanes.drainAnswered(10)).toEqual([{ accountId: "a", lane: "1" }]);
    expect(bench.lanes.drainAnswered(10)).toEqual([]);
  });
});

describe("what is remembered", () => {
  it("is every id once while it waits", () => {
    const bench = new Bench();
    bench.answering("a/1");
    expect([...bench.fill("a/1", 1), ...bench.fill("a/1", 1)]).toEqual([true, true]);
    expect(bench.lanes.waitingIds).toBe(1);
    expect(bench.takeAll()).toHaveLength(1);
  });

  it("is at most so many of a lane, of a silent lane, and of one account's silent lanes", () => {
    const bench = new Bench({ laneIdsMax: 5, silentLaneIdsMax: 3, accountSilentIdsMax: 4 });
    bench.answering("a/1");
    expect(bench.fill("a/1", 7).filter(Boolean)).toHaveLength(5);
    expect(bench.fill("a/2", 7).filter(Boolean)).toHaveLength(3);
    expect(bench.fill("a/3", 7).filter(Boolean)).toHaveLength(1);
    expect(bench.fill("b/1", 7).filter(Boolean)).toHaveLength(3);
  });

  it("is half of all for an account alone, and something for every other", () => {
    const bench = new Bench({ idsMax: 100, laneIdsMax: 1_000, accountIdsMin: 5 });
    for (const name of ["a/1", "b/1", "c/1"]) bench.answering(name);
    expect(bench.fill("a/1", 200).filter(Boolean)).toHaveLength(50);
    expect(bench.fill("b/1", 200).filter(Boolean)).toHaveLength(25);
    for (let n = 0; n < 30; n++) bench.answering(`more${n}/1`);
    for (let n = 0; n < 30; n++)
      expect(bench.fill(`more${n}/1`, 9).filter(Boolean).length).toBeGreaterThan(4);
  });

  it("is asked for again when the lane has room, from the oldest that was let go", () => {
    const bench = new Bench({ laneIdsMax: 10 });
    bench.answering("a/1", 2);
    bench.fill("a/1", 30);
    expect(bench.lanes.drainLetGo(10), "it has enough to do").toEqual([]);
    bench.drainTo(5);
    expect(bench.lanes.drainLetGo(10)).toEqual([
      { accountId: "a", lane: "1", fromId: "a/1#00000010", room: 5 },
    ]);
    expect(bench.lanes.drainLetGo(10), "once").toEqual([]);
    expect(bench.lanes.lettingGoLanes, "until it has it back").toBe(1);
    bench.lanes.refill({ accountId: "a", lane: "1" }, ["a/1#00000010", "a/1#00000011"], "a/1#00000012");
    expect(bench.lanes.waitingIds).toBe(7);
    bench.drainTo(5);
    expect(bench.lanes.drainLetGo(10)).toEqual([
      { accountId: "a", lane: "1", fromId: "a/1#00000012", room: 5 },
    ]);
    bench.lanes.refill({ accountId: "a", lane: "1" }, [], null);
    bench.takeAll();
    expect(bench.lanes.drainLetGo(10), "that was all").toEqual([]);
    expect(bench.lanes.lettingGoLanes).toBe(0);
  });

  it("is asked for again when a silent receiver answers, and let go when one falls silent", () => {
    const bench = new Bench({ silentLaneIdsMax: 2 });
    bench.fill("a/1", 5);
    bench.takeAll();
    bench.end("a/1", SILENT);
    expect(bench.lanes.drainLetGo(10), "nothing is asked for while it is silent").toEqual([]);
    bench.takeAll();
    bench.end("a/1", ANSWERED);
    expect(bench.lanes.drainLetGo(10)).toMatchObject([{ accountId: "a", lane: "1", fromId: "a/1#00000002" }]);
    bench.lanes.refill({ accountId: "a", lane: "1" }, [], null);
    bench.fill("a/1", 50, 100);
    const before = bench.lanes.waitingIds;
    bench.takeAll();
    bench.end("a/1", SILENT);
    expect(before).toBeGreaterThan(40);
    expect(bench.lanes.waitingIds).toBe(2);
  });

  it("is given back all at once, and then nothing waits", () => {
    const bench = new Bench();
    bench.answering("a/1", 2);
    bench.fill("a/1", 5);
    bench.fill("b/1", 1);
    bench.take(4);
    expect(bench.lanes.clear()).toHaveLength(2);
    expect([bench.lanes.waitingIds, bench.lanes.inFlight]).toEqual([0, 4]);
    expect(bench.takeAll()).toEqual([]);
  });

  it("of an idle lane is its limit, the longest idle going first; one that never answered has none", () => {
    const bench = new Bench({ idleLanesMax: 2 });
    bench.answering("a/1", 7);
    bench.answering("b/1", 7);
    bench.answering("c/1", 7);
    for (const [name, started] of [
      ["a/1", 1],
      ["b/1", 8],
      ["c/1", 8],
    ] as const) {
      bench.fill(name, 20);
      expect(by(bench.takeAll(), name[0]!), name).toBe(started);
    }
    const silent = new Bench();
    silent.fill("a/1", 1);
    silent.takeAll();
    silent.end("a/1", SILENT);
    expect([silent.lanes.silentLanes, silent.lanes.activeAccounts]).toEqual([0, 0]);
  });

  it("costs a healthy account the same however many silent lanes another one has", () => {
    const bench = new Bench({ inFlightMax: 1_000_000, silentInFlightMax: 1_000 });
    const tookMs = () => {
      const startedAt = performance.now();
      for (let n = 0; n < 2_000; n++) bench.answering("healthy/1");
      return performance.now() - startedAt;
    };
    tookMs();
    const aloneMs = tookMs();
    for (let n = 0; n < 5_000; n++) bench.fill(`flood/${n}`, 1);
    bench.lanes.take(1_000);
    expect(tookMs()).toBeLessThan(5 * aloneMs + patience(50));
  });
});
