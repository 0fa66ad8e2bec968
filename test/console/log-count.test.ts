import { expect, test } from "vitest";
import { enter, type Got } from "../support/console.ts";
import { publishAt } from "../support/delivery-rows.ts";
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
  return /<div class="count"><p>([^<]*)</.exec(text)?.[1];
}

test.each([
  [1, "1 delivery"],
  [1_234, "1,234 deliveries"],
  [12_000, "at least 10,000 deliveries"],
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
    seen.push(...[...text.matchAll(/<tbody id="d-([^"]+)"/g)].map(([, id]) => id!));
    const next: string | undefined = /<a rel="next" href="([^"]+)"/.exec(text)?.[1];
    path = next === undefined ? null : next.replaceAll("&#38;", "&").slice(hand.base.length);
  }
  expect(seen.filter((id, at) => seen.indexOf(id) !== at)).toEqual([]);
  expect(before.filter((id) => !seen.includes(id))).toEqual([]);
});
