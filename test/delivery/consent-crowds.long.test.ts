// Many receivers behind one address that have all succeeded before: none of them has to prove anything. Beside the same
// where nobody has to.
import { afterAll, expect, test } from "vitest";
import { proveFromLog } from "../../src/delivery/receivers-sql.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import { allowTargets, changeRows, createTestAccount, publishMany } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { startReceiver } from "../support/receiver.ts";

/** Half an hour of the schedule in a minute. */
const COMPRESSED = { RETRY_WINDOW_SECONDS: "2880" };
/** It ends midway between two rounds of retries, of which the next is some 8 s later. */
const OUTAGE_MS = 56_000;
const RATIO_MAX = 1.3;

const database = await openDatabase();
let awayUntilMs = 0;
const receiver = await startReceiver({
  handler: () => ({ status: performance.now() < awayUntilMs ? 503 : 200 }),
});
await allowTargets(database.pool, [`*.many.localhost:${receiver.port}`]);
afterAll(() => receiver.close());

/** A round of retries is up to 161 s behind the one before. */
const ROUND_MS = 240_000;

/** Milliseconds until each of these is delivered, from now or from when the receiver is back. */
async function untilAllDelivered(
  consent: string,
  ids: () => Promise<readonly string[]>,
  awayMs = 0,
): Promise<number> {
  awayUntilMs = performance.now() + awayMs;
  const dispatcher = startTestDispatcher(database, [receiver], { ...COMPRESSED, TARGET_CONSENT: consent });
  const fromMs = awayUntilMs;
  const waiting = new Set(await ids());
  for (let seen = 0; waiting.size > 0; ) {
    await dispatcher.waitForAttempts(seen + 1, ROUND_MS);
    for (; seen < dispatcher.attempts.length; seen++) {
      const { delivery, delivered } = dispatcher.attempts[seen]!;
      if (delivered.result?.outcome === "succeeded") waiting.delete(delivery.deliveryId);
    }
  }
  const tookMs = performance.now() - fromMs;
  await dispatcher.stop();
  return tookMs;
}

const textsOf = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, n) => `{"id":"${prefix}-${n}","status":"succeeded"}`);

/** Accounts with so many names each: of each pair, the account and the URL. */
async function crowd(accounts: number, namesEach: number) {
  const of: { accountIds: string[]; urls: string[] } = { accountIds: [], urls: [] };
  for (let account = 0; account < accounts; account++) {
    const { accountId } = await createTestAccount(database);
    for (let name = 0; name < namesEach; name++) {
      of.accountIds.push(accountId);
      of.urls.push(receiver.url("/in", `c${account}-${name}.many.localhost`).href);
    }
  }
  return of;
}

async function inBothWays(measure: (consent: string) => Promise<number>): Promise<void> {
  const [free, asked] = [await measure(""), await measure("success")];
  console.log(`${Math.round(asked)} ms, without consent ${Math.round(free)} ms`);
  expect(asked / free).toBeLessThan(RATIO_MAX);
}

test("an upgrade with 1,000 accounts behind one address keeps nobody waiting", async () => {
  const { accountIds, urls } = await crowd(1_000, 1);
  // The version before, which asks nobody, has delivered something to each.
  await untilAllDelivered("", () => publishMany(database.pool, accountIds, textsOf("before", 1_000), urls));
  await database.pool.query("delete from sealpost.receivers");
  await changeRows(database.pool, "settings", {}, { proven_from: null });
  await proveFromLog(database.pool);
  let round = 0;
  await inBothWays((consent) => {
    const texts = textsOf(`after-${round++}`, 1_000);
    return untilAllDelivered(consent, () => publishMany(database.pool, accountIds, texts, urls));
  });
}, 600_000);

test("a CDN with 5,000 proven receivers that was away has all of its webhooks as soon as it is back", async () => {
  const { accountIds, urls } = await crowd(50, 100);
  await database.pool.query(
    `insert into sealpost.receivers (account_id, origin, proven_at)
     select account_id, sealpost.origin(url), now() from unnest($1::uuid[], $2::text[]) as proven (account_id, url)
     on conflict do nothing`,
    [accountIds, urls],
  );
  // Either run meets lanes that have answered before.
  await untilAllDelivered("", () => publishMany(database.pool, accountIds, textsOf("before", 5_000), urls));
  let round = 0;
  await inBothWays((consent) => {
    const texts = textsOf(`cdn-${round++}`, 5_000);
    return untilAllDelivered(consent, () => publishMany(database.pool, accountIds, texts, urls), OUTAGE_MS);
  });
}, 1_200_000);

test("a new customer's first 1,000 deliveries take as long as ever", async () => {
  let round = 0;
  await inBothWays(async (consent) => {
    const name = `new-${round++}`;
    const { accountId } = await createTestAccount(
      database,
      receiver.url("/in", `${name}.many.localhost`).href,
    );
    const each = <T>(value: T) => Array.from({ length: 1_000 }, () => value);
    const publish = () => publishMany(database.pool, each(accountId), textsOf(name, 1_000), each(null));
    return await untilAllDelivered(consent, publish);
  });
}, 300_000);
