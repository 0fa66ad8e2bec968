/** Totals are exact up to here. */
export const TOTAL_MAX = 10_000;
/** Rows that are looked at for a total, and again for a page whose filter has no index: one more tells of more. */
export const LOOKED_AT_MAX = TOTAL_MAX + 1;

/** A page of a list, as it is read. */
export type ListPage<Item, Position = string> = {
  readonly items: readonly Item[];
  /** Where the next page begins: behind what is there; null: there is none. */
  readonly next: Position | null;
  readonly total: number;
};

/** The same, of a list that may be too long to be counted. */
export type CappedPage<Item, Position = string> = ListPage<Item, Position> & {
  /** The total is a lower bound: there are more than are counted. */
  readonly isTotalCapped: boolean;
};

/** One more in `found` than the page has tells that there is a next one, behind the position of the page's last. */
export function cutPage<Item, Position>(
  found: readonly Item[],
  limit: number,
  positionOf: (item: Item) => Position,
): Pick<ListPage<Item, Position>, "items" | "next"> {
  const items = found.slice(0, limit);
  const last = items.at(-1);
  return { items, next: found.length > limit && last !== undefined ? positionOf(last) : null };
}

/** @param counted up to `LOOKED_AT_MAX` */
export function cappedTotal(counted: number): Pick<CappedPage<never>, "total" | "isTotalCapped"> {
  return { total: Math.min(counted, TOTAL_MAX), isTotalCapped: counted > TOTAL_MAX };
}
