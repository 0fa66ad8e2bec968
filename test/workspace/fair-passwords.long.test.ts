// Greedy accounts have passwords tried all the time. For an idle machine: a hash takes a quarter of a second there, and
// a try that waits for seconds is given up.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectItsTurn, flood, GREEDY_COUNTS } from "../support/fair-shares.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { api, database, type PageWorld, pageWorld, usePages, world } from "./page-world.ts";

const PASSWORD = "correct horse";
/** Of all accounts together: far more than there are places. */
const WAITING = 40;

usePages();
let quiet: TestApi;
let quietWorld: PageWorld;
beforeAll(async () => {
  quiet = await startTestApi(database);
  quietWorld = pageWorld(quiet);
});
afterAll(() => quiet.close());

async function accounts(count: number): Promise<TestAccount[]> {
  const made: TestAccount[] = [];
  for (let n = 0; n < count; n++) made.push(await api.newAccount());
  return made;
}

describe.each(GREEDY_COUNTS)("beside %i greedy accounts", (count) => {
  test("passwords are tried and set", async () => {
    const linkOf = async (who: TestAccount): Promise<Json> => {
      const page = await world.newPage("Confidential.", undefined, who);
      await world.publish(page, who);
      return await world.newLink(page, { password: PASSWORD }, who);
    };
    const links: Json[] = [];
    for (const account of await accounts(count)) links.push(await linkOf(account));
    const [victim, alone] = await accounts(2);
    const [own, aloneOwn] = [await linkOf(victim!), await linkOf(alone!)];
    await using _ = flood(WAITING, async (n) => await world.send(links[n % count]!, PASSWORD));
    const opened = (one: PageWorld, link: Json) => async () => (await one.send(link, PASSWORD)).status;
    await expectItsTurn(200, opened(world, own), opened(quietWorld, aloneOwn));
    const body = { password: "another horse" };
    const set = await api.ask("PATCH", `/v1/page-links/${own.id}`, { key: victim!.key, body });
    expect(set.status).toBe(200);
  });
});
