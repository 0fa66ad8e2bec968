import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createFaults } from "../../src/base/metrics/database-metrics.ts";
import { createDispatchMetrics } from "../../src/base/metrics/dispatch-metrics.ts";
import { createMetricsRegistry } from "../../src/base/metrics/registry.ts";
import { createAttemptMetrics } from "../../src/delivery/attempt-observers.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { type RecordedAttempt, startTestDispatcher, type TestDispatcher } from "../support/dispatching.ts";
import { startEgressProxy, type TestEgressProxy } from "../support/egress-proxy.ts";
import { allowTargets, createTestAccount, publish, rowsOf } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";

let database: TestDatabase;
let receiver: Receiver;
let proxy: TestEgressProxy;
let dispatcher: TestDispatcher;

/** A dispatcher behind a proxy that answers every CONNECT so. */
async function startBehind(answer: string, consent = ""): Promise<void> {
  proxy = await startEgressProxy({ answer: `HTTP/1.1 ${answer}\r\n\r\n` });
  dispatcher = startTestDispatcher(database, [receiver], {
    EGRESS_PROXY_URL: `http://127.0.0.1:${proxy.port}`,
    RETRY_WINDOW_SECONDS: "6",
    TARGET_CONSENT: consent,
  });
}

async function publishOne(): Promise<string> {
  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  return await publish(database.pool, accountId, '{"id":"a-1","status":"succeeded"}');
}

/** The series that the alerts on egress and on success are made of, by what `attempts` add to them. */
async function countedBy(attempts: readonly RecordedAttempt[]): Promise<Record<string, number>> {
  const registry = createMetricsRegistry();
  const observer = createAttemptMetrics(createDispatchMetrics(registry), createFaults(registry));
  for (const { delivery, delivered, recorded } of attempts) {
    observer.attemptRecorded(delivery, delivered, recorded);
  }
  const series = (await registry.read()).matchAll(
    /^(sealpost_(?:attempts|leases_returned)_total\{.*\}) (\d+)$/gm,
  );
  return Object.fromEntries(
    [...series]
      .map(([, name = "", value]) => [name, Number(value)] as const)
      .filter(([, value]) => value > 0),
  );
}

beforeEach(async () => {
  database = await createTestDatabase();
  receiver = await startReceiver();
});
afterEach(async () => {
  await dispatcher.stop();
  await proxy.close();
  await receiver.close();
  await database.drop();
});

describe("a target that the egress proxy refuses", () => {
  it("uses up an attempt each time, on schedule, until the delivery is abandoned", async () => {
    await startBehind("403 Forbidden");
    const id = await publishOne();

    const attempts = await dispatcher.waitForAttempts(8, 20_000);
    expect(await deliveryRow(database.pool, id)).toMatchObject({
      status: "abandoned",
      reason: "attempts_exhausted",
      attempts_count: 8,
      last_error_code: "target_refused_by_proxy",
      last_status_code: null,
    });
    expect(await attemptRows(database.pool, id)).toEqual(
      Array.from({ length: 8 }, (_, index) => ({
        run: 1,
        number: index + 1,
        outcome: "target_refused",
        error_code: "target_refused_by_proxy",
        status_code: null,
      })),
    );
    expect(receiver.connectionsCount).toBe(0);
    expect(await countedBy(attempts)).toEqual({
      'sealpost_attempts_total{outcome="target_refused",error_code="target_refused_by_proxy"}': 8,
    });
  });
});

describe("a receiver that has proven nothing, behind a proxy", () => {
  it("has its turns by its host name, which is one address however it is spelled", async () => {
    receiver = await startReceiver({ handler: () => ({ status: 404 }) });
    proxy = await startEgressProxy();
    await allowTargets(database.pool, [`localhost:${receiver.port}`]);
    const { href } = receiver.url("/in");
    for (const url of [
      href,
      href.replace("localhost", "LOCALHOST"),
      href.replace("localhost", "loc%61lhost"),
    ]) {
      const { accountId } = await createTestAccount(database);
      for (let n = 0; n < 5; n++)
        await publish(database.pool, accountId, `{"id":"p-${n}","status":"succeeded"}`, url);
    }
    const env = { EGRESS_PROXY_URL: `http://127.0.0.1:${proxy.port}`, TARGET_CONSENT: "success" };
    dispatcher = startTestDispatcher(database, [receiver], env);
    const requests = await receiver.waitForRequests(4, 30_000);
    const [first, second, third, fourth] = requests.map(({ receivedAtMs }) => receivedAtMs);
    expect([second! - first!, third! - second!], "1.05 s apart").toEqual(
      [1, 2].map(() => expect.toSatisfy((gapMs) => gapMs > 950)),
    );
    expect(fourth! - first!, "and an account's 6.7 s").toBeGreaterThan(6_000);
    const rows = await rowsOf(database.pool, "receiver_addresses");
    expect(rows.map(({ address }) => address)).toEqual(["localhost"]);
  });
});

describe("an egress proxy that does not serve us", () => {
  it.each(["407 Proxy Authentication Required\r\nProxy-Authenticate: Basic", "500 Internal Server Error"])(
    "uses up no attempt: %j",
    async (answer) => {
      await startBehind(answer, "success");
      const id = await publishOne();

      const attempts = await dispatcher.waitForAttempts(2);
      const [waitedMs] = attempts.map(({ delivered }) => delivered.recording.waitedMs);
      expect(waitedMs, "perhaps for its receiver's turn").toBeGreaterThan(0);
      expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "pending", attempts_count: 0 });
      expect(await attemptRows(database.pool, id)).toEqual([]);
      expect(await countedBy(attempts)).toEqual({
        'sealpost_leases_returned_total{why="egress_proxy_failed"}': 2,
      });
    },
  );
});
