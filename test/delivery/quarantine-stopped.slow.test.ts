import { afterAll, beforeAll, expect, test } from "vitest";
import { Cluster, DEADLINE_MS } from "../faults/harness/cluster.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { makeSuspect } from "../support/installation.ts";
import { patience } from "../support/time-limits.ts";

let database: TestDatabase;
let cluster: Cluster;

beforeAll(async () => {
  database = await createTestDatabase();
  cluster = await Cluster.start({ databaseUrl: database.url, dispatchers: 0 });
});
afterAll(async () => {
  await cluster.close();
  await database.drop();
});

test("a dispatcher that is asked to end waits for the delivery posted from quarantine, and for no other", async () => {
  await cluster.receiver.behave("/silent", { isSilent: true });
  const { accountId } = await cluster.createAccount("/silent");
  const published = await cluster.producer.publishMany(6, accountId);
  await makeSuspect(cluster.pool);

  const dispatcher = await cluster.startDispatcher();
  const [arrival] = await cluster.receiver.waitFor(1);
  const { deliveryId } = arrival!;
  const askedAt = performance.now();
  expect(await dispatcher.stop()).toBe(0);
  // A busy machine is slow to end its processes; six deadlines it is not.
  expect(performance.now() - askedAt).toBeLessThan(DEADLINE_MS + patience(2_000));

  expect(cluster.receiver.arrivals.map((arrival) => arrival.deliveryId)).toEqual([deliveryId]);
  expect(await attemptRows(database.pool, deliveryId)).toMatchObject([{ outcome: "timed_out", number: 1 }]);
  for (const one of published.filter((other) => other.deliveryId !== deliveryId)) {
    expect(await deliveryRow(database.pool, one.deliveryId!)).toMatchObject({
      status: "pending",
      attempts_count: 0,
    });
  }
});
