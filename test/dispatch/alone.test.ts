import { pino } from "pino";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { deliverAlone } from "../../src/dispatch/alone.ts";
import { Suspects } from "../../src/dispatch/suspects.ts";
import { tryToBeAlone } from "../../src/store/alone.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptRows, claim, deliveryRow, openDispatchPool, openRow } from "../support/delivery-rows.ts";
import { createTestAccount, SECRETS_KEY, testConfig } from "../support/dispatching.ts";
import { publish } from "../support/publishing.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";

let database: TestDatabase;
let receiver: Receiver;
let published = 0;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  receiver = await startReceiver();
});
afterEach(() => receiver.close());

async function publishSuspect(): Promise<string> {
  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  const id = await publish(database.pool, accountId, `{"id":"s-${published++}","status":"succeeded"}`);
  await database.pool.query("update sealpost.open_deliveries set interruptions = 2 where delivery_id = $1", [
    id,
  ]);
  return id;
}

function postAlone(deliveryId: string) {
  const failures: string[] = [];
  const outcome = deliverAlone(
    {
      databaseUrl: database.url,
      config: testConfig([receiver]),
      secretsKey: SECRETS_KEY,
      log: pino({ level: "silent" }),
      random: Math.random,
      wallClockMs: Date.now,
      observer: {
        attemptRecorded: () => undefined,
        mustGoAlone: () => undefined,
        letGo: () => undefined,
        claimed: () => undefined,
        failed: (work) => failures.push(work),
      },
    },
    deliveryId,
  );
  return { outcome, failures };
}

describe("a delivery posted alone", () => {
  it("arrives and is recorded like any other", async () => {
    const id = await publishSuspect();
    expect(await postAlone(id).outcome).toBe("recorded");
    expect(receiver.requests).toHaveLength(1);
    expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "succeeded", attempts_count: 1 });
  });

  it("waits for another time while somebody else is alone", async () => {
    const id = await publishSuspect();
    const other = await database.pool.connect();
    try {
      // The session of the test before may take a moment to end.
      await expect.poll(() => tryToBeAlone(other)).toBe(true);
      expect(await postAlone(id).outcome).toBe("busy");
    } finally {
      other.release(true);
    }
    await expect.poll(() => postAlone(id).outcome).toBe("recorded");
  });

  it("is left alone when it is not due, or gone", async () => {
    const id = await publishSuspect();
    await database.pool.query(
      "update sealpost.open_deliveries set due_at = now() + interval '1 hour' where delivery_id = $1",
      [id],
    );
    expect(await postAlone(id).outcome).toBe("not_due");
    expect(receiver.requests).toEqual([]);
  });

  it("ends as interrupted when the process that posted it alone died", async () => {
    const id = await publishSuspect();
    const pool = openDispatchPool(database);
    await claim(pool, [id], { isAlone: true, leaseMs: 0 });
    await pool.end();
    expect(await postAlone(id).outcome).toBe("recorded");
    expect(receiver.requests).toEqual([]);
    expect(await deliveryRow(database.pool, id)).toMatchObject({
      status: "abandoned",
      reason: "interrupted",
    });
    expect(await attemptRows(database.pool, id)).toMatchObject([{ number: 1, outcome: "interrupted" }]);
    expect(await openRow(database.pool, id)).toBeNull();
  });

  it("is given back after a fault of our own, not abandoned for it", async () => {
    const id = await publishSuspect();
    await database.pool.query("update sealpost.signing_secrets set sealed = '\\x00'");
    const { outcome, failures } = postAlone(id);
    expect(await outcome).toBe("recorded");
    expect(failures).toEqual(["deliver"]);
    expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "pending", attempts_count: 0 });
    expect(await openRow(database.pool, id)).toMatchObject({ lease_token: null, lease_alone: false });
  });
});

describe("suspects", () => {
  it("are posted one after the other, each once, whatever becomes of the one before", async () => {
    const posted: string[] = [];
    let atOnce = 0;
    const done = Promise.withResolvers<void>();
    const suspects = new Suspects(async (id) => {
      expect(++atOnce).toBe(1);
      await new Promise((resolve) => setImmediate(resolve));
      posted.push(id);
      atOnce--;
      if (posted.length === 3) done.resolve();
      if (id === "a") throw new Error("no process could be started");
    });
    for (const id of ["a", "b", "b", "c", "a"]) suspects.add(id);
    await done.promise;
    expect(posted).toEqual(["a", "b", "c"]);
  });

  it("may come back once they have been posted", async () => {
    const posted: string[] = [];
    const ended = Promise.withResolvers<void>();
    const suspects = new Suspects(async (id) => {
      posted.push(id);
      if (posted.length === 2) ended.resolve();
    });
    suspects.add("a");
    await expect.poll(() => posted.length).toBe(1);
    suspects.add("a");
    await ended.promise;
    expect(posted).toEqual(["a", "a"]);
  });
});
