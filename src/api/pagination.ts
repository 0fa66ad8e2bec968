import { hash } from "node:crypto";
import { z } from "zod";
import { CURSOR_CHARS_MAX, PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX } from "./limits.ts";
import { invalidRequest } from "./problems.ts";

/** The query parameters of every list; an operation adds its filters to them. */
export const pageQuery = {
  cursor: z
    .string()
    .min(1)
    .max(CURSOR_CHARS_MAX)
    .optional()
    .describe("Where to go on: `next_cursor` of the page before, with the same filters."),
  limit: z.int().min(1).max(PAGE_ITEMS_MAX).default(PAGE_ITEMS_DEFAULT).describe("Items of a page."),
} as const;

/** The body of every list. */
export function pageOf<Item extends z.ZodType>(item: Item) {
  return z.object({
    items: z.array(item),
    next_cursor: z.string().nullable().describe("Null on the last page."),
    total: z.int().min(0).describe("How many there are in all; with `Total-Capped: true`, at least so many."),
  });
}

/** For the `jsonResponse` of a list whose total may be too large to be counted. */
export const totalCappedHeader = {
  "Total-Capped": "`true` when `total` is only a lower bound.",
} as const;

/** The header for a total that was counted up to a cap. */
export function totalHeaders(isCapped: boolean): { readonly "Total-Capped"?: string } {
  return isCapped ? { "Total-Capped": "true" } : {};
}

/** Writes and reads the cursors of one list. */
export type Cursors<Position> = {
  /** `filter`: what the list was asked for, account included, without cursor and limit. */
  write(position: Position, filter: unknown): string;
  /** Null for the first page. Throws 400 for a cursor of another filter, or of no list at all. */
  read(cursor: string | undefined, filter: unknown): Position | null;
};

const VERSION = 1;

/**
 * `position` says what a position in the list is, such as the sort key of a page's last item. A cursor is opaque but
 * neither secret nor signed: whoever forges one starts elsewhere in what they may read anyway. Positions are checked
 * against the schema, for they go into a query.
 */
export function createCursors<Position>(position: z.ZodType<Position>): Cursors<Position> {
  const written = z.tuple([z.literal(VERSION), z.string(), position]);
  return {
    write: (last, filter) =>
      Buffer.from(JSON.stringify([VERSION, digestFilter(filter), last])).toString("base64url"),
    read: (cursor, filter) => {
      if (cursor === undefined) return null;
      const read = written.safeParse(decoded(cursor));
      if (!read.success) throw invalidRequest("query.cursor", "Not a cursor of this list.");
      const [, digest, last] = read.data;
      if (digest !== digestFilter(filter)) {
        throw invalidRequest(
          "query.cursor",
          "The cursor is of a list with other filters; begin again without it.",
        );
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
