// Greedy accounts have pages rendered all the time, with the worst that gets through.
import { afterAll, beforeAll, describe, test } from "vitest";
import { expectItsTurn, flood, GREEDY_COUNTS } from "../support/fair-shares.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { api, database, type PageWorld, pageWorld, usePages, world } from "./page-world.ts";

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

/** Its drafts, each other than all others, and each worth a tenth of a second of a thread or more. */
async function heavyDrafts(account: TestAccount, count: number): Promise<string[]> {
  const space = await world.newSpace(account);
  const { rows } = await database.pool.query<{ id: string }>(
    `insert into workspace.pages (account_id, space_id, title, markdown, created_by)
     select $1, $2, 'Heavy', n || repeat('[', 40000), $3 from generate_series(1, $4) as n returning id`,
    [account.accountId, space, account.userId, count],
  );
  return rows.map(({ id }) => id);
}

async function accounts(count: number): Promise<TestAccount[]> {
  const made: TestAccount[] = [];
  for (let n = 0; n < count; n++) made.push(await api.newAccount());
  return made;
}

describe.each(GREEDY_COUNTS)("beside %i greedy accounts", (count) => {
  test("pages are published and shown", async () => {
    const each = Math.ceil(WAITING / count);
    const greedy: { key: string; page: string }[] = [];
    for (const account of await accounts(count))
      greedy.push(...(await heavyDrafts(account, each)).map((page) => ({ key: account.key, page })));
    const [victim, alone] = await accounts(2);
    const publishAndOpen = async (one: PageWorld, who: TestAccount) => {
      const page = await one.newPage("Quick.", undefined, who);
      await one.publish(page, who);
      return (await one.open(await one.newLink(page, {}, who))).status;
    };
    // Threads that have to start are nobody's doing.
    for (const [one, who] of [
      [world, victim!],
      [quietWorld, alone!],
    ] as const)
      await publishAndOpen(one, who);
    await using _ = flood(greedy.length, async (n) => {
      const { key, page } = greedy[n % greedy.length]!;
      await api.ask("POST", `/v1/pages/${page}/publish`, { key });
      // As if it were saved with another text.
      await database.pool.query(
        "update workspace.pages set revision = revision + 1, markdown = $2 || markdown where id = $1",
        [page, `${n} `],
      );
    });
    const opened = (one: PageWorld, who: TestAccount) => () => publishAndOpen(one, who);
    await expectItsTurn(200, opened(world, victim!), opened(quietWorld, alone!));
  });
});
