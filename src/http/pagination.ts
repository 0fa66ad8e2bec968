import { hash } from "node:crypto";
import { z } from "zod";
import type { ListPage } from "../base/model/list-page.ts";
import { CURSOR_CHARS_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX } from "./limits.ts";
import { invalidRequest } from "./problems.ts";

/** The query parameters of every list; an operation adds its filters to them. */
export const pageQuery = {
  cursor: z
    .string()
    .min(1)
    .max(CURSOR_CHARS_MAX)
    .optional()
    .describe("`next_cursor` of the previous page; the filters must be the same."),
  limit: z
    .int()
    .min(1)
    .max(PAGE_ITEMS_MAX)
    .default(PAGE_ITEMS_DEFAULT)
    .describe("Maximum number of items per page."),
} as const;

/** The body of every list. */
export function pageOf<Item extends z.ZodType>(item: Item) {
  return z.object({
    items: z.array(item),
    next_cursor: z.string().nullable().describe("Null on the last page."),
    total: z.int().min(0).describe("Items in all; with `Total-Capped: true`, a lower bound."),
  });
}

/** For the `jsonResponse` of a list whose total may be too large to count. */
export const totalCappedHeader = {
  "Total-Capped": "`true` when `total` is only a lower bound.",
} as const;

/** The header for a total that was counted up to a cap. */
export function totalHeaders(page: { readonly isTotalCapped: boolean }): {
  readonly "Total-Capped"?: string;
} {
  return page.isTotalCapped ? { "Total-Capped": "true" } : {};
}

/** What `pageOf` describes. */
export type PageBody<Item> = z.output<ReturnType<typeof pageOf<z.ZodType<Item>>>>;

const VERSION = 1;

/**
 * `position`: schema of a position in the list, such as the sort key of a page's last item. A cursor is opaque but
 * neither secret nor signed: forging one only moves the start within data the caller may read anyway. Positions are
 * validated, because they go into a query.
 */
export function createCursors<Position>(position: z.ZodType<Position>) {
  const written = z.tuple([z.literal(VERSION), z.string(), position]);

  /** `filter`: the list's query, account included, without cursor and limit. */
  function write(last: Position, filter: unknown): string {
    return Buffer.from(JSON.stringify([VERSION, digestFilter(filter), last])).toString("base64url");
  }

  return {
    write,
    /** The body of a page that was read with this filter. */
    pageBody: <Read, Item>(
      { items, next, total }: ListPage<Read, Position>,
      filter: unknown,
      itemOf: (read: Read) => Item,
    ): PageBody<Item> => ({
      items: items.map((item) => itemOf(item)),
      next_cursor: next === null ? null : write(next, filter),
      total,
    }),
    /** Null for the first page. Throws 400, at `path`, for a cursor of another filter, or of no list at all. */
    read: (cursor: string | undefined, filter: unknown, path = "query.cursor"): Position | null => {
      if (cursor === undefined) return null;
      const read = written.safeParse(decoded(cursor));
      if (!read.success) throw invalidRequest(path, "Not a valid cursor for this list.");
      const [, digest, last] = read.data;
      if (digest !== digestFilter(filter)) {
        throw invalidRequest(path, "The cursor belongs to other filters; start again without it.");
      }
      return last;
    },
  };
}

function decoded(cursor: string): unknown {
  if (!/^[\w-]+$/.test(cursor)) return null;
  try {
    return JSON.parse(Buffer.from(cursor, "base64url").toString());
  } catch {
    return null;
  }
}

function digestFilter(filter: unknown): string {
  return hash("sha256", JSON.stringify(filter), "base64url").slice(0, 16);
}
