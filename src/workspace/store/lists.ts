import { type CappedPage, cappedTotal, cutPage, LOOKED_AT_MAX } from "../../base/model/list-page.ts";
import type { Database, SpaceUser } from "./statements.ts";

/** Whether the id lies below the parameter; every id does, if that is null. */
export function isBelow(id: string, parameter: string): string {
  return `${id} < coalesce(${parameter}::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')`;
}

/** The same, above it. */
export function isAbove(id: string, parameter: string): string {
  return `${id} > coalesce(${parameter}::uuid, '00000000-0000-0000-0000-000000000000')`;
}

/**
 * An expression `accounts` of `with recursive`: the accounts behind this one that have such rows, in order, each found
 * by one look into an index; so an account with many rows costs no more than one with few.
 */
export function accountsBehind(accountId: string, table: string, condition = "true"): string {
  const next = (after: string) =>
    `select account_id from ${table} where ${condition} and account_id > ${after} order by account_id limit 1`;
  return `accounts as (
        (${next(accountId)})
        union all
        select following.account_id from accounts
        cross join lateral (${next("accounts.account_id")}) as following
      )`;
}

/** Before every account; and the same in SQL. */
const FIRST_ACCOUNT = "00000000-0000-0000-0000-000000000000";
export const BEFORE_ALL = `'${FIRST_ACCOUNT}'::uuid`;

/** Claims for one account after the other, and behind the last one from the first again. Null: nobody has any. */
export function byTurns<Claimed extends { readonly accountId: string }>(
  claim: (afterAccountId: string) => Promise<Claimed | null>,
): () => Promise<Claimed | null> {
  let last = FIRST_ACCOUNT;
  return async () => {
    const next = await claim(last);
    const claimed = next === null && last !== FIRST_ACCOUNT ? await claim(FIRST_ACCOUNT) : next;
    last = claimed?.accountId ?? FIRST_ACCOUNT;
    return claimed;
  };
}

export type ListQuery<Row, Position> = {
  /** Of a statement that is prepared once for each connection. Absent: it is planned each time. */
  readonly name?: string;
  /** Expressions that the others have in common; none is looked at for whoever may not see the list. */
  readonly with?: string;
  /** A condition: whether whoever asks may see the list. */
  readonly isSeen: string;
  /** Of the whole list. `upToMax`: from, where and order of its rows; `exactly`: a statement that counts them. */
  readonly total: { readonly upToMax: string } | { readonly exactly: string };
  /** Selects the rows from where the page begins on, without order and limit; it ends in its conditions. */
  readonly rows: string;
  /** A column of the rows that is never null, and where the list begins. */
  readonly order: readonly [by: ColumnOf<Row, Position>, direction: "asc" | "desc"];
};

/** A column of this type. */
type ColumnOf<Row, Type> = string & { [Name in keyof Row]: Row[Name] extends Type ? Name : never }[keyof Row];

/**
 * Reads a page of the list in a place, in one statement, so that all is of one moment. `$1` is the account, `$2` the
 * user, then come the place and where the page begins: null, at the list's beginning. Resolves with null when the user
 * may not see the list; then nothing of it is looked at, so that the time it takes tells nothing.
 */
export function listOf<Row extends object, Place extends readonly unknown[], Position = string>(
  query: ListQuery<Row, Position>,
) {
  const { name, isSeen, total, rows } = query;
  const common = query.with === undefined ? "" : `with ${query.with}`;
  const [by, direction] = query.order;
  const counted =
    "exactly" in total
      ? total.exactly
      : `select count(*)::integer from (select from ${total.upToMax} limit ${LOOKED_AT_MAX}) as capped`;
  type Found = { readonly is_seen: boolean; readonly counted: number } & Row;
  return async (
    database: Database,
    { accountId, userId }: SpaceUser,
    place: Place,
    from: Position | null,
    limit: number,
  ): Promise<CappedPage<Row, Position> | null> => {
    // One more tells whether there is a next page.
    const values = [accountId, userId, ...place, from, limit + 1];
    const text = `
      ${common}
      select page.*, about.*
      from (
        select seen.*, case when is_seen then (${counted}) end as counted
        from (select ${isSeen} as is_seen offset 0) as seen
      ) as about
      left join lateral (
        ${rows} and about.is_seen order by "${by}" ${direction} limit $${values.length}
      ) as page on true
      order by page."${by}" ${direction}`;
    const { rows: found } = await database.query<Found>({ name, text, values });
    // Where there are none, one row of nulls tells the rest.
    const about = found[0]!;
    if (!about.is_seen) return null;
    const all = found
      .filter((row) => row[by] !== null)
      .map(({ is_seen: _, counted: __, ...row }) => row as unknown as Row);
    return {
      ...cutPage<Row, Position>(all, limit, (row) => row[by] as Position),
      ...("exactly" in total ? { total: about.counted, isTotalCapped: false } : cappedTotal(about.counted)),
    };
  };
}
