// Greedy accounts have passwords tried all the time. For an idle machine: a hash takes a quarter of a second there, and
// a try that waits for seconds is given up.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectItsTurn, flood, GREEDY_COUNTS } from "../support/fair-shares.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { api, database, type PageWorld, pageWorld, usePages, world } from "./page-world.ts";

const PASSWORD = "correct horse";
/** Of all accounts together: far more than there are places. */
const WAITING = 40;
/** One that tries more is greedy itself: of twenty that want as much, none can have the thread whenever it likes. */
const TRIES_OF_VICTIM = 2;
const VICTIMS = 30;

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
  test("passwords are tried and set", { timeout: 180_000 }, async () => {
    // In the process that is not flooded, where it does not count as what the account has had.
    const linkOf = async (who: TestAccount): Promise<Json> => {
      const page = await quietWorld.newPage("Confidential.", undefined, who);
      await quietWorld.publish(page, who);
      return await quietWorld.newLink(page, { password: PASSWORD }, who);
    };
    const links: Json[] = [];
    const victims: Json[] = [];
    for (const account of await accounts(count)) links.push(await linkOf(account));
    const owners = await accounts(VICTIMS);
    for (const account of owners) victims.push(await linkOf(account));
    await using _ = flood(WAITING, async (n) => await world.send(links[n % count]!, PASSWORD));
    const opened = (one: PageWorld) => async (n: number) =>
      (await one.send(victims[Math.floor(n / TRIES_OF_VICTIM) % VICTIMS]!, PASSWORD)).status;
    await expectItsTurn(200, opened(world), opened(quietWorld));
    const body = { password: "another horse" };
    const set = await api.ask("PATCH", `/v1/page-links/${victims[0]!.id}`, { key: owners[0]!.key, body });
    expect(set.status).toBe(200);
  });
});
