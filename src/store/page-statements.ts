import { LOOKED_AT_MAX, TOTAL_MAX } from "../model/list-page.ts";
import type { Reader } from "../model/reader.ts";
import { type LoggedColumns, loggedColumns } from "./deliveries.ts";
import { type DeliveryFilter, isEverything, pageConditions } from "./delivery-filter.ts";
import { NEWEST_OF_LOG, type Newest, newestOf } from "./newest-deliveries.ts";

const FIRST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

export type Statement = { readonly text: string; readonly values: readonly unknown[] };

/** The one row that a page's statement returns. */
export type PageRow = {
  /** Of the rows that were looked at for the total. */
  readonly matches: number;
  readonly looked_at: number;
  /** The last row that was looked at for the page, where that were too many; null: it is full, or the last one. */
  readonly looked_at_to: string | null;
  /** Of the whole log, where it is too long to be counted: the delivery whose presence shows it. */
  readonly long_by?: string | null;
  readonly deliveries: LoggedColumns;
};

/** `rowsMax` is $1, and the account $2. */
export function pageStatement(
  reader: Reader,
  filter: DeliveryFilter,
  belowId: string | null,
  rowsMax: number,
): Statement {
  const { indexed, row } = pageConditions(reader, filter, 2);
  const newest = newestOf(filter);
  const values = [rowsMax, ...indexed.values, ...row.values];
  if (row.values.length > 0 && belowId === null) {
    return { text: firstPageOfSome(newest, indexed.text, row.text), values };
  }
  const below = `${newest.id} < $${values.push(belowId ?? FIRST_ID)} and ${indexed.text}`;
  if (row.values.length > 0)
    return { text: furtherPageOfSome(newest, indexed.text, row.text, below), values };
  const longBy = isEverything(filter) ? lastLookedAt(newest, indexed.text) : "null";
  return { text: pageOfAll(newest, indexed.text, below, longBy), values };
}

/** The index answers the whole filter, and the reader sees the whole account. */
function pageOfAll(newest: Newest, indexed: string, below: string, longBy: string): string {
  return `
    with page as (
      ${newest.select(below, "$1")}
    ), counted as materialized (
      select count(*)::integer as matches from (${newest.select(indexed, LOOKED_AT_MAX, "d.id")}) as d
    )
    select matches, matches as looked_at, null as looked_at_to, (${loggedColumns("page")}) as deliveries,
      case when matches > ${TOTAL_MAX} then (${longBy}) end as long_by
    from counted`;
}

/** A page of the whole log while it is too long to be counted: of no row once `longBy` has left it. */
export function pageOfLongLog(
  accountId: string,
  belowId: string | null,
  rowsMax: number,
  longBy: string,
): Statement {
  const text = `
    with page as (
      ${NEWEST_OF_LOG.select("d.account_id = $2 and d.id < $3", "$1")}
    )
    select ${LOOKED_AT_MAX} as matches, ${LOOKED_AT_MAX} as looked_at, null as looked_at_to,
      (${loggedColumns("page")}) as deliveries
    where exists (select from sealpost.deliveries d where d.account_id = $2 and d.id = $4)`;
  return { text, values: [rowsMax, accountId, belowId ?? FIRST_ID, longBy] };
}

/**
 * Rows are looked at once, for the page and for the total. `limit 1` keeps the planner from joining the other way
 * round, all rows of the account with the 51.
 */
function firstPageOfSome(newest: Newest, indexed: string, row: string): string {
  return `
    with counted as (
      select count(*)::integer as looked_at, coalesce(array_agg(d.id) filter (where ${row}), '{}') as fitting
      from (${newest.select(indexed, LOOKED_AT_MAX)}) as d
    ), page as (
      select d.* from counted, unnest(fitting[1:$1]) as fitting_id, lateral (
        select * from sealpost.deliveries d where d.account_id = $2 and d.id = fitting_id limit 1
      ) as d
    )
    select cardinality(fitting) as matches, looked_at, (${loggedColumns("page")}) as deliveries,
      case when cardinality(fitting) < $1 then (${lastLookedAt(newest, indexed)}) end
        as looked_at_to
    from counted`;
}

function furtherPageOfSome(newest: Newest, indexed: string, row: string, below: string): string {
  return `
    with page as (
      select d.* from (${newest.select(below, LOOKED_AT_MAX)}) as d where ${row} limit $1
    ), counted as (
      select count(*) filter (where ${row})::integer as matches, count(*)::integer as looked_at
      from (${newest.select(indexed, LOOKED_AT_MAX)}) as d
    )
    select matches, looked_at, (${loggedColumns("page")}) as deliveries,
      case when (select count(*) from page) < $1 then (${lastLookedAt(newest, below)}) end
        as looked_at_to
    from counted`;
}

/** The last of the rows that are looked at. */
const lastLookedAt = (newest: Newest, condition: string) =>
  `select id from (${newest.select(condition, LOOKED_AT_MAX, "d.id")}) as looked offset ${TOTAL_MAX} limit 1`;
