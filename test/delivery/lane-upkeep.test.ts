import { once } from "node:events";
import { afterEach, describe, expect, it } from "vitest";
import { LANE_LIMITS, type LaneKey } from "../../src/delivery/lane.ts";
import { LaneUpkeep, type LaneUpkeepOptions } from "../../src/delivery/lane-upkeep.ts";
import { Lanes } from "../../src/delivery/lanes.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import { begin, countRows, createTestAccount, publish, untilSomebodyWaits } from "../support/installation.ts";
import { startReceiver } from "../support/receiver.ts";
import { patientSignal } from "../support/time-limits.ts";

const refused = new Error("the database is away");
const keys = (lanes: readonly LaneKey[]) => lanes.map(({ lane }) => lane).sort();
let stop: () => Promise<void> = async () => undefined;

afterEach(() => stop());

/** Lanes whose database is `does`, and what it was asked for, in order. */
function startUpkeep(does: Partial<LaneUpkeepOptions>) {
  const lanes = new Lanes({
    ...LANE_LIMITS,
    inFlightMax: 100,
    silentInFlightMax: 100,
    laneInFlightMax: 10,
    laneIdsMax: 2,
  });
  const told = new EventTarget();
  const upkeep = new LaneUpkeep(lanes, {
    findAnswered: async () => [],
    rememberAnswered: async () => undefined,
    findEndedRests: async () => [],
    takeBack: async (overflows) => overflows.map(() => ({ deliveryIds: [], nextFromId: null })),
    onChanged: () => undefined,
    onError: () => undefined,
    random: () => 0,
    ...does,
  });
  stop = () => upkeep.stop();
  const add = (lane: string, deliveryId: string) => lanes.add({ accountId: "a", lane, deliveryId });
  const answer = (lane: string) => {
    add(lane, `of ${lane}`);
    for (const taken of lanes.take(10)) lanes.release(taken, { kind: "answered", firstByteMs: null });
  };
  const tell = () => told.dispatchEvent(new Event("told"));
  const until = async (isSo: () => boolean) => {
    const signal = patientSignal(15_000);
    while (!isSo()) await once(told, "told", { signal });
  };
  return { lanes, upkeep, add, answer, tell, until };
}

describe("what lanes need of the database", () => {
  it("is asked for again while a receiver has not answered here: it may have elsewhere", async () => {
    const asked: string[][] = [];
    const { lanes, upkeep, add, tell, until } = startUpkeep({
      findAnswered: async (wanted) => {
        asked.push(keys(wanted));
        if (asked.length === 1) throw refused;
        const found = asked.length === 2 ? [] : wanted.filter(({ lane }) => lane === "1");
        return found.map((one) => ({ ...one, isSuspended: false }));
      },
      onChanged: () => tell(),
    });
    add("1", "id-1");
    add("1", "id-2");
    add("2", "id-3");
    expect(lanes.silentLanes).toBe(2);
    upkeep.look();
    await until(() => lanes.silentLanes === 1);
    expect(asked).toEqual([
      ["1", "2"],
      ["1", "2"],
      ["1", "2"],
    ]);
    lanes.askAgain(10);
    expect(keys(lanes.drainCreated(10)), "only the other one is still unknown").toEqual(["2"]);
  });

  it("is asked for again where nobody could say, though its receiver has answered meanwhile", async () => {
    const asked: string[][] = [];
    const { lanes, upkeep, add, answer, tell, until } = startUpkeep({
      findAnswered: async (wanted) => {
        asked.push(keys(wanted));
        if (asked.length === 1) answer("1");
        tell();
        if (asked.length === 1) throw refused;
        return [];
      },
    });
    add("1", "id-1");
    upkeep.look();
    await until(() => asked.length === 2);
    expect(asked).toEqual([["1"], ["1"]]);
    expect(lanes.silentLanes).toBe(0);
  });

  it("is remembered later when it could not be at once", async () => {
    const asked: string[][] = [];
    const { upkeep, answer, tell, until } = startUpkeep({
      rememberAnswered: async (lanes) => {
        asked.push(keys(lanes));
        if (asked.length === 1) answer("3");
        tell();
        if (asked.length === 1) throw refused;
      },
    });
    answer("1");
    answer("2");
    upkeep.look();
    await until(() => asked.length === 3);
    expect(asked).toEqual([["1", "2"], ["1", "2"], ["3"]]);
  });

  it("is tried again at its own pace, whatever else fails", async () => {
    const asked: string[] = [];
    const { lanes, upkeep, add, tell, until } = startUpkeep({
      findAnswered: async (created) => {
        asked.push("find");
        add(`new ${asked.length}`, "1");
        if (asked.length === 4) {
          // A lane that has let one go, and has room for it. This failure counts before the other's first.
          lanes.setAnsweredBefore({ ...created[0]!, isSuspended: false });
          for (const id of ["2", "3"]) add(created[0]!.lane, id);
          lanes.take(10);
          setImmediate(() => upkeep.look());
        }
        tell();
        throw refused;
      },
      takeBack: async () => {
        asked.push("take back");
        tell();
        throw refused;
      },
    });
    add("new 0", "1");
    upkeep.look();
    await until(() => asked.length >= 6);
    const sinceThen = asked.slice(3, 6);
    expect(sinceThen, "the first pause of one is shorter than the fourth of the other").toEqual([
      "find",
      "take back",
      "take back",
    ]);
  });

  it("waits for none of what may take long", async () => {
    const database = await createTestDatabase();
    const receiver = await startReceiver();
    const dispatcher = startTestDispatcher(database, [receiver]);
    try {
      const { accountId } = await createTestAccount(database, receiver.url("/").href);
      // Reads go on; who writes waits, and so is seen.
      const reading = await begin(database.pool, "lock table sealpost.answered_lanes in share mode");
      await publish(database.pool, accountId, '{"id":"a-1","status":"succeeded"}');
      await dispatcher.waitForAttempts(1);
      await untilSomebodyWaits(database.pool);
      const { rows } = await database.pool.query(
        `select distinct application_name from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock' and query like '%answered_lanes%'`,
      );
      expect(rows).toEqual([{ application_name: "sealpost general" }]);
      await reading.commit();
      await expect.poll(() => countRows(database.pool, "answered_lanes")).toBe(1);
    } finally {
      await dispatcher.stop();
      await receiver.close();
      await database.drop();
    }
  });
});
