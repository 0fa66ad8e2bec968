import type { ClientBase, Pool } from "pg";
import { TOTAL_MAX } from "../../store/page-statements.ts";

/** Rows that are counted for a total: one more than it can be tells of more. */
const COUNTED_MAX = TOTAL_MAX + 1;

export type CappedTotal = { readonly total: number; readonly isTotalCapped: boolean };

/** @param counted as by `countedUpToMax` */
export function cappedTotal(counted: number): CappedTotal {
  return { total: Math.min(counted, TOTAL_MAX), isTotalCapped: counted > TOTAL_MAX };
}

/** How many there are, at most COUNTED_MAX. @param rows from, where and order */
export function countedUpToMax(rows: string): string {
  return `select count(*)::integer from (select from ${rows} limit ${COUNTED_MAX}) as capped`;
}

/** Whether the user $2 of the account $1 is a member of the space $3. */
export const IS_MEMBER =
  "exists (select from workspace.space_members where account_id = $1 and user_id = $2 and space_id = $3)";

/** Whether the id lies below the parameter; every id does, if that is null. */
export function isBelow(id: string, parameter: string): string {
  return `${id} < coalesce(${parameter}::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')`;
}

/** The same, above it. */
export function isAbove(id: string, parameter: string): string {
  return `${id} > coalesce(${parameter}::uuid, '00000000-0000-0000-0000-000000000000')`;
}

export type ListQuery<Row> = {
  /** Of a statement that is prepared once for each connection. Absent: it is planned each time. */
  readonly name?: string;
  /** A condition: whether whoever asks may see the list. */
  readonly isSeen: string;
  /** Selects how many rows the whole list has. */
  readonly counted: string;
  /** Selects the rows from where the page begins on, without order and limit. */
  readonly rows: string;
  /** A column of the rows that is never null, and where the list begins. */
  readonly order: readonly [by: keyof Row & string, direction: "asc" | "desc"];
  readonly values: readonly unknown[];
  readonly limit: number;
};

export type ListPage<Row> = {
  readonly rows: readonly Row[];
  /** The row behind which the next page begins; null: there is none. */
  readonly last: Row | null;
  readonly counted: number;
};

/** In one statement, so that all is of one moment. Null: whoever asks may not see the list. */
export async function readListPage<Row extends object>(
  database: Pool | ClientBase,
  { name, isSeen, counted, rows, order: [by, direction], values, limit }: ListQuery<Row>,
): Promise<ListPage<Row> | null> {
  const text = `
    select page.*, about.*
    from (select ${isSeen} as is_seen, (${counted}) as counted) as about
    left join (
      ${rows} order by "${by}" ${direction} limit $${values.length + 1}
    ) as page on true
    order by page."${by}" ${direction}`;
  type Found = { readonly is_seen: boolean; readonly counted: number } & Row;
  // One more tells whether there is a next page. Where there are none, one row of nulls tells the rest.
  const { rows: found } = await database.query<Found>({ name, text, values: [...values, limit + 1] });
  const about = found[0]!;
  if (!about.is_seen) return null;
  const all = found.filter((row) => row[by] !== null);
  const page = all.slice(0, limit);
  return { rows: page, last: all.length > limit ? page.at(-1)! : null, counted: about.counted };
}
