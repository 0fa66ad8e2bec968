import { describe, expect, it } from "vitest";
import { LANE_LIMITS, type LaneLimits, Lanes } from "../../src/dispatch/lanes.ts";
import { patience } from "../support/time-limits.ts";

const LIMITS: LaneLimits = { ...LANE_LIMITS, inFlightMax: 1_000, silentInFlightMax: 250 };

function lanesWith(limits: Partial<LaneLimits> = {}): Lanes {
  return new Lanes({ ...LIMITS, ...limits });
}

function fill(lanes: Lanes, lane: string, count: number, from = 0): boolean[] {
  return Array.from({ length: count }, (_, n) => lanes.add({ deliveryId: `${lane}${from + n}`, lane }));
}

const take = (lanes: Lanes, max: number) => lanes.take(max).map((waiting) => waiting.deliveryId);

/** Answers until the lane may have `limit` attempts under way; leaves it empty. */
function raise(lanes: Lanes, lane: string, answers: number): void {
  for (let n = 0; n < answers; n++) {
    fill(lanes, lane, 1, 1_000_000 + n);
    lanes.take(1);
    lanes.release(lane, "answered");
  }
}

describe("whose turn it is", () => {
  it("goes around the lanes, however many ids one of them has", () => {
    const lanes = lanesWith();
    raise(lanes, "a", 6);
    fill(lanes, "a", 100);
    fill(lanes, "b", 1);
    fill(lanes, "c", 2);
    expect(take(lanes, 6)).toEqual(["a0", "b0", "c0", "a1", "c1", "a2"]);
  });

  it("keeps the order within a lane", () => {
    const lanes = lanesWith();
    raise(lanes, "a", 6);
    fill(lanes, "a", 5);
    expect(take(lanes, 3)).toEqual(["a0", "a1", "a2"]);
    expect(take(lanes, 3)).toEqual(["a3", "a4"]);
  });

  it("goes on where the last batch ended", () => {
    const lanes = lanesWith();
    for (const lane of ["a", "b", "c"]) fill(lanes, lane, 2);
    expect(take(lanes, 2)).toEqual(["a0", "b0"]);
    expect(take(lanes, 2)).toEqual(["c0", "a1"]);
  });
});

describe("how many at a time", () => {
  it("takes no more than the process may have under way", () => {
    const lanes = lanesWith({ inFlightMax: 3 });
    for (const lane of ["a", "b", "c"]) fill(lanes, lane, 2);
    expect(take(lanes, 10)).toHaveLength(3);
    expect(take(lanes, 10)).toEqual([]);
    lanes.release("b", "unknown");
    expect(take(lanes, 10)).toEqual(["a1"]);
  });

  it("starts a lane with two, one more with each answer up to its cap", () => {
    const lanes = lanesWith({ laneInFlightMax: 4 });
    fill(lanes, "a", 20);
    expect(take(lanes, 20)).toHaveLength(2);
    lanes.release("a", "answered");
    expect(take(lanes, 20)).toHaveLength(2);
    lanes.release("a", "answered");
    expect(take(lanes, 20)).toHaveLength(2);
    lanes.release("a", "answered");
    expect(take(lanes, 20), "at the cap an answer makes room for one").toHaveLength(1);
    expect(lanes.inFlight).toBe(4);
  });

  it("halves with each silence, down to one, and starts nothing beyond that meanwhile", () => {
    const lanes = lanesWith();
    raise(lanes, "a", 6);
    fill(lanes, "a", 20);
    expect(take(lanes, 20)).toHaveLength(8);
    for (const [silences, started] of [
      [4, 0],
      [3, 0],
      [1, 1],
    ] as const) {
      for (let n = 0; n < silences; n++) lanes.release("a", "silent");
      expect(take(lanes, 20)).toHaveLength(started);
    }
    lanes.release("a", "silent");
    expect(take(lanes, 20), "a dead receiver is tried one at a time").toHaveLength(1);
  });

  it("does not start one more in a lane whose limit fell while its turn was coming", () => {
    const lanes = lanesWith();
    raise(lanes, "a", 6);
    fill(lanes, "a", 20);
    take(lanes, 8);
    // Silent from here, at a limit of 4 with 3 under way: ready for one.
    lanes.release("a", "silent");
    for (let n = 0; n < 4; n++) lanes.release("a", "unknown");
    expect(lanes.inFlight).toBe(3);
    // The limit is 2 now, and 2 are under way.
    lanes.release("a", "silent");
    expect(take(lanes, 20)).toEqual([]);
  });

  it("learns nothing from an attempt that was not made", () => {
    const lanes = lanesWith();
    fill(lanes, "a", 20);
    take(lanes, 20);
    lanes.release("a", "unknown");
    expect(take(lanes, 20)).toHaveLength(1);
  });
});

describe("silent lanes", () => {
  function withSilentLanes(count: number, limits: Partial<LaneLimits>): Lanes {
    const lanes = lanesWith(limits);
    for (let n = 0; n < count; n++) {
      fill(lanes, `dead${n}-`, 10);
      lanes.take(1);
      lanes.release(`dead${n}-`, "silent");
    }
    return lanes;
  }

  it("hold their share of the process and no more", () => {
    const lanes = withSilentLanes(20, { silentInFlightMax: 5 });
    while (lanes.take(200).length > 0);
    expect(lanes.inFlight).toBe(5);
    fill(lanes, "alive", 2);
    expect(take(lanes, 200)).toEqual(["alive0", "alive1"]);
  });

  it("get at most every second place of a batch", () => {
    const lanes = withSilentLanes(20, {});
    for (let n = 0; n < 20; n++) fill(lanes, `alive${n}-`, 1);
    const taken = take(lanes, 10);
    expect(taken.filter((id) => id.startsWith("dead"))).toHaveLength(5);
    expect(taken.filter((id) => id.startsWith("alive"))).toHaveLength(5);
  });

  it("leave places that they cannot fill to the others", () => {
    const lanes = withSilentLanes(1, {});
    for (let n = 0; n < 20; n++) fill(lanes, `alive${n}-`, 1);
    expect(take(lanes, 10).filter((id) => id.startsWith("alive"))).toHaveLength(9);
  });

  it("are among the others again after one answer", () => {
    const lanes = withSilentLanes(1, { silentInFlightMax: 0 });
    expect(take(lanes, 10)).toEqual([]);
    const recovering = withSilentLanes(1, { silentInFlightMax: 1 });
    expect(take(recovering, 10)).toHaveLength(1);
    recovering.release("dead0-", "answered");
    expect(take(recovering, 10)).toHaveLength(2);
    expect(take(recovering, 10)).toEqual([]);
  });

  it("take along what they have under way when they change sides", () => {
    const lanes = lanesWith({ silentInFlightMax: 2 });
    for (const lane of ["a", "b"]) {
      raise(lanes, lane, 6);
      fill(lanes, lane, 4);
    }
    expect(lanes.take(8)).toHaveLength(8);
    lanes.release("a", "silent");
    lanes.release("b", "silent");
    fill(lanes, "a", 10, 10);
    fill(lanes, "b", 10, 10);
    expect(take(lanes, 20), "six under way are silent ones now").toEqual([]);
    for (const lane of ["a", "a", "b", "b", "b"]) lanes.release(lane, "unknown");
    expect(take(lanes, 20)).toHaveLength(1);
  });
});

describe("what is remembered", () => {
  it("is every id once while it waits", () => {
    const lanes = lanesWith();
    expect(fill(lanes, "a", 1)).toEqual([true]);
    expect(fill(lanes, "a", 1)).toEqual([true]);
    expect(lanes.waitingIds).toBe(1);
    expect(take(lanes, 10)).toEqual(["a0"]);
    // Under way is another matter: the claim says that it is leased.
    expect(fill(lanes, "a", 1)).toEqual([true]);
    expect(take(lanes, 10)).toEqual(["a0"]);
  });

  it("is at most so many of a lane; the rest is let go", () => {
    const lanes = lanesWith({ laneIdsMin: 1, laneIdsMax: 5 });
    expect(fill(lanes, "a", 7)).toEqual([true, true, true, true, true, false, false]);
  });

  it("is at least so many of every lane, whatever the others do", () => {
    const lanes = lanesWith({ idsMax: 10, laneIdsMin: 2, laneIdsMax: 50 });
    expect(fill(lanes, "flood", 30).filter(Boolean)).toHaveLength(10);
    expect(fill(lanes, "b", 3)).toEqual([true, true, false]);
    lanes.take(1);
    expect(fill(lanes, "c", 3)).toEqual([true, true, false]);
  });

  it("is next to nothing of a lane whose receiver is silent, once all together remember too much", () => {
    const lanes = lanesWith({ idsMax: 10, laneIdsMin: 8, silentLaneIdsMin: 2, inFlightMax: 100 });
    for (const key of ["a", "b", "c"]) {
      fill(lanes, key, 8);
      lanes.take(2);
    }
    expect(lanes.waitingIds).toBe(18);
    lanes.release("a", "silent");
    expect(lanes.waitingIds, "its newest are let go").toBe(14);
    expect(fill(lanes, "a", 1, 100)).toEqual([false]);
    for (const key of ["b", "c"]) lanes.release(key, "silent");
    expect(lanes.waitingIds, "that is few enough").toBe(10);
    expect(fill(lanes, "d", 9).filter(Boolean), "others do not suffer for it").toHaveLength(8);
    for (let n = 0; n < 3; n++) lanes.release(["a", "b", "c"][n]!, "silent");
    expect(lanes.waitingIds).toBe(8 + 3 * 2);
    expect(
      take(lanes, 100)
        .filter((id) => !id.startsWith("d"))
        .sort(),
    ).toEqual(["a2", "b2", "c2"]);
  });

  it("counts as startable only what could start if the process had room", () => {
    const lanes = lanesWith({ inFlightMax: 2 });
    fill(lanes, "a", 10);
    expect(lanes.startableIds).toBe(10);
    lanes.take(2);
    expect(lanes.startableIds, "the lane is full").toBe(0);
    expect(lanes.waitingIds).toBe(8);
    expect(lanes.heldLanes).toBe(1);
    fill(lanes, "b", 3);
    expect(lanes.startableIds, "the process is full, the lane is not").toBe(3);
    lanes.release("a", "unknown");
    expect(lanes.startableIds).toBe(11);
    lanes.release("a", "silent");
    expect(lanes.startableIds, "silent lanes hold up no wake-up").toBe(3);
  });

  it("is given back all at once, and then nothing waits", () => {
    const lanes = lanesWith();
    fill(lanes, "a", 5);
    fill(lanes, "b", 1);
    take(lanes, 3);
    expect(lanes.clear().sort()).toEqual(["a2", "a3", "a4"]);
    expect([lanes.waitingIds, lanes.startableIds, lanes.inFlight]).toEqual([0, 0, 3]);
    expect(take(lanes, 10)).toEqual([]);
    lanes.release("a", "answered");
    fill(lanes, "a", 1, 9);
    expect(take(lanes, 10)).toEqual(["a9"]);
  });

  it("keeps the manners of idle lanes, the longest idle one being forgotten first", () => {
    const lanes = lanesWith({ idleLanesMax: 2 });
    raise(lanes, "a", 6);
    raise(lanes, "b", 6);
    fill(lanes, "a", 20);
    expect(take(lanes, 20)).toHaveLength(8);
    raise(lanes, "c", 6);
    raise(lanes, "d", 6);
    fill(lanes, "b", 20);
    expect(take(lanes, 20), "forgotten: it starts anew").toHaveLength(2);
    fill(lanes, "a", 20, 20);
    expect(lanes.inFlight, "a busy lane is never forgotten").toBe(10);
    for (let n = 0; n < 8; n++) lanes.release("a", "answered");
    expect(take(lanes, 8)).toHaveLength(8);
  });

  it("forgets an idle lane without looking through all that wait", () => {
    const lanes = lanesWith({ idleLanesMax: 1, inFlightMax: 1_000_000, silentInFlightMax: 0 });
    const tookMs = () => {
      const startedAt = performance.now();
      for (let n = 0; n < 2_000; n++) {
        lanes.add({ deliveryId: `${n}`, lane: `healthy ${n}` });
        expect(take(lanes, 1)).toEqual([`${n}`]);
        lanes.release(`healthy ${n}`, "answered");
      }
      return performance.now() - startedAt;
    };
    tookMs();
    const aloneMs = tookMs();
    for (let n = 0; n < 50_000; n++) {
      fill(lanes, `silent ${n}`, 2);
      take(lanes, 1);
      lanes.release(`silent ${n}`, "silent");
    }
    expect(lanes.silentLanes).toBe(50_000);
    expect(tookMs()).toBeLessThan(5 * aloneMs + patience(50));
  });
});
