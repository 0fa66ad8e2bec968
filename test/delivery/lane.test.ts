import { describe, expect, it } from "vitest";
import {
  isToBeTold,
  type LaneAnswer,
  LaneState,
  learn,
  ReceiverRests,
  setAnsweredBefore,
} from "../../src/delivery/lane.ts";

const LIMIT_MAX = 128;
const SILENT: LaneAnswer = { kind: "silent" };
const OVERLOADED: LaneAnswer = { kind: "overloaded" };

const FAILED: LaneAnswer = { kind: "answered", firstByteMs: null, isFailure: true };

function answered(firstByteMs: number | null = null): LaneAnswer {
  return { kind: "answered", firstByteMs };
}

function laneAfter(...answers: LaneAnswer[]): LaneState {
  const state = new LaneState();
  for (const answer of answers) learn(state, answer, state.epoch, LIMIT_MAX);
  return state;
}

const answers = (count: number, firstByteMs: number | null = null) =>
  Array.from({ length: count }, () => answered(firstByteMs));

describe("a lane's limit", () => {
  it("is one until its receiver has answered, which counts as silent", () => {
    expect(laneAfter()).toMatchObject({ limit: 1, isSilent: true, hasAnswered: false });
    expect(laneAfter(SILENT, SILENT)).toMatchObject({ limit: 1, isSilent: true, hasAnswered: false });
    expect(laneAfter({ kind: "unknown" })).toMatchObject({ limit: 1, isSilent: true, hasAnswered: false });
  });

  it("is two after the first answer, one more with each, up to the most", () => {
    expect(laneAfter(...answers(1))).toMatchObject({ limit: 2, isSilent: false, hasAnswered: true });
    expect(laneAfter(...answers(5)).limit).toBe(6);
    expect(laneAfter(...answers(127)).limit).toBe(128);
    expect(laneAfter(...answers(500)).limit).toBe(128);
  });

  it("is two at once for a receiver that has answered elsewhere", () => {
    const state = new LaneState();
    setAnsweredBefore(state, false);
    expect(state).toMatchObject({ limit: 2, isSilent: false, hasAnswered: true });
    learn(state, answered(), 0, LIMIT_MAX);
    setAnsweredBefore(state, false);
    expect(state.limit, "told once more, nothing changes").toBe(3);
  });

  it("is one after a hundred failures in a row over ten minutes, until the next 2xx", () => {
    const state = laneAfter(...answers(127));
    const fail = (nowMs: number) => learn(state, FAILED, 0, LIMIT_MAX, nowMs);
    for (let n = 0; n < 1_000; n++) fail(599_999);
    expect(state.limit, "an outage of minutes").toBe(128);
    fail(1_199_998);
    expect(state.limit).toBe(128);
    fail(1_199_999);
    fail(1_300_000);
    expect(state.limit).toBe(1);
    learn(state, answered(), 0, LIMIT_MAX);
    expect(state.limit).toBe(2);
    for (let n = 0; n < 99; n++) fail(n === 0 ? 0 : 9_000_000);
    expect(state.limit, "few, though for long").toBeGreaterThan(1);
  });

  it("stays one after a restart, if it was one for that reason", () => {
    const state = new LaneState();
    setAnsweredBefore(state, true);
    expect(state).toMatchObject({ limit: 1, isSilent: false, hasAnswered: true });
    learn(state, FAILED, 0, LIMIT_MAX);
    learn(state, { kind: "unknown" }, 0, LIMIT_MAX);
    expect(state).toMatchObject({ limit: 1, isSuspended: true });
    learn(state, answered(), 0, LIMIT_MAX);
    expect(state).toMatchObject({ limit: 2, isSuspended: false });
    setAnsweredBefore(state, true);
    expect(state.limit, "told late, after a 2xx").toBe(2);
    const failing = laneAfter(FAILED, FAILED, FAILED);
    expect(failing.limit, "not known yet").toBe(1);
    setAnsweredBefore(failing, true);
    expect(failing, "told late, after failures").toMatchObject({ limit: 1, isSuspended: true });
    const known = new LaneState();
    setAnsweredBefore(known, false);
    learn(known, FAILED, 0, LIMIT_MAX);
    expect(known.limit, "known not to be").toBe(3);
  });

  it("is told of once a day, and when it is suspended or opened", () => {
    const day = 86_400_000;
    const state = laneAfter();
    const isTold = (answer: LaneAnswer, nowMs: number) => {
      learn(state, answer, 0, LIMIT_MAX, nowMs);
      return isToBeTold(state, nowMs);
    };
    expect(isTold(SILENT, 0), "it has never answered").toBe(false);
    expect([isTold(FAILED, 1), state.told]).toEqual([true, null]);
    expect([isTold(FAILED, 2), isTold(answered(), 3), state.told]).toEqual([false, true, false]);
    expect([isTold(answered(), 4), isTold(answered(), day + 3), isTold(FAILED, day + 4)]).toEqual([
      false,
      true,
      false,
    ]);
    expect(isTold(SILENT, 3 * day), "no answer").toBe(false);
    for (let n = 0; n < 100; n++) learn(state, SILENT, 0, LIMIT_MAX, 3 * day + n);
    expect([isTold(SILENT, 4 * day), state.told]).toEqual([true, true]);
    expect([isTold(answered(), 4 * day + 1), state.told]).toEqual([true, false]);
  });

  it("halves with every silence, down to one", () => {
    const state = laneAfter(...answers(127));
    for (const limit of [64, 32, 16, 8, 4, 2, 1, 1]) {
      learn(state, SILENT, 0, LIMIT_MAX);
      expect(state).toMatchObject({ limit, isSilent: true, hasAnswered: true });
    }
    learn(state, answered(), 0, LIMIT_MAX);
    expect(state).toMatchObject({ limit: 2, isSilent: false });
  });

  it("halves once for all the 429 and 503 of what was in flight together", () => {
    const state = laneAfter(...answers(99));
    expect(state.limit).toBe(100);
    for (let n = 0; n < 100; n++) learn(state, OVERLOADED, 0, LIMIT_MAX);
    expect(state).toMatchObject({ limit: 50, epoch: 1, isSilent: false });
    for (let n = 0; n < 50; n++) learn(state, OVERLOADED, 1, LIMIT_MAX);
    expect(state).toMatchObject({ limit: 25, epoch: 2 });
    expect(laneAfter(OVERLOADED, OVERLOADED, OVERLOADED).limit, "never below one").toBe(1);
  });

  it("halves when answers take ever longer, and not for the jitter of a fast receiver", () => {
    const steady = laneAfter(...answers(50, 20), ...answers(100, 200));
    expect(steady.limit, "ten times as long, but only 180 ms").toBe(128);
    const rising = laneAfter(...answers(50, 20));
    const before = rising.limit;
    for (let n = 0; n < 50 && rising.epoch === 0; n++) learn(rising, answered(1_000), 0, LIMIT_MAX);
    expect(rising.epoch).toBe(1);
    expect(rising.limit).toBeLessThanOrEqual((before + 10) / 2);
  });

  it("follows a receiver that does one thing at a time: a few in flight, not a hundred", () => {
    const state = laneAfter(answered(50));
    // Each answer takes as long as all that is in flight before it.
    for (let n = 0; n < 2_000; n++) learn(state, answered(50 * state.limit), state.epoch, LIMIT_MAX);
    expect(state.limit).toBeLessThanOrEqual(12);
    expect(state.limit).toBeGreaterThanOrEqual(2);
  });

  it("rises again for a receiver that has become slower by itself", () => {
    const state = laneAfter(...answers(200, 20));
    for (let n = 0; n < 1_000; n++) learn(state, answered(2_000), state.epoch, LIMIT_MAX);
    expect(state.limit).toBe(128);
  });

  it("does not rise by the answers of what was in flight when it was halved", () => {
    const state = laneAfter(...answers(99));
    learn(state, OVERLOADED, 0, LIMIT_MAX);
    for (let n = 0; n < 99; n++) learn(state, answered(), 0, LIMIT_MAX);
    expect(state.limit).toBe(50);
    learn(state, answered(), 1, LIMIT_MAX);
    expect(state.limit).toBe(51);
  });

  it("learns nothing of an answer that nobody knows", () => {
    expect(() => learn(new LaneState(), { kind: "maybe" } as never, 0, LIMIT_MAX)).toThrow("Unknown answer");
  });

  it("is not lowered by a receiver that is always slow", () => {
    expect(laneAfter(...answers(200, 14_000)).limit).toBe(128);
  });
});

describe("receivers that rest", () => {
  type Resting = { key: string; limit: number; isResting: boolean; ids: Set<string> };
  const laneOf = (key: string): Resting => ({ key, limit: 1, isResting: false, ids: new Set(["1"]) });
  const bench = () => {
    const rests = new ReceiverRests<Resting>(() => undefined);
    const rest = (key: string, origin: string, accountId = "me") =>
      rests.learn(laneOf(key), accountId, { origin, restMs: 60_000 });
    return { rests, rest };
  };

  it("are all looked for in turn, however many there are", () => {
    const { rests, rest } = bench();
    const names = ["a", "b", "c", "d", "e"];
    for (const [key, origin] of names.entries()) rest(`${key}`, origin);
    const inTurn = [rests.resting(2), rests.resting(2), rests.resting(2)].flat();
    expect(inTurn.map(({ receiver }) => receiver)).toEqual([...names, "a"].map((name) => `me ${name}`));
    rests.endAll("me b");
    expect(rests.resting(9).map(({ lane }) => lane)).toEqual(["2", "3", "4", "0"]);
  });

  it("are looked for beside one that has thousands of lanes, and so is each of those", () => {
    const { rests, rest } = bench();
    for (let n = 0; n < 1_500; n++) rest(`m${n}`, "many");
    for (let n = 0; n < 20; n++) rest(`o${n}`, `other${n}`);
    expect(rests.resting(1_000).filter(({ lane }) => lane.startsWith("o"))).toHaveLength(20);
    const seen = new Set(
      Array.from({ length: 15 }, () => rests.resting(1_000)).flatMap((all) => all.map(({ lane }) => lane)),
    );
    expect(seen.size).toBe(1_520);
  });

  it("are looked for beside another account's thousands each time, and in turn if accounts are too many", () => {
    const { rests, rest } = bench();
    for (let n = 0; n < 5_000; n++) rest(`m${n}`, `many${n}`);
    for (let n = 0; n < 20; n++) rest(`o${n}`, `own${n}`, "other");
    for (const _ of [1, 2, 3]) {
      const looked = rests.resting(1_000);
      expect(looked).toHaveLength(1_000);
      expect(looked.filter(({ receiver }) => receiver.startsWith("other "))).toHaveLength(20);
    }
    for (let n = 0; n < 20; n++) rest(`a${n}`, "one", `account${n}`);
    const seen = Array.from({ length: 10 }, () => rests.resting(3)).flat();
    expect(new Set(seen.map(({ receiver }) => receiver.split(" ")[0])).size).toBe(22);
  });

  it("leave no place in line that others of their receiver wait for", () => {
    const { rests } = bench();
    let left = 0;
    const inLine = { isCalled: () => true, leave: () => left++ };
    const lanes = ["1", "2", "3"].map(laneOf) as [Resting, Resting, Resting];
    for (const lane of lanes) rests.learn(lane, "me", { origin: "o", restMs: 0, inLine });
    lanes[0].ids.clear();
    rests.look(Number.POSITIVE_INFINITY);
    expect([left, rests.resting(9).length], "two more wait").toEqual([0, 2]);
    for (const lane of lanes.slice(1)) rests.learn(lane, "me", { origin: "o", restMs: 0, inLine });
    rests.endAll("me o");
    expect(left, "the endpoint has left, the others begin anew").toBe(0);
  });

  it("leave their place in line when what they wait for is gone, or they are proven", () => {
    const { rests } = bench();
    const told: string[] = [];
    const place = (name: string) => ({ isCalled: () => true, leave: () => told.push(name) });
    const [lane, erased, proven] = ["lane", "erased", "proven"].map(laneOf) as [Resting, Resting, Resting];
    for (const one of [lane, erased, proven])
      rests.learn(one, "me", { origin: one.key, restMs: 0, inLine: place(one.key) });
    const uncalled = { isCalled: () => false, leave: () => told.push("uncalled") };
    rests.learn(laneOf("uncalled"), "me", { origin: "uncalled", restMs: 0, inLine: uncalled });
    erased.ids.clear();
    rests.endAll("me proven");
    expect(rests.look(Number.POSITIVE_INFINITY)).toBe(true);
    expect(told).toEqual(["proven", "erased"]);
    expect(
      rests.resting(9).map(({ lane }) => lane),
      "it rests until it is called",
    ).toEqual(["uncalled"]);
    rests.learn(lane, "me", null);
    expect(told, "it has more").toHaveLength(2);
    lane.ids.clear();
    rests.learn(lane, "me", null);
    expect(told).toEqual(["proven", "erased", "lane"]);
  });
});
