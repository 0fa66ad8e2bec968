// How many connections to PostgreSQL each process holds, as PostgreSQL counts them.
import { afterEach, beforeEach, expect, test } from "vitest";
import { dispatcherConnections } from "../../src/app/dispatch-process.ts";
import { apiConnections } from "../../src/app/serve.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { countRows, createTestAccount, createTestKey, publishAny } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const ACCOUNTS = 4;
const DELIVERIES = 400;
const READERS_OF_ACCOUNT = 8;
const AT_REST_MAX = 6;
const OF_DISPATCHER = ["sealpost dispatch", "sealpost wakeups", "sealpost general"];

let database: TestDatabase;
let receiver: Receiver;
let running: SealpostProcess[];
beforeEach(async () => {
  database = await createTestDatabase();
  receiver = await startReceiver();
  running = [];
});
afterEach(async () => {
  await Promise.all(running.map((one) => one.stop()));
  await receiver.close();
  await database.drop();
});

async function start(command: "serve" | "dispatch", env: Record<string, string> = {}) {
  const started = await startProcess(command, {
    DATABASE_URL: database.url,
    RATE_LIMIT_REQUESTS: "1000000",
    ...targetsEnv([receiver]),
    ...env,
  });
  running.push(started);
  return started;
}

/** Connections now, by what they call themselves. */
async function connections(): Promise<ReadonlyMap<string, number>> {
  const { rows } = await database.pool.query<{ name: string; count: number }>(
    `select application_name as name, count(*)::integer from pg_stat_activity
     where datname = current_database() and application_name like 'sealpost %' group by 1`,
  );
  return new Map(rows.map(({ name, count }) => [name, count]));
}

const sumOf = (counts: ReadonlyMap<string, number>, names: readonly string[]) =>
  names.reduce((sum, name) => sum + (counts.get(name) ?? 0), 0);

/** What `serve` holds, and what `dispatch` does; both at once, as often as there is time until `done`. */
async function peaksUntil(done: Promise<unknown>): Promise<{ serve: number; dispatch: number; all: number }> {
  const peaks = { serve: 0, dispatch: 0, all: 0 };
  let isDone = false;
  const ended = done.finally(() => {
    isDone = true;
  });
  do {
    const now = await connections();
    peaks.serve = Math.max(peaks.serve, sumOf(now, ["sealpost serve"]));
    peaks.dispatch = Math.max(peaks.dispatch, sumOf(now, OF_DISPATCHER));
    peaks.all = Math.max(peaks.all, sumOf(now, [...now.keys()]));
  } while (!isDone);
  await ended;
  return peaks;
}

/** Accounts publish and read at once, until everything is delivered and recorded. */
async function load(urls: readonly string[]): Promise<void> {
  await Promise.all(
    Array.from({ length: ACCOUNTS }, async () => {
      const { accountId } = await createTestAccount(database, receiver.url("/").href);
      const { apiKey } = await createTestKey(database.pool, accountId);
      await publishAny(database.pool, accountId, DELIVERIES);
      const headers = { authorization: `Bearer ${apiKey}` };
      const read = async (n: number) => {
        for (let round = 0; round < 10; round++) {
          const url = new URL("/v1/webhooks/deliveries?limit=100", urls[n % urls.length]);
          const response = await fetch(url, { headers });
          await response.arrayBuffer();
          expect(response.status).toBe(200);
        }
      };
      await Promise.all(Array.from({ length: READERS_OF_ACCOUNT }, (_, n) => read(n)));
    }),
  );
  const arrived = () => countRows(database.pool, "deliveries", { status: "succeeded" });
  await expect.poll(arrived, { timeout: patience(60_000) }).toBe(ACCOUNTS * DELIVERIES);
}

test("a process has twelve connections at most, and half as many at rest", async () => {
  const [{ url }] = await Promise.all([start("serve"), start("dispatch")]);
  const busy = await peaksUntil(load([url]));
  expect(busy.serve).toBeLessThanOrEqual(12);
  expect(busy.dispatch).toBeLessThanOrEqual(12);
  expect(Math.min(busy.serve, busy.dispatch), JSON.stringify(busy)).toBeGreaterThan(AT_REST_MAX - 2);
  const atRest = async () => {
    const now = await connections();
    return Math.max(sumOf(now, ["sealpost serve"]), sumOf(now, OF_DISPATCHER));
  };
  await expect.poll(atRest, { timeout: patience(30_000) }).toBeLessThanOrEqual(AT_REST_MAX);
});

test("two of each work on twenty in all, where each has five", async () => {
  const env = { DATABASE_CONNECTIONS_MAX: "5" };
  const [one, other] = await Promise.all([start("serve", env), start("serve", env)]);
  await Promise.all([start("dispatch", env), start("dispatch", env)]);
  const { all } = await peaksUntil(load([one.url, other.url]));
  expect(all).toBeLessThanOrEqual(20);
  expect(all).toBeGreaterThan(12);
});

test.each([5, 6, 7, 11, 12, 13, 24, 200])("of %i connections each has some", (connectionsMax) => {
  const { dispatch, wakeups, general, slow } = dispatcherConnections(connectionsMax);
  expect(dispatch + wakeups + general).toBe(connectionsMax);
  expect(dispatch).toBeGreaterThanOrEqual(1);
  // One of them listens.
  expect(wakeups).toBeGreaterThanOrEqual(2);
  expect(slow).toBeGreaterThanOrEqual(1);
  expect(general - slow).toBeGreaterThanOrEqual(1);
  const api = apiConnections(connectionsMax);
  expect(api.general).toBe(connectionsMax - 1);
  expect(api.workPlaces).toBeGreaterThanOrEqual(2);
  expect(api.workPlaces).toBeLessThan(api.general);
});
