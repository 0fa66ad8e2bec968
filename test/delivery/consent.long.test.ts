// What a stranger gets whom accounts aim at, in any minute: measured over a minute and a half with two dispatchers.
import { afterAll, expect, test } from "vitest";
import { createTestDatabase } from "../support/database.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import { allowTargets, createTestAccount, publishMany } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { startReceiver } from "../support/receiver.ts";

const WATCHED_MS = 90_000;
const ACCOUNTS = 100;
const NAMES_EACH = 10;

const database = await openDatabase();
const receiver = await startReceiver({ handler: () => ({ status: 404 }) });
const dispatchers = [1, 2].map(() =>
  startTestDispatcher(database, [receiver], { TARGET_CONSENT: "success", RETRY_WINDOW_SECONDS: "60" }),
);
afterAll(async () => {
  for (const dispatcher of dispatchers) await dispatcher.stop();
  await receiver.close();
}, 300_000);

/** The most requests in any 60 s. */
function mostInAMinute(times: readonly number[]): number {
  return Math.max(...times.map((from) => times.filter((at) => at >= from && at < from + 60_000).length));
}

test("hosts that answer 200 to anything, or echo it, are asked ten times a minute and get no payload", async () => {
  const own = await createTestDatabase();
  const paths = ["/ok", "/echo"];
  const victim = await startReceiver({ handler: ({ path, body }) => (path === "/echo" ? { body } : {}) });
  const env = { TARGET_CONSENT: "challenge", RETRY_WINDOW_SECONDS: "60" };
  const asking = [1, 2].map(() => startTestDispatcher(own, [victim], env));
  for (const path of paths) {
    const { accountId } = await createTestAccount(own, victim.url(path).href);
    const texts = Array.from({ length: 1_000 }, (_, n) => `{"id":"v-${n}","status":"succeeded"}`);
    await publishMany(own.pool, Array(1_000).fill(accountId), texts, Array(1_000).fill(null));
  }
  const untilMs = Date.now() + WATCHED_MS;
  while (Date.now() < untilMs) await victim.waitForRequests(victim.requests.length + 1, 60_000);
  for (const dispatcher of asking) await dispatcher.stop();
  await victim.close();
  await own.drop();

  for (const path of paths) {
    const got = victim.requests.filter((request) => request.path === path);
    const most = mostInAMinute(got.map(({ receivedAtMs }) => receivedAtMs));
    console.log(`${path}: in any 60 s ${most} of ${got.length}`);
    expect(most).toBeLessThanOrEqual(10);
    expect(most, "and turns are used").toBeGreaterThan(7);
    const others = got.filter(({ body }) => !body.includes('{"type":"webhook.challenge",'));
    expect(others.map(({ body }) => body.toString())).toEqual([]);
  }
}, 300_000);

test("one account, and a hundred under a thousand names, reach it ten and sixty times a minute", async () => {
  await allowTargets(database.pool, [`*.many.localhost:${receiver.port}`]);
  const greedy = await createTestAccount(database, receiver.url("/greedy").href);
  const accountIds: string[] = [];
  const urls: string[] = [];
  for (let n = 0; n < ACCOUNTS; n++) {
    const { accountId } = await createTestAccount(database);
    for (let name = 0; name < NAMES_EACH; name++) {
      accountIds.push(accountId);
      urls.push(receiver.url(`/${accountId}`, `n${n}-${name}.many.localhost`).href);
    }
  }
  const texts = (count: number, of: string) =>
    Array.from({ length: count }, (_, n) => `{"id":"${of}-${n}","status":"succeeded"}`);
  await publishMany(
    database.pool,
    Array(2_000).fill(greedy.accountId),
    texts(2_000, "g"),
    Array(2_000).fill(null),
  );
  for (let each = 0; each < 5; each++)
    await publishMany(database.pool, accountIds, texts(accountIds.length, `a${each}`), urls);
  const untilMs = Date.now() + WATCHED_MS;
  while (Date.now() < untilMs) await receiver.waitForRequests(receiver.requests.length + 1, 60_000);

  const timesOf = (path: RegExp) =>
    receiver.requests.filter((request) => path.test(request.path)).map(({ receivedAtMs }) => receivedAtMs);
  const all = mostInAMinute(timesOf(/./));
  const ofGreedy = mostInAMinute(timesOf(/greedy/));
  const reached = new Set(receiver.requests.map(({ path }) => path));
  console.log(
    `in any 60 s: ${all} of ${receiver.requests.length}, of one account ${ofGreedy}; ${reached.size} accounts`,
  );
  expect(all).toBeLessThanOrEqual(60);
  expect(all, "and turns are used").toBeGreaterThan(20);
  expect(ofGreedy).toBeLessThanOrEqual(10);
  expect(reached.size, "by many accounts").toBeGreaterThan(20);
}, 300_000);
