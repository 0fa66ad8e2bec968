import { equal } from "node:assert/strict";
import fc from "fast-check";
import { describe, it } from "vitest";
import { type LaneLimits, Lanes } from "../../src/dispatch/lanes.ts";

/** Small limits, so that short histories reach all of them. */
const LIMITS: LaneLimits = {
  inFlightMax: 12,
  silentInFlightMax: 6,
  laneInFlightMax: 8,
  laneIdsMin: 4,
  silentLaneIdsMin: 2,
  laneIdsMax: 12,
  idsMax: 16,
  idleLanesMax: 1_000,
};
const KEYS = ["a", "b", "c"];

type Answer = "answered" | "silent" | "unknown";
type Step =
  | { readonly kind: "add"; readonly lane: string; readonly id: number }
  | { readonly kind: "take"; readonly max: number }
  | { readonly kind: "release"; readonly nth: number; readonly answer: Answer };

/** Ids come faster than they go and receivers answer more often than not, or no lane would ever have much under way. */
const steps = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant("add" as const),
        lane: fc.constantFrom(...KEYS),
        id: fc.nat(25),
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ kind: fc.constant("take" as const), max: fc.integer({ min: 1, max: 8 }) }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant("release" as const),
        nth: fc.nat(20),
        answer: fc.constantFrom<Answer>("answered", "answered", "answered", "silent", "unknown"),
      }),
    },
  ),
  { minLength: 60, maxLength: 250 },
);

type ModelLane = { ids: string[]; inFlight: number; limit: number; isSilent: boolean };

/** The same rules without rings and counters: everything is counted anew each time. */
class Model {
  readonly lanes = new Map(KEYS.map((key) => [key, newLane()]));
  readonly underWay: string[] = [];

  sum(count: (lane: ModelLane) => number): number {
    return [...this.lanes.values()].reduce((sum, lane) => sum + count(lane), 0);
  }

  add(key: string, id: string): boolean {
    const { ids, isSilent } = this.lanes.get(key)!;
    if (ids.includes(id)) return true;
    const min = isSilent ? LIMITS.silentLaneIdsMin : LIMITS.laneIdsMin;
    if (ids.length >= min && (ids.length >= LIMITS.laneIdsMax || this.#waiting() >= LIMITS.idsMax))
      return false;
    ids.push(id);
    return true;
  }

  #waiting(): number {
    return this.sum((lane) => lane.ids.length);
  }

  /** Judges what was taken rather than saying which: turns are checked by their fairness. */
  accept(taken: readonly { deliveryId: string; lane: string }[], max: number): void {
    const room = Math.min(max, LIMITS.inFlightMax - this.underWay.length);
    const couldStart = this.#countStartable(room);
    const perLane = new Map<string, number>();
    for (const { deliveryId, lane: key } of taken) {
      const lane = this.lanes.get(key)!;
      equal(deliveryId, lane.ids.shift(), "first in, first out");
      lane.inFlight++;
      this.underWay.push(key);
      perLane.set(key, (perLane.get(key) ?? 0) + 1);
      equal(lane.inFlight <= lane.limit, true, "the lane's limit");
    }
    equal(taken.length, couldStart, "neither idle nor over the top");
    for (const [key, lane] of this.lanes) {
      if (lane.ids.length === 0 || lane.inFlight >= lane.limit) continue;
      for (const [other, count] of perLane) {
        if (this.lanes.get(other)!.isSilent !== lane.isSilent) continue;
        equal(count <= (perLane.get(key) ?? 0) + 1, true, "turns");
      }
    }
  }

  #countStartable(room: number): number {
    const startable = (lane: ModelLane) => Math.min(lane.ids.length, Math.max(0, lane.limit - lane.inFlight));
    const silentInFlight = this.sum((lane) => (lane.isSilent ? lane.inFlight : 0));
    const silentRoom = Math.max(0, Math.min(LIMITS.silentInFlightMax - silentInFlight, Math.ceil(room / 2)));
    const silent = Math.min(
      silentRoom,
      this.sum((lane) => (lane.isSilent ? startable(lane) : 0)),
    );
    return (
      silent +
      Math.min(
        room - silent,
        this.sum((lane) => (lane.isSilent ? 0 : startable(lane))),
      )
    );
  }

  release(nth: number, answer: Answer): string | undefined {
    const key = this.underWay.splice(nth % this.underWay.length, 1)[0];
    if (key === undefined) return undefined;
    const lane = this.lanes.get(key)!;
    lane.inFlight--;
    if (answer === "silent") {
      lane.isSilent = true;
      lane.limit = Math.max(1, Math.floor(lane.limit / 2));
    }
    if (answer === "answered") {
      lane.isSilent = false;
      lane.limit = Math.min(LIMITS.laneInFlightMax, lane.limit + 1);
    }
    if (lane.isSilent && this.#waiting() > LIMITS.idsMax) lane.ids.splice(LIMITS.silentLaneIdsMin);
    return key;
  }
}

function newLane(): ModelLane {
  return { ids: [], inFlight: 0, limit: 2, isSilent: false };
}

describe("lanes beside a simple model", () => {
  it("agree whatever happens", () => {
    fc.assert(
      fc.property(steps, (history) => {
        const lanes = new Lanes(LIMITS);
        const model = new Model();
        for (const step of history) play(step, lanes, model);
      }),
      { numRuns: 2_000 },
    );
  });
});

function play(step: Step, lanes: Lanes, model: Model): void {
  if (step.kind === "add") {
    const id = `${step.lane}${step.id}`;
    equal(lanes.add({ deliveryId: id, lane: step.lane }), model.add(step.lane, id), "let go");
  } else if (step.kind === "take") {
    model.accept(lanes.take(step.max), step.max);
  } else {
    const key = model.release(step.nth, step.answer);
    if (key !== undefined) lanes.release(key, step.answer);
  }
  const isHeld = (lane: ModelLane) => lane.inFlight >= lane.limit;
  equal(lanes.inFlight, model.underWay.length, "under way");
  equal(
    lanes.waitingIds,
    model.sum((lane) => lane.ids.length),
    "waiting",
  );
  equal(
    lanes.startableIds,
    model.sum((lane) => (lane.isSilent || isHeld(lane) ? 0 : lane.ids.length)),
    "startable",
  );
  equal(
    lanes.heldLanes,
    model.sum((lane) => (lane.ids.length > 0 && isHeld(lane) ? 1 : 0)),
    "held",
  );
}
