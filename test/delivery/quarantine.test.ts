import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { deliverInQuarantine } from "../../src/app/dispatch-process.ts";
import { createEgress } from "../../src/app/egress.ts";
import { tryToLockTable } from "../../src/base/database/table-lock.ts";
import { createQuarantine, type QuarantineRun } from "../../src/delivery/quarantine.ts";
import { attemptRows, claim, deliveryRow, openDispatchPool, openRow } from "../support/delivery-rows.ts";
import { testConfig } from "../support/dispatching.ts";
import {
  changeRows,
  createTestAccount,
  makeSuspect,
  publish,
  SECRETS_KEY,
  spoilSecrets,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";

const database = await openDatabase();
let receiver: Receiver;
let published = 0;

beforeEach(async () => {
  asked = new AbortController();
  receiver = await startReceiver();
});
afterEach(() => receiver.close());

async function publishQuarantined(): Promise<string> {
  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  const id = await publish(database.pool, accountId, `{"id":"s-${published++}","status":"succeeded"}`);
  await makeSuspect(database.pool, [id]);
  return id;
}

let asked = new AbortController();

function postInQuarantine(...deliveryIds: string[]) {
  const failures: string[] = [];
  const config = testConfig([receiver]);
  const outcome = deliverInQuarantine(
    {
      databaseUrl: database.url,
      config,
      egress: createEgress(config),
      secretsKey: SECRETS_KEY,
      log: pino({ level: "silent" }),
      random: Math.random,
      observer: {
        attemptRecorded: () => undefined,
        mustBeQuarantined: () => undefined,
        overflowed: () => undefined,
        failed: (work) => failures.push(work),
      },
    },
    deliveryIds,
    asked.signal,
  );
  return { outcome, failures };
}

describe("a delivery in quarantine", () => {
  it("arrives and is recorded like any other", async () => {
    const id = await publishQuarantined();
    expect(await postInQuarantine(id).outcome).toBe("done");
    expect(receiver.requests).toHaveLength(1);
    expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "succeeded", attempts_count: 1 });
  });

  it("waits for another time while another process is at it", async () => {
    const id = await publishQuarantined();
    const other = await database.pool.connect();
    try {
      // The session of the test before may take a moment to end.
      await expect.poll(() => tryToLockTable(other, "quarantine_lock")).toBe(true);
      expect(await postInQuarantine(id).outcome).toBe("busy");
    } finally {
      other.release(true);
    }
    await expect.poll(() => postInQuarantine(id).outcome).toBe("done");
  });

  it("is not posted when it is not due, or gone", async () => {
    const id = await publishQuarantined();
    const dueAt = new Date(Date.now() + 3_600_000);
    await changeRows(database.pool, "open_deliveries", { delivery_id: id }, { due_at: dueAt });
    expect(await postInQuarantine(id).outcome).toBe("done");
    expect(receiver.requests).toEqual([]);
  });

  it("ends as interrupted when the process that posted it there died", async () => {
    const id = await publishQuarantined();
    const pool = openDispatchPool(database);
    await claim(pool, [id], { isInQuarantine: true, leaseMs: 0 });
    await pool.end();
    expect(await postInQuarantine(id).outcome).toBe("done");
    expect(receiver.requests).toEqual([]);
    expect(await deliveryRow(database.pool, id)).toMatchObject({
      status: "abandoned",
      reason: "interrupted",
    });
    expect(await attemptRows(database.pool, id)).toMatchObject([{ number: 1, outcome: "interrupted" }]);
    expect(await openRow(database.pool, id)).toBeNull();
  });

  it("is given back after an internal error, not abandoned for it", async () => {
    const id = await publishQuarantined();
    await spoilSecrets(database.pool);
    const { outcome, failures } = postInQuarantine(id);
    expect(await outcome).toBe("done");
    expect(failures).toEqual(["deliver"]);
    expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "pending", attempts_count: 0 });
    expect(await openRow(database.pool, id)).toMatchObject({ lease_token: null, lease_alone: false });
  });
});

describe("deliveries in quarantine", () => {
  it("go one after the other, whatever becomes of the one before", async () => {
    let atOnce = 0;
    await receiver.close();
    receiver = await startReceiver({
      handler: async () => {
        expect(++atOnce).toBe(1);
        await new Promise((resolve) => setTimeout(resolve, 20));
        atOnce--;
        return { status: receiver.requests.length === 2 ? 503 : 200 };
      },
    });
    const ids = [await publishQuarantined(), await publishQuarantined(), await publishQuarantined()];
    expect(await postInQuarantine(...ids).outcome).toBe("done");
    const statuses = await Promise.all(ids.map(async (id) => (await deliveryRow(database.pool, id)).status));
    expect(statuses).toEqual(["succeeded", "failed", "succeeded"]);
  });
});

describe("when it is asked to end", () => {
  it("what is being posted is recorded, and nothing else is claimed", async () => {
    await receiver.close();
    receiver = await startReceiver({
      handler: async () => {
        asked.abort();
        return { status: 200 };
      },
    });
    const ids = [await publishQuarantined(), await publishQuarantined()];
    expect(await postInQuarantine(...ids).outcome).toBe("done");
    const statuses = await Promise.all(ids.map(async (id) => (await deliveryRow(database.pool, id)).status));
    expect(statuses).toEqual(["succeeded", "pending"]);
    expect(await openRow(database.pool, ids[1]!)).toMatchObject({ lease_token: null });
  });
});

describe("quarantined deliveries", () => {
  /** A few turns of the event loop: more than what it does between two batches takes. */
  const settled = async () => {
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
  };
  const names = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `s${from + n}`);

  /** Answers to one batch after the other; the last answer stays. */
  function startQuarantine(...answers: QuarantineRun[]) {
    const batches: (readonly string[])[] = [];
    const quarantine = createQuarantine(async (batch) => {
      batches.push(batch);
      await new Promise((resolve) => setImmediate(resolve));
      return answers[Math.min(batches.length, answers.length) - 1] ?? "done";
    });
    return { quarantine, batches };
  }

  it("go in batches, each once", async () => {
    const { quarantine, batches } = startQuarantine();
    for (const id of [...names(0, 80), "s7"]) quarantine.add(id);
    await expect.poll(() => batches.length).toBe(2);
    expect(batches).toEqual([names(0, 50), names(50, 80)]);
  });

  it("may come back once they have been posted", async () => {
    const { quarantine, batches } = startQuarantine();
    quarantine.add("a");
    await expect.poll(() => batches.length).toBe(1);
    await settled();
    quarantine.add("a");
    await expect.poll(() => batches.length).toBe(2);
  });

  it("go on without the one that killed the process", async () => {
    const { quarantine, batches } = startQuarantine("died", "done");
    for (const id of ["a", "b"]) quarantine.add(id);
    await expect.poll(() => batches.length).toBe(2);
    // Which of them it was, its row tells: it is leased, and does not come back to the second process.
    expect(batches).toEqual([
      ["a", "b"],
      ["a", "b"],
    ]);
  });

  it("are let go when it is asked to stop, which waits for the process that posts", async () => {
    const posting = Promise.withResolvers<QuarantineRun>();
    const batches: [readonly string[], AbortSignal][] = [];
    const quarantine = createQuarantine((batch, stopping) => {
      batches.push([batch, stopping]);
      return posting.promise;
    });
    for (const id of names(0, 80)) quarantine.add(id);
    await expect.poll(() => batches.length).toBe(1);
    expect(batches[0]![1].aborted).toBe(false);
    let hasStopped = false;
    const stopped = quarantine.stop().then(() => {
      hasStopped = true;
    });
    quarantine.add("later");
    await settled();
    expect(batches[0]![1].aborted).toBe(true);
    expect(hasStopped).toBe(false);
    posting.resolve("died");
    await stopped;
    await settled();
    expect(batches).toHaveLength(1);
    await quarantine.stop();
  });

  it("are let go when process after process dies, and when another process is at it", async () => {
    const dying = startQuarantine("died");
    dying.quarantine.add("a");
    await expect.poll(() => dying.batches.length).toBe(4);
    const busy = startQuarantine("busy", "done");
    for (const id of names(0, 80)) busy.quarantine.add(id);
    await expect.poll(() => busy.batches.length).toBe(1);
    await settled();
    expect(busy.batches).toHaveLength(1);
    busy.quarantine.add("later");
    await expect.poll(() => busy.batches).toEqual([names(0, 50), ["later"]]);
    expect(dying.batches).toHaveLength(4);
  });
});
