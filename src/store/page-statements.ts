import { type LoggedColumns, loggedColumns } from "./deliveries.ts";
import { type DeliveryFilter, indexedCondition, isEverything, rowCondition } from "./delivery-filter.ts";

/** Totals are exact up to here. */
export const TOTAL_MAX = 10_000;
/** Rows that are looked at for a total, and again for a page whose filter has no index: one more tells of more. */
const LOOKED_AT_MAX = TOTAL_MAX + 1;
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
  accountId: string,
  filter: DeliveryFilter,
  belowId: string | null,
  rowsMax: number,
): Statement {
  const indexed = indexedCondition(accountId, filter, 2);
  const row = rowCondition(filter, 2 + indexed.values.length);
  const values = [rowsMax, ...indexed.values, ...row.values];
  if (row.values.length > 0 && belowId === null) {
    return { text: firstPageOfSome(indexed.text, row.text), values };
  }
  const below = `d.id < $${values.push(belowId ?? FIRST_ID)} and ${indexed.text}`;
  if (row.values.length > 0) return { text: furtherPageOfSome(indexed.text, row.text, below), values };
  const longBy = isEverything(filter) ? lastLookedAt(indexed.text) : "null";
  return { text: pageOfAll(indexed.text, below, longBy), values };
}

/** The index answers the whole filter. */
function pageOfAll(indexed: string, below: string, longBy: string): string {
  return `
    with page as (
      ${newest(below)} limit $1
    ), counted as materialized (
      select count(*)::integer as matches from (${newest(indexed, "1")} limit ${LOOKED_AT_MAX}) as d
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
      ${newest("d.account_id = $2 and d.id < $3")} limit $1
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
function firstPageOfSome(indexed: string, row: string): string {
  return `
    with counted as (
      select count(*)::integer as looked_at, coalesce(array_agg(d.id) filter (where ${row}), '{}') as fitting
      from (${newest(indexed)} limit ${LOOKED_AT_MAX}) as d
    ), page as (
      select d.* from counted, unnest(fitting[1:$1]) as fitting_id, lateral (
        select * from sealpost.deliveries d where d.account_id = $2 and d.id = fitting_id limit 1
      ) as d
    )
    select cardinality(fitting) as matches, looked_at, (${loggedColumns("page")}) as deliveries,
      case when cardinality(fitting) < $1 then (${lastLookedAt(indexed)}) end
        as looked_at_to
    from counted`;
}

function furtherPageOfSome(indexed: string, row: string, below: string): string {
  return `
    with page as (
      select d.* from (${newest(below)} limit ${LOOKED_AT_MAX}) as d where ${row} limit $1
    ), counted as (
      select count(*) filter (where ${row})::integer as matches, count(*)::integer as looked_at
      from (${newest(indexed)} limit ${LOOKED_AT_MAX}) as d
    )
    select matches, looked_at, (${loggedColumns("page")}) as deliveries,
      case when (select count(*) from page) < $1 then (${lastLookedAt(below)}) end
        as looked_at_to
    from counted`;
}

/**
 * Ids are made by this database's clock, so none lies a day ahead, but where the clock was set back by more: such
 * deliveries are in no list until it has caught up. Said in the statement, it spares every page the opening of the
 * empty days that are made ahead, a sixth of its time.
 */
const NOT_A_DAY_AHEAD = "d.id < sealpost.uuid_v7_floor(now() + interval '1 day')";

const newest = (condition: string, columns = "*") =>
  `select ${columns} from sealpost.deliveries d where ${condition} and ${NOT_A_DAY_AHEAD} order by d.id desc`;

/** The last of the rows that are looked at. */
const lastLookedAt = (condition: string) => `${newest(condition, "d.id")} offset ${TOTAL_MAX} limit 1`;
