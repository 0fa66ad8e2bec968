import { TOTAL_MAX } from "../../store/page-statements.ts";

/** Rows that are counted for a total: one more than it can be tells of more. */
export const COUNTED_MAX = TOTAL_MAX + 1;

export type CappedTotal = { readonly total: number; readonly isTotalCapped: boolean };

/** @param counted up to COUNTED_MAX */
export function cappedTotal(counted: number): CappedTotal {
  return { total: Math.min(counted, TOTAL_MAX), isTotalCapped: counted > TOTAL_MAX };
}

export type FoundPage<Row> = {
  readonly page: readonly Row[];
  /** Of the last row, behind which the next page begins; null: there is none. */
  readonly nextId: string | null;
};

/**
 * Of rows with what is told about them all, of which one more was asked for than `limit`. Where there are none, one
 * with nulls in their place tells it.
 */
export function cutPage<Name extends string, Row extends { readonly [Key in Name]: string }>(
  rows: readonly Row[],
  idName: Name,
  limit: number,
): FoundPage<Row> {
  const found = rows.filter((row) => row[idName] !== null);
  const page = found.slice(0, limit);
  return { page, nextId: found.length > limit ? (page.at(-1)?.[idName] ?? null) : null };
}

/** Whether the user $2 of the account $1 is a member of the space $3, which has the folder $4. Null: its top. */
export const IS_SEEN = `
exists (select from workspace.space_members where account_id = $1 and user_id = $2 and space_id = $3)
and ($4::uuid is null
  or exists (select from workspace.folders where account_id = $1 and space_id = $3 and id = $4))`;
