// What leaders that are killed while they count leave to each other, beside dispatchers that die during their attempts.
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  countAttempts,
  endedAttempt,
  insertAttempts,
  type Sums,
  sumActivity,
} from "../support/attempt-rows.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { changeRows, countRows, createTestAccount, publish, rowOf } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { killRepeatedly, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const DAYS = 12;
const KILLS = 5;
const ACCOUNT_HOURS = 100;

let database: TestDatabase;
let receiver: Receiver;
let env: Record<string, string>;

beforeAll(async () => {
  database = await createTestDatabase();
  receiver = await startReceiver({
    handler: async ({ body }) => {
      if (body.includes('"slow-')) await new Promise((resolve) => setTimeout(resolve, 700));
      return { status: body.includes('"bad-') ? 503 : 200 };
    },
  });
  env = {
    DATABASE_URL: database.url,
    ...targetsEnv([receiver]),
    ATTEMPT_DEADLINE_MS: "1000",
    RETRY_WINDOW_SECONDS: "6",
  };
});
afterAll(async () => {
  await receiver.close();
  await database.drop();
});

const countedTo = async () => (await rowOf(database.pool, "activity_state")).counted_to as Date;

const startTwo = () => Promise.all([startProcess("dispatch", env), startProcess("dispatch", env)]);

/** A log of many days, none of it counted. */
async function layLog(accountIds: readonly string[]): Promise<void> {
  const now = Date.now();
  const attempts = Array.from({ length: 20_000 }, (_, n) =>
    endedAttempt(new Date(now - MINUTE_MS - ((n * 7_919) % 20_000) * ((DAYS * DAY_MS) / 20_000)), {
      accountId: accountIds[n % accountIds.length]!,
      ...(n % 5 === 0 ? { outcome: "rejected", errorCode: "status_503" } : {}),
      targetUrl: `https://h${n % 70}.example.com/`,
    }),
  );
  await insertAttempts(database.pool, attempts);
  await database.pool.query("truncate sealpost.late_attempts");
  await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(now - (DAYS + 1) * DAY_MS) });
}

test("activity is a count over the attempts, whoever was killed while it was counted", {
  timeout: patience(120_000),
}, async () => {
  const accounts = await Promise.all(
    Array.from({ length: 4 }, () => createTestAccount(database, receiver.url("/in").href)),
  );
  await layLog(accounts.map(({ accountId }) => accountId));
  let before = 0;
  await killRepeatedly({
    count: KILLS,
    start: async () => {
      before = (await countedTo()).getTime();
      return await startTwo();
    },
    until: async (kill) => {
      for (const [n, { accountId }] of accounts.entries()) {
        for (const kind of ["slow", "bad", "good"]) {
          await publish(database.pool, accountId, `{"id":"${kind}-${kill}-${n}","status":"succeeded"}`);
        }
      }
      // Somewhere in the middle of it, with attempts in flight.
      await expect
        .poll(async () => (await countedTo()).getTime() - before, { timeout: patience(20_000), interval: 20 })
        .toBeGreaterThan(DAY_MS / 4);
    },
  });
  await killRepeatedly({
    count: 1,
    start: startTwo,
    until: async () => {
      const open = () => countRows(database.pool, "open_deliveries");
      await expect.poll(open, { timeout: patience(60_000) }).toBe(0);
      const ended = new Date();
      await expect
        .poll(countedTo, { timeout: patience(60_000), interval: 500 })
        .toEqual(expect.toSatisfy((to) => to > ended));
    },
  });

  expect(await countRows(database.pool, "attempts", { outcome: "interrupted" })).toBeGreaterThan(0);
  const counted = byAccountHour(await sumActivity(database.pool));
  const real = byAccountHour(await countAttempts(database.pool, await countedTo()));
  const chosen = [...real.keys()].sort(() => Math.random() - 0.5).slice(0, ACCOUNT_HOURS);
  expect(chosen).toHaveLength(ACCOUNT_HOURS);
  for (const key of chosen) expect(counted.get(key), key).toEqual(real.get(key));
  expect(counted).toEqual(real);
});

/** Durations are rounded when they are added up, so they are not compared. */
function byAccountHour(sums: readonly Sums[]): ReadonlyMap<string, readonly Partial<Sums>[]> {
  const parts = Map.groupBy(sums, ({ account_id, hour }) => `${account_id} ${hour.toISOString()}`);
  return new Map([...parts].map(([key, of]) => [key, of.map(({ duration_ms: _, ...counts }) => counts)]));
}
