import { fc, test as property } from "@fast-check/vitest";
import { expect, test } from "vitest";
import { cappedTotal, cutPage, type ListPage, TOTAL_MAX } from "../../../src/base/model/list-page.ts";

type Cut = Pick<ListPage<{ readonly number: number }, number>, "items" | "next">;

property.prop([fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 10 })])(
  "rows are all seen once, in as few pages as there can be",
  (count, limit) => {
    const rows = Array.from({ length: count }, (_, number) => ({ number }));
    const seen: number[] = [];
    let pages = 0;
    let after: number | null = -1;
    while (after !== null) {
      const found = rows.slice(after + 1, after + 1 + limit + 1);
      const { items, next }: Cut = cutPage(found, limit, ({ number }) => number);
      seen.push(...items.map(({ number }) => number));
      after = next;
      pages++;
    }
    expect(seen).toEqual([...rows.keys()]);
    expect(pages).toBe(Math.max(1, Math.ceil(count / limit)));
  },
);

test.each([
  [0, 0, false],
  [TOTAL_MAX, TOTAL_MAX, false],
  [TOTAL_MAX + 1, TOTAL_MAX, true],
])("%i that were counted are told as %i, as a lower bound: %s", (counted, total, isTotalCapped) => {
  expect(cappedTotal(counted)).toEqual({ total, isTotalCapped });
});
