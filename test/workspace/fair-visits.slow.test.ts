// Greedy accounts hold all places that they get, after visitors of everybody's pages have been at work for long.
import { expect, onTestFinished, test } from "vitest";
import { LIGHT_WORK_MS } from "../../src/http/limits.ts";
import { GREEDY_COUNTS } from "../support/fair-shares.ts";
import { begin, insertEndpoint, untilSomebodyWaits } from "../support/installation.ts";
import type { Json, TestAccount } from "../support/sealpost-api.ts";
import { api, database, usePages, world } from "./page-world.ts";

/** Of all greedy accounts: several times as many as there are places. */
const REQUESTS = 40;
/** Of accounts at a time, so that each has a place. */
const AT_ONCE = 6;

usePages();

async function linkOf(account: TestAccount): Promise<Json> {
  const page = await world.newPage("Quick.", undefined, account);
  await world.publish(page, account);
  return await world.newLink(page, {}, account);
}

const changeEndpoint = ({ ownKey: key, accountId }: TestAccount) =>
  api.ask("PUT", "/v1/webhooks/endpoint", { key, body: { url: `https://hooks.example.com/${accountId}` } });

/** All that is asked for waits until it is released. */
async function holding(text: string, ...values: unknown[]) {
  const held = await begin(database.pool);
  onTestFinished(held.rollback);
  await held.client.query(text, values);
  return held;
}
/** For longer than an account is a light one. */
const BE_AT_WORK = `select pg_sleep(${(1.2 * LIGHT_WORK_MS) / 1_000})`;
const HOLD_ENDPOINTS = "select from sealpost.endpoints where account_id = any ($1) for update";

test.each(GREEDY_COUNTS)(
  "pages of others are opened beside %i accounts that hold all they get",
  async (count) => {
    const greedy: TestAccount[] = [];
    for (let n = 0; n < count; n++) greedy.push(await api.newAccount());
    for (const { accountId } of greedy)
      await insertEndpoint(database.pool, accountId, "https://hooks.example.com/");
    const ids = greedy.map(({ accountId }) => accountId);
    for (let n = 0; n < count; n += AT_ONCE) {
      const held = await holding(HOLD_ENDPOINTS, ids);
      const changing = greedy.slice(n, n + AT_ONCE).map(changeEndpoint);
      await held.client.query(BE_AT_WORK);
      await held.rollback();
      await Promise.all(changing);
    }
    const [busy, link] = [await linkOf(await api.newAccount()), await linkOf(await api.newAccount())];
    const held = await holding("lock table workspace.page_links in access exclusive mode");
    const visiting = Array.from({ length: AT_ONCE }, () => world.open(busy));
    await held.client.query(BE_AT_WORK);
    await held.rollback();
    await Promise.all(visiting);

    const { rollback } = await holding(HOLD_ENDPOINTS, ids);
    const hanging = Array.from({ length: REQUESTS }, (_, n) => changeEndpoint(greedy[n % count]!));
    await untilSomebodyWaits(database.pool);
    const statuses: number[] = [];
    for (let n = 0; n < 5; n++) statuses.push((await world.open(link)).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200]);
    await rollback();
    await Promise.all(hanging);
  },
);
