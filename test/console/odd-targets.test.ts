import { expect, test } from "vitest";
import { enter } from "../support/console.ts";
import { openApi } from "../support/open.ts";

const { database, api } = await openApi();

test.each(["https://example.com:+443/", "https://foo.1/"])(
  "a webhook_url that is no URL, %s, stands in the log as it is",
  async (webhookUrl) => {
    const { accountId, ownKey: key } = await api.newAccount();
    await database.pool.query("select sealpost.publish_analysis($1, $2, $3)", [
      accountId,
      '{"id":"odd","status":"succeeded"}',
      webhookUrl,
    ]);
    const hand = await enter(api, { key });
    const { status, text } = await hand.get(`${hand.base}/deliveries`);
    expect(status).toBe(200);
    expect(text).toContain(webhookUrl);
    const [delivery = ""] = /\/deliveries\/[0-9a-f-]{36}/.exec(text) ?? [];
    expect((await hand.get(hand.base + delivery)).status).toBe(200);
  },
);
