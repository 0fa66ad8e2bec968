import { expect, test } from "vitest";
import { enter } from "../support/console.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { openApi } from "../support/open.ts";

const { database, api } = await openApi();

test("a delivery's page says who answered last, where that was not the application", async () => {
  const { accountId, ownKey: key } = await api.newAccount();
  await layDeliveries(database, accountId, { abandoned: 0, failed: 1, succeeded: 0, pending: 0 });
  const hand = await enter(api, { key });
  const [path = ""] =
    /\/deliveries\/[0-9a-f-]{36}/.exec((await hand.get(`${hand.base}/deliveries`)).text) ?? [];
  const read = async () => (await hand.get(hand.base + path)).text;
  expect(await read()).not.toContain("Answered by");
  await database.pool.query(
    `update sealpost.attempts set response_excerpt = 'no available server', status_code = 503, error_code = 'status_503'
     where account_id = $1`,
    [accountId],
  );
  expect(await read()).toMatch(
    /Answered by Traefik<\/strong>, not the application\.\s*<span class="soft">Shown by the status 503 and “/,
  );
});
