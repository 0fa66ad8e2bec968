import { equal, ok } from "node:assert/strict";
import fc from "fast-check";
import { describe, it } from "vitest";
import {
  type LaneAnswer,
  type LaneLimits,
  LaneState,
  learn,
  setAnsweredBefore,
  type TakenDelivery,
} from "../../src/delivery/lane.ts";
import { Lanes } from "../../src/delivery/lanes.ts";

/** Small limits, so that short histories reach all of them. */
const LIMITS: LaneLimits = {
  inFlightMax: 16,
  silentInFlightMax: 6,
  accountSilentMin: 2,
  laneInFlightMax: 8,
  idsMax: 24,
  laneIdsMax: 12,
  silentLaneIdsMax: 3,
  accountSilentIdsMax: 5,
  accountIdsMin: 4,
  idleLanesMax: 1_000,
};
const RESERVED = 2;
const ACCOUNTS = ["a", "b", "c"];
const NAMES = ["1", "2", "3"];

type Step =
  | { readonly kind: "add"; readonly account: string; readonly lane: string; readonly id: number }
  | { readonly kind: "take"; readonly max: number }
  | { readonly kind: "release"; readonly nth: number; readonly answer: LaneAnswer }
  | { readonly kind: "answered before" | "asked about"; readonly account: string; readonly lane: string }
  | { readonly kind: "refill"; readonly count: number };

const account = fc.constantFrom(...ACCOUNTS);
const lane = fc.constantFrom(...NAMES);
const answer = fc.oneof(
  { weight: 5, arbitrary: fc.constant<LaneAnswer>({ kind: "answered", firstByteMs: null }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom<LaneAnswer>({ kind: "silent" }, { kind: "overloaded" }, { kind: "unknown" }),
  },
);

/** Ids come faster than they go and receivers answer more often than not, or no lane would ever have much in flight. */
const steps = fc.array(
  fc.oneof<{ weight: number; arbitrary: fc.Arbitrary<Step> }[]>(
    {
      weight: 8,
      arbitrary: fc.record({ kind: fc.constant("add" as const), account, lane, id: fc.nat(40) }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant("take" as const), max: fc.integer({ min: 1, max: 12 }) }),
    },
    { weight: 5, arbitrary: fc.record({ kind: fc.constant("release" as const), nth: fc.nat(20), answer }) },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constantFrom("answered before" as const, "asked about" as const),
        account,
        lane,
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("refill" as const), count: fc.nat(5) }) },
  ),
  { minLength: 60, maxLength: 250 },
);

type ModelLane = LaneState & { ids: string[]; inFlight: number; letGo: Set<string>; isUnknown: boolean };

const holds = (lane: ModelLane) => lane.ids.length + lane.inFlight;

/** What lanes promise, counted anew at every step: no rings, no running sums. */
class Model {
  readonly lanes = new Map<string, ModelLane>();
  readonly inFlight: TakenDelivery[] = [];

  of(account: string, key: string): ModelLane {
    const name = `${account}/${key}`;
    let lane = this.lanes.get(name);
    if (lane === undefined) {
      lane = { ...new LaneState(), ids: [], inFlight: 0, letGo: new Set(), isUnknown: true };
      this.lanes.set(name, lane);
    }
    return lane;
  }

  /** A lane that never answered is forgotten with its last delivery, but not before it is known what it let go of. */
  forgetUnused(): void {
    for (const [name, lane] of this.lanes)
      if (!lane.hasAnswered && holds(lane) === 0 && !(lane.isUnknown && lane.letGo.size > 0))
        this.lanes.delete(name);
  }

  sum(count: (lane: ModelLane) => number, account = ""): number {
    return [...this.lanes]
      .filter(([name]) => name.startsWith(account))
      .reduce((sum, [, one]) => sum + count(one), 0);
  }

  accountInFlight(account: string): number {
    return this.inFlight.filter((one) => one.accountId === account).length;
  }

  accept(taken: readonly TakenDelivery[], max: number): void {
    const room = Math.min(max, LIMITS.inFlightMax - this.inFlight.length);
    ok(taken.length <= room, "the process's places");
    for (const one of taken) {
      const lane = this.of(one.accountId, one.lane);
      equal(one.deliveryId, lane.ids.shift(), "first in, first out");
      lane.inFlight++;
      this.inFlight.push(one);
      ok(lane.inFlight <= lane.limit, "the lane's limit");
    }
    if (taken.some((one) => this.of(one.accountId, one.lane).isSilent))
      ok(this.sum((one) => (one.isSilent ? one.inFlight : 0)) <= LIMITS.silentInFlightMax, "silent places");
    if (taken.length < room) this.#nobodyCould();
  }

  /** Places were left: no account that may have one has anything to start. */
  #nobodyCould(): void {
    const free = LIMITS.inFlightMax - this.inFlight.length;
    for (const account of ACCOUNTS) {
      const held = this.accountInFlight(account);
      if (free <= RESERVED && held > 0) continue;
      const startable = this.sum(
        (one) => (!one.isSilent && one.ids.length > 0 && one.inFlight < one.limit ? 1 : 0),
        `${account}/`,
      );
      equal(startable, 0, `idle places beside what ${account} could start`);
    }
  }
}

describe("lanes beside a simple model", () => {
  it("agree whatever happens", () => {
    fc.assert(
      fc.property(steps, (history) => {
        const lanes = new Lanes(LIMITS);
        const model = new Model();
        for (const step of history) {
          play(step, lanes, model);
          equal(lanes.inFlight, model.inFlight.length, "in flight");
          equal(
            lanes.waitingIds,
            model.sum((one) => one.ids.length),
            "waiting",
          );
          const active = ACCOUNTS.filter(
            (account) =>
              model.accountInFlight(account) + model.sum((one) => one.ids.length, `${account}/`) > 0,
          );
          equal(lanes.activeAccounts, active.length, "active");
        }
        for (const id of lanes.clear()) ok([...model.lanes.values()].some(({ ids }) => ids.includes(id)));
        equal(lanes.waitingIds, 0);
      }),
      { numRuns: 1_000 },
    );
  });
});

function play(step: Step, lanes: Lanes, model: Model): void {
  switch (step.kind) {
    case "add": {
      const { account: accountId, lane: key } = step;
      const deliveryId = `${accountId}/${key}/${String(step.id).padStart(3, "0")}`;
      const waiting = { deliveryId, accountId, lane: key };
      const lane = model.of(accountId, key);
      const silent = model.sum((one) => (one.isSilent ? holds(one) : 0), `${accountId}/`);
      const isKept = lanes.add(waiting);
      if (lane.isSilent && holds(lane) === 0 && silent < 2 * LIMITS.accountSilentIdsMax)
        ok(isKept || lanes.waitingIds >= LIMITS.idsMax, "room for its first");
      if (lane.ids.includes(deliveryId)) ok(isKept);
      else if (isKept) lane.ids.push(deliveryId);
      else lane.letGo.add(deliveryId);
      ok(
        lane.ids.length <= (lane.isSilent ? LIMITS.silentLaneIdsMax : LIMITS.laneIdsMax),
        "the lane's memory",
      );
      model.forgetUnused();
      return;
    }
    case "take":
      model.accept(lanes.take(step.max), step.max);
      return;
    case "release": {
      const [taken] = model.inFlight.splice(step.nth % Math.max(model.inFlight.length, 1), 1);
      if (taken === undefined) return;
      lanes.release(taken, step.answer);
      const lane = model.of(taken.accountId, taken.lane);
      lane.inFlight--;
      const wasSilent = lane.isSilent;
      learn(lane, step.answer, taken.epoch, LIMITS.laneInFlightMax);
      if (lane.isSilent && !wasSilent)
        for (const id of lane.ids.splice(LIMITS.silentLaneIdsMax)) lane.letGo.add(id);
      model.forgetUnused();
      return;
    }
    case "answered before": {
      const lane = model.lanes.get(`${step.account}/${step.lane}`);
      lanes.setAnsweredBefore({ accountId: step.account, lane: step.lane, isSuspended: false });
      if (lane !== undefined) setAnsweredBefore(lane, false);
      return;
    }
    case "asked about": {
      lanes.settle([{ accountId: step.account, lane: step.lane }]);
      const lane = model.lanes.get(`${step.account}/${step.lane}`);
      if (lane !== undefined) lane.isUnknown = false;
      model.forgetUnused();
      return;
    }
    case "refill":
      for (const { accountId, lane: key, fromId } of lanes.drainOverflow(10)) {
        const lane = model.of(accountId, key);
        ok(!lane.isSilent || lane.hasAnswered);
        const due = [...lane.letGo].sort().filter((id) => id >= fromId);
        equal(fromId, [...lane.letGo].sort()[0] ?? fromId, "from the oldest that was let go");
        const got = due.slice(0, step.count);
        const before = lanes.waitingIds;
        lanes.refill({ accountId, lane: key }, got, due[step.count] ?? null);
        const added = lanes.waitingIds - before;
        // In order, until there is no more room; what was there already is no more than that.
        const fresh = got.filter((id) => !lane.ids.includes(id));
        for (const id of fresh.slice(0, added)) {
          lane.ids.push(id);
          lane.letGo.delete(id);
        }
        for (const id of got) if (lane.ids.includes(id)) lane.letGo.delete(id);
      }
  }
}
