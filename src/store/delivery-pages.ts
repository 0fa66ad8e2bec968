import { hash } from "node:crypto";
import type { Pool } from "pg";
import { LOGGED_COLUMNS, type LoggedColumns, type LoggedDelivery, loggedDelivery } from "./deliveries.ts";
import { type Condition, type DeliveryFilter, indexedCondition, rowCondition } from "./delivery-filter.ts";
import { createLongLogs } from "./long-logs.ts";

/** Totals are exact up to here. */
const TOTAL_MAX = 10_000;
/** Rows that are looked at for a total, and again for a page whose filter has no index: one more tells of more. */
const LOOKED_AT_MAX = TOTAL_MAX + 1;
const FIRST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

export type DeliveryPage = {
  readonly deliveries: readonly LoggedDelivery[];
  /** The next page begins below this id; null: there is none. */
  readonly nextBelowId: string | null;
  readonly total: number;
  /** The total is a lower bound: there are more than are counted. */
  readonly isTotalCapped: boolean;
};

/**
 * A page of the account's log, newest first, in one statement.
 *
 * @param belowId the page's cursor: only older deliveries; null: from the newest
 * @param limit 1 to 100
 */
export type ListDeliveries = (
  accountId: string,
  filter: DeliveryFilter,
  belowId: string | null,
  limit: number,
) => Promise<DeliveryPage>;

export function createListDeliveries(database: Pool): ListDeliveries {
  const longLogs = createLongLogs();
  return async (accountId, filter, belowId, limit) => {
    const { text, values } = pageStatement(accountId, filter, belowId, limit + 1, longLogs.find(accountId));
    const { rows } = await database.query<PageRow>({
      // One prepared statement per set of filters that occurs.
      name: `list_deliveries_${hash("sha256", text, "base64url").slice(0, 16)}`,
      text,
      values: [...values],
    });
    const { matches, looked_at, looked_at_to, long_by, deliveries } = rows[0]!;
    if (long_by) longLogs.remember(accountId, long_by);
    const found = (deliveries ?? []).map(loggedDelivery);
    const page = found.slice(0, limit);
    const last = page.at(-1);
    return {
      deliveries: page,
      nextBelowId: found.length > limit && last !== undefined ? last.id : looked_at_to,
      total: Math.min(matches, TOTAL_MAX),
      isTotalCapped: looked_at > TOTAL_MAX,
    };
  };
}

type PageRow = {
  /** Of the rows that were looked at for the total. */
  matches: number;
  looked_at: number;
  /** The last row that was looked at for the page, where that were too many; null: it is full, or the last one. */
  looked_at_to: string | null;
  /** Of a whole log that is too long to be counted and was not known to be: what shows it. */
  long_by?: string | null;
  deliveries: LoggedColumns[] | null;
};

/**
 * @param rows one more than a page has, which tells whether there is another; $1 of the statement, and the account $2
 * @param longBy a delivery whose presence means that the account's whole log is too long to be counted; null: count
 */
function pageStatement(
  accountId: string,
  filter: DeliveryFilter,
  belowId: string | null,
  rows: number,
  longBy: string | null,
): Condition {
  const indexed = indexedCondition(accountId, filter, 2);
  const row = rowCondition(filter, 2 + indexed.values.length);
  const values = [rows, ...indexed.values, ...row.values];
  if (row.values.length > 0 && belowId === null) {
    return { text: firstPageOfSome(indexed.text, row.text), values };
  }
  const below = `d.id < $${values.push(belowId ?? FIRST_ID)} and ${indexed.text}`;
  if (row.values.length > 0) return { text: furtherPageOfSome(indexed.text, row.text, below), values };
  if (indexed.values.length > 1) return { text: pageOfIndexed(indexed.text, below), values };
  return { text: pageOfWholeLog(indexed.text, below, `$${values.push(longBy)}`), values };
}

function pageOfWholeLog(indexed: string, below: string, longBy: string): string {
  return `
    with page as (
      ${newest(below)} limit $1
    ), known as materialized (
      select exists (select from sealpost.deliveries d where ${indexed} and d.id = ${longBy}) as is_long
    ), counted as materialized (
      select is_long, case when is_long then ${LOOKED_AT_MAX} else (${count(indexed)}) end as matches from known
    )
    select matches, matches as looked_at, null as looked_at_to, (${pageAsJson}) as deliveries,
      case when matches > ${TOTAL_MAX} and not is_long then (${lastLookedAt(indexed)}) end as long_by
    from counted`;
}

/** The index answers the whole filter. */
function pageOfIndexed(indexed: string, below: string): string {
  return `
    with page as (
      ${newest(below)} limit $1
    ), counted as (
      ${count(indexed)}
    )
    select matches, matches as looked_at, null as looked_at_to, (${pageAsJson}) as deliveries
    from counted`;
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
    select cardinality(fitting) as matches, looked_at, (${pageAsJson}) as deliveries,
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
    select matches, looked_at, (${pageAsJson}) as deliveries,
      case when (select count(*) from page) < $1 then (${lastLookedAt(below)}) end
        as looked_at_to
    from counted`;
}

/**
 * Ids are made by this database's clock, so none lies a day ahead. Said in the statement, it spares every page the
 * opening of the empty days that are made ahead, a sixth of its time.
 */
const UP_TO_NOW = "d.id < sealpost.uuid_v7_floor(now() + interval '1 day')";

const newest = (condition: string, columns = "*") =>
  `select ${columns} from sealpost.deliveries d where ${condition} and ${UP_TO_NOW} order by d.id desc`;

const count = (condition: string) =>
  `select count(*)::integer as matches from (${newest(condition, "1")} limit ${LOOKED_AT_MAX}) as d`;

/** The last of the rows that are looked at. */
const lastLookedAt = (condition: string) => `${newest(condition, "d.id")} offset ${TOTAL_MAX} limit 1`;

const pageAsJson = `select json_agg(${LOGGED_COLUMNS} order by d.id desc)
  from page as d left join sealpost.open_deliveries as o on o.delivery_id = d.id`;
