import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createEgress } from "../../src/app/egress.ts";
import { claimDeliveries } from "../../src/delivery/claim-sql.ts";
import { createDelivering } from "../../src/delivery/deliver.ts";
import { Dispatcher, type DispatcherOptions } from "../../src/delivery/dispatcher.ts";
import { LANE_LIMITS, type WaitingDelivery } from "../../src/delivery/lane.ts";
import { freeLeases, promoteDue, takeBackOverflow, wakeSoon } from "../../src/delivery/promote-sql.ts";
import { receiverTurns } from "../../src/delivery/receiver-turns.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { deliveryRow, openRow, publishAt } from "../support/delivery-rows.ts";
import { testConfig } from "../support/dispatching.ts";
import {
  createTestAccount,
  forgetOpen,
  makeSuspect,
  SECRETS_KEY,
  spoilSecrets,
} from "../support/installation.ts";
import { openForDispatch } from "../support/open.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { patientSignal } from "../support/time-limits.ts";

/** Stays shut until it is opened, or the test ends. */
function gate() {
  const { promise, resolve } = Promise.withResolvers<void>();
  gates.push(resolve);
  return { open: resolve, opened: promise };
}

type Claiming = DispatcherOptions["claim"];
type Writing = DispatcherOptions["write"];

const { database, pool } = await openForDispatch();
let receiver: Receiver;
let published = 0;
const stops: (() => Promise<void>)[] = [];
const gates: (() => void)[] = [];

beforeEach(async () => {
  receiver = await startReceiver();
});
afterEach(async () => {
  for (const open of gates.splice(0)) open();
  for (const stop of stops.splice(0)) await stop();
  await receiver.close();
});

/** The way from a wake-up to the database and back, with a hand on the two statements between. */
function startDispatcher(
  hands: { claim?: (really: Claiming) => Claiming; write?: (really: Writing) => Writing },
  limits: { inFlightMax?: number; laneInFlightMax?: number; laneIdsMax?: number } = {},
) {
  const told = new EventTarget();
  const recorded: string[] = [];
  const quarantined: string[] = [];
  const failures: { work: string; error: unknown }[] = [];
  const config = testConfig([receiver], { ATTEMPT_DEADLINE_MS: "15000" });
  const delivering = createDelivering({
    config,
    egress: createEgress(config, config.attemptDeadlineMs),
    secretsKey: SECRETS_KEY,
    random: Math.random,
    turns: receiverTurns(pool, pool),
  });
  const claim: Claiming = (input) => claimDeliveries(pool, { ...input, at: null });
  const write: Writing = (recordings) => recordOutcomes(pool, recordings);
  const tell = () => told.dispatchEvent(new Event("told"));
  const dispatcher = new Dispatcher({
    delivering,
    lanes: {
      ...LANE_LIMITS,
      inFlightMax: limits.inFlightMax ?? 200,
      silentInFlightMax: 50,
      laneInFlightMax: limits.laneInFlightMax ?? 16,
      laneIdsMax: limits.laneIdsMax ?? LANE_LIMITS.laneIdsMax,
    },
    upkeep: {
      findAnswered: async () => [],
      rememberAnswered: async () => undefined,
      findEndedRests: async () => [],
      takeBack: (overflows) => takeBackOverflow(pool, overflows),
    },
    claim: hands.claim?.(claim) ?? claim,
    write: hands.write?.(write) ?? write,
    giveBack: (deliveryIds) => wakeSoon(pool, deliveryIds),
    freeLeases: (deliveryIds, leaseToken) => freeLeases(pool, deliveryIds, leaseToken),
    observer: {
      attemptRecorded: (delivery, _delivered, outcome) => {
        recorded.push(`${delivery.deliveryId} ${outcome}`);
        tell();
      },
      mustBeQuarantined: (id) => {
        quarantined.push(id);
        tell();
      },
      overflowed: () => undefined,
      failed: (work, error) => {
        failures.push({ work, error });
        tell();
      },
    },
  });
  stops.push(() => dispatcher.stop().then(() => delivering.poster.close()));
  const until = async (isSo: () => boolean, timeoutMs = 15_000) => {
    const signal = patientSignal(timeoutMs);
    while (!isSo()) await once(told, "told", { signal });
  };
  return { dispatcher, recorded, quarantined, failures, until };
}

/** `perLane` small analyses for each of `lanes` accounts, as their wake-ups would name them. */
async function publishIn(lanes: number, perLane: number, text?: (id: string) => string) {
  const waiting: WaitingDelivery[] = [];
  for (let n = 0; n < lanes; n++) {
    const { accountId } = await createTestAccount(database, receiver.url("/").href);
    for (let from = 0; from < perLane; from += 500) {
      const names = Array.from({ length: Math.min(500, perLane - from) }, () => `d-${published++}`);
      const ids = await publishAt(pool, accountId, new Date(), names.map(text ?? ((name) => name)));
      const { rows } = await pool.query<{ lane: string }>("select sealpost.lane($1, null) as lane", [
        accountId,
      ]);
      const { lane } = rows[0]!;
      waiting.push(...ids.map((deliveryId) => ({ deliveryId, accountId, lane })));
    }
  }
  // Published a moment from now, as far as the database's microseconds go.
  await database.pool.query("update sealpost.open_deliveries set due_at = due_at - interval '1 second'");
  return waiting;
}

/** Wakes a dispatcher that knows of all these receivers that they answer. */
function wake(dispatcher: Dispatcher, waiting: readonly WaitingDelivery[]): void {
  for (const one of waiting) {
    dispatcher.wake([one]);
    dispatcher.lanes.setAnsweredBefore({ ...one, isSuspended: false });
  }
}

const statusOf = async (id: string) => (await deliveryRow(pool, id)).status;

describe("claiming", () => {
  it("takes what one turn of the event loop makes startable in one statement", async () => {
    const batches: number[] = [];
    const { dispatcher, recorded, until } = startDispatcher({
      claim: (really) => (input) => {
        batches.push(input.deliveryIds.length);
        return really(input);
      },
    });
    const waiting = await publishIn(5, 2);
    for (const one of waiting) wake(dispatcher, [one]);
    await until(() => recorded.length === 10);
    expect(batches).toEqual([10]);
    expect(receiver.requests).toHaveLength(10);
  });

  it("asks again, with the same token, for what a lost answer may have leased", async () => {
    const tokens = new Set<string>();
    let asked = 0;
    const { dispatcher, recorded, failures, until } = startDispatcher({
      claim: (really) => async (input) => {
        tokens.add(input.leaseToken);
        const claim = await really(input);
        if (++asked <= 2) throw new Error("Connection terminated unexpectedly");
        return claim;
      },
    });
    const waiting = await publishIn(1, 2);
    wake(dispatcher, waiting);
    await until(() => recorded.length === 2);
    expect(failures.map(({ work }) => work)).toEqual(["claim", "claim"]);
    expect(tokens.size).toBe(1);
    for (const { deliveryId } of waiting) {
      expect(await deliveryRow(pool, deliveryId)).toMatchObject({ status: "succeeded", attempts_count: 1 });
    }
  });

  it("posts once what waits in two lanes", async () => {
    const { dispatcher, recorded, until } = startDispatcher({});
    const waiting = await publishIn(2, 1);
    const [one] = waiting;
    wake(dispatcher, [...waiting, { ...one!, lane: "-2" }]);
    await until(() => recorded.length === 2);
    expect(receiver.requests).toHaveLength(2);
    expect(await deliveryRow(pool, one!.deliveryId)).toMatchObject({
      status: "succeeded",
      attempts_count: 1,
    });
    expect(dispatcher.lanes.inFlight).toBe(0);
  });

  it("is not held up for ever by one row that the database refuses", async () => {
    const waiting = await publishIn(4, 2);
    const [bad] = waiting;
    const { dispatcher, recorded, until } = startDispatcher({
      claim: (really) => async (input) => {
        if (input.deliveryIds.includes(bad!.deliveryId)) await pool.query("select 1/0");
        return await really(input);
      },
    });
    wake(dispatcher, waiting);
    await until(() => recorded.length === 7);
    expect(await statusOf(bad!.deliveryId)).toBe("pending");
    expect(dispatcher.lanes.inFlight).toBe(0);
  });

  it("hands on what belongs into quarantine, and does not post it", async () => {
    const waiting = await publishIn(1, 1);
    const id = waiting[0]!.deliveryId;
    await makeSuspect(database.pool, [id]);
    const { dispatcher, quarantined, until } = startDispatcher({});
    wake(dispatcher, waiting);
    await until(() => quarantined.length === 1);
    expect(quarantined).toEqual([id]);
    expect(receiver.requests).toEqual([]);
    expect(dispatcher.lanes.inFlight).toBe(0);
  });

  it("posts nothing of a claim that was answered too late, and gives the lease back unused", async () => {
    const { dispatcher, recorded, until } = startDispatcher({
      claim: (really) => async (input) => {
        const claim = await really(input);
        await new Promise((resolve) => setTimeout(resolve, 3_010));
        return claim;
      },
    });
    const waiting = await publishIn(1, 1);
    wake(dispatcher, waiting);
    await until(() => recorded.length === 1);
    expect(receiver.requests).toEqual([]);
    const open = await openRow(pool, waiting[0]!.deliveryId);
    expect(open).toMatchObject({ lease_token: null, attempts_in_run: 0 });
    expect(open!.due_at.getTime()).toBeLessThanOrEqual(Date.now() + 1_000);
  });

  it("keeps the bytes of all that is under way or unrecorded within bounds", async () => {
    const MIB = 1024 * 1024;
    const held = gate();
    const leased: number[] = [];
    const { dispatcher, recorded, until } = startDispatcher({
      claim: (really) => async (input) => {
        const claim = await really(input);
        leased.push(claim.deliveries.filter((one) => one.kind === "leased").length);
        return claim;
      },
      write: (really) => async (recordings) => {
        await held.opened;
        return await really(recordings);
      },
    });
    const big = (id: string) => `{"id":"${id}","status":"succeeded","x":"${"x".repeat(MIB - 60)}"}`;
    const waiting = await publishIn(40, 2, big);
    wake(dispatcher, waiting);
    const sum = () => leased.reduce((total, n) => total + n, 0);
    await receiver.waitForRequests(65, 20_000);
    await expect.poll(() => dispatcher.lanes.inFlight).toBe(0);
    expect(Math.max(...leased)).toBeLessThanOrEqual(8);
    // What is left of the 64 MiB still lets one more in, however big it is.
    expect(sum()).toBe(65);
    held.open();
    await until(() => recorded.length === 80, 20_000);
  });
});

describe("recording", () => {
  it("holds claiming up while too much is unrecorded, and lets it go on afterwards", async () => {
    const held = gate();
    const { dispatcher, recorded, until } = startDispatcher(
      {
        write: (really) => async (recordings) => {
          await held.opened;
          return await really(recordings);
        },
      },
      { laneInFlightMax: 100 },
    );
    const waiting = await publishIn(4, 700);
    wake(dispatcher, waiting);
    await expect.poll(() => dispatcher.recorder.backlog).toBeGreaterThanOrEqual(2_000);
    await expect.poll(() => dispatcher.lanes.inFlight).toBe(0);
    expect(dispatcher.recorder.backlog).toBeLessThan(2_400);
    held.open();
    await until(() => recorded.length === 2_800, 25_000);
  });

  it("gives the lease back after an internal error, without charging the receiver", async () => {
    const waiting = await publishIn(1, 1);
    const id = waiting[0]!.deliveryId;
    await spoilSecrets(database.pool);
    const { dispatcher, recorded, failures, until } = startDispatcher({});
    const wokenAt = Date.now();
    wake(dispatcher, waiting);
    await until(() => recorded.length === 1);
    expect(failures.map(({ work }) => work)).toEqual(["deliver"]);
    expect(receiver.requests).toEqual([]);
    expect(await deliveryRow(pool, id)).toMatchObject({ status: "pending", attempts_count: 0 });
    const open = await openRow(pool, id);
    expect(open).toMatchObject({ lease_token: null, attempts_in_run: 0 });
    expect(open!.due_at.getTime(), "not at once again").toBeGreaterThan(wokenAt + 5_000);
  });
});

describe("what is too much to remember", () => {
  it("of one account keeps no other's waiting, and is taken back when its lane has room", async () => {
    const { dispatcher, recorded, until } = startDispatcher({}, { inFlightMax: 40, laneIdsMax: 20 });
    const flood = await publishIn(1, 200);
    const other = await publishIn(1, 3);
    wake(dispatcher, flood);
    wake(dispatcher, other);
    expect(dispatcher.lanes.waitingIds, "twenty, and the three").toBe(23);
    await until(() => recorded.length === 203);
    const last = Math.max(...other.map(({ deliveryId }) => recorded.indexOf(`${deliveryId} recorded`)));
    expect(last).toBeLessThan(50);
  });
});

describe("stopping", () => {
  it("frees what a claim has leased whose answer was lost", async () => {
    const waiting = await publishIn(2, 1);
    const answering = gate();
    const { dispatcher } = startDispatcher({
      claim: (really) => async (input) => {
        await really(input);
        await answering.opened;
        throw new Error("Connection terminated unexpectedly");
      },
    });
    wake(dispatcher, waiting);
    const isLeased = async () => (await openRow(pool, waiting[0]!.deliveryId))?.lease_token !== null;
    await expect.poll(isLeased).toBe(true);
    const stopped = dispatcher.stop();
    answering.open();
    await stopped;
    for (const { deliveryId } of waiting) {
      expect(await openRow(pool, deliveryId)).toMatchObject({ lease_token: null, interruptions: 0 });
    }
    expect(receiver.requests).toEqual([]);
  });

  it("finishes and records what is under way, and claims nothing more", async () => {
    const answer = gate();
    await receiver.close();
    receiver = await startReceiver({
      handler: async () => {
        await answer.opened;
        return {};
      },
    });
    const { dispatcher, recorded } = startDispatcher({}, { inFlightMax: 3 });
    const waiting = await publishIn(6, 1);
    wake(dispatcher, waiting);
    await receiver.waitForRequests(3);
    const stopped = dispatcher.stop();
    answer.open();
    await stopped;
    expect(recorded).toHaveLength(3);
    expect(receiver.requests).toHaveLength(3);
    const statuses = await Promise.all(waiting.map(({ deliveryId }) => statusOf(deliveryId)));
    expect(statuses.filter((status) => status === "succeeded")).toHaveLength(3);
    expect(statuses.filter((status) => status === "pending")).toHaveLength(3);
  });

  it("lets others be woken at once for what waited here", async () => {
    await forgetOpen(database.pool);
    const { dispatcher } = startDispatcher({ claim: () => () => Promise.reject(new Error("no connection")) });
    const waiting = await publishIn(2, 3);
    wake(dispatcher, waiting);
    await dispatcher.stop();
    await dispatcher.giveBackWaiting();
    expect(dispatcher.lanes.waitingIds).toBe(0);
    expect(await promoteDue(pool, null)).toMatchObject({ woken: 6 });
  });

  it("lets others be woken for an account's few, however many others have waiting here", async () => {
    await forgetOpen(database.pool);
    const { dispatcher } = startDispatcher({ claim: () => () => Promise.reject(new Error("no connection")) });
    // As many as a new account's receivers may have; not all of those that are being claimed stay.
    for (const accountId of [randomUUID(), randomUUID()]) {
      const lanes = Array.from({ length: 10_000 }, (_, n) => `${n % 1_000}`);
      wake(
        dispatcher,
        lanes.map((lane) => ({ deliveryId: randomUUID(), accountId, lane })),
      );
    }
    wake(dispatcher, await publishIn(1, 3));
    await dispatcher.stop();
    await dispatcher.giveBackWaiting();
    expect(await promoteDue(pool, null)).toMatchObject({ woken: 3 });
  });
});
