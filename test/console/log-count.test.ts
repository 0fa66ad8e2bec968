import { expect, test } from "vitest";
import { enter, type Got } from "../support/console.ts";
import { failAgain, publishAt } from "../support/delivery-rows.ts";
import { publish } from "../support/installation.ts";
import { openApi } from "../support/open.ts";

const { database, api } = await openApi();

async function countOf(deliveries: number): Promise<string | undefined> {
  const { accountId, ownKey: key } = await api.newAccount();
  for (let from = 0; from < deliveries; from += 1_000) {
    const count = Math.min(1_000, deliveries - from);
    const names = Array.from({ length: count }, (_, n) => `inv-${from + n}`);
    await publishAt(database.pool, accountId, new Date(), names);
  }
  const hand = await enter(api, { key });
  const { text } = await hand.get(`${hand.base}/deliveries`);
  return /aria-current="true">All <span class="fine">([^<]*)</.exec(text)?.[1];
}

test.each([
  [1, "1"],
  [1_234, "1,234"],
  [12_000, "10,000+"],
])("of %i deliveries the log says %s", async (deliveries, said) => {
  expect(await countOf(deliveries)).toBe(said);
});

test("shows every row once over all pages while others are published", async () => {
  const { accountId, ownKey: key } = await api.newAccount();
  const publishSome = (name: string, count: number) =>
    publishAt(
      database.pool,
      accountId,
      new Date(),
      Array.from({ length: count }, (_, n) => `${name}-${n}`),
    );
  const before = await publishSome("before", 320);
  const hand = await enter(api, { key });
  const seen: string[] = [];
  for (let path: string | null = "/deliveries", page = 0; path !== null; page++) {
    const [{ text }]: [Got, unknown] = await Promise.all([
      hand.get(hand.base + path),
      publishSome(`during-${page}`, 50),
    ]);
    seen.push(...[...text.matchAll(/<tr id="d-([^"]+)"/g)].map(([, id]) => id!));
    const next: string | undefined = /<a rel="next" href="([^"]+)"/.exec(text)?.[1];
    path = next === undefined ? null : next.replaceAll("&#38;", "&").slice(hand.base.length);
  }
  expect(seen.filter((id, at) => seen.indexOf(id) !== at)).toEqual([]);
  expect(before.filter((id) => !seen.includes(id))).toEqual([]);
});

test.each([
  [100, false],
  [101, true],
])("a delivery with %i attempts says whether older ones are left out: %s", async (count, isCut) => {
  const { accountId, ownKey: key } = await api.newAccount();
  const id = await publish(database.pool, accountId, '{"id":"many","status":"succeeded"}');
  await failAgain(database.pool, accountId, id, count);
  const hand = await enter(api, { key });
  const { status, text } = await hand.get(`${hand.base}/deliveries/${id}`);
  expect(status).toBe(200);
  expect(text.match(/ id="a-\d+-\d+"/g)).toHaveLength(100);
  expect(text.includes('id="a-1-1"')).toBe(!isCut);
  expect(/The newest 100 of 101; older ones are left out\./.test(text)).toBe(isCut);
});
