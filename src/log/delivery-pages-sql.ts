import { hash } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import type { ReadLog } from "../base/database/log-reader.ts";
import { TtlMap } from "../base/model/caches.ts";
import { type CappedPage, cutPage, LOOKED_AT_MAX, TOTAL_MAX } from "../base/model/list-page.ts";
import type { FindWorkflowDeliveries } from "../base/model/origins.ts";
import type { Reader } from "../base/model/reader.ts";
import { REPLAYABLE_STATUSES } from "../base/model/statuses.ts";
import { isoTime } from "../base/model/time.ts";
import { sightOf } from "../delivery/visibility-sql.ts";
import {
  type LoggedColumns,
  type LoggedDelivery,
  loggedColumns,
  loggedDeliveries,
} from "./deliveries-sql.ts";
import { FOUND_MAX, ID_BEGINNING, idsFrom, type SearchedFilter } from "./delivery-filter-api.ts";
import { isEverything, type Lead, leadOf, type PageFilter, pageConditions } from "./delivery-filter-sql.ts";

/** A way to read an account's deliveries, newest first, along an index, and no further than the limit. */
export type Newest = {
  /** The delivery's id as the index has it: a bound on it is a place in the index. */
  readonly id: string;
  /** At most `limit`, a number or a parameter. `condition`: over `deliveries as d`, all of it in an index. */
  select(condition: string, limit: string | number, columns?: "d.*" | "d.id"): string;
};

/**
 * Ids are made by this database's clock, so none lies a day ahead, but where the clock was set back by more: such
 * deliveries are in no list until it has caught up. Said in the statement, it spares every page the opening of the
 * empty days that are made ahead, a sixth of its time.
 */
const NOT_A_DAY_AHEAD = "d.id < sealpost.uuid_v7_floor(now() + interval '1 day')";

const NEWEST_OF_LOG: Newest = {
  id: "d.id",
  select: (condition, limit, columns = "d.*") =>
    `select ${columns} from sealpost.deliveries d where ${condition} and ${NOT_A_DAY_AHEAD}
      order by d.id desc limit ${limit}`,
};

/**
 * Failed and abandoned ones together. The partial index has them by status, then id, so each status is read by itself
 * and the two are merged. An index of both by id would cost every attempt that fails one more entry.
 */
const NEWEST_UNDELIVERED: Newest = {
  id: "d.id",
  select: (condition, limit, columns = "d.*") => {
    const each = REPLAYABLE_STATUSES.map(
      (status) => `(${NEWEST_OF_LOG.select(`d.status = '${status}' and ${condition}`, limit, columns)})`,
    );
    return `select * from (${each.join(" union all ")}) as d order by id desc limit ${limit}`;
  },
};

/** Those whose current run a replay has started: its items are numbered in the order of their deliveries. */
const NEWEST_OF_REPLAY: Newest = {
  id: "i.delivery_id",
  select: (condition, limit, columns = "d.*") =>
    `select ${columns} from sealpost.replay_items i
      join sealpost.deliveries d on d.id = i.delivery_id and d.run = i.run
      where ${condition} order by i.position desc limit ${limit}`,
};

const NEWEST: Readonly<Record<Lead, Newest>> = {
  log: NEWEST_OF_LOG,
  status: NEWEST_OF_LOG,
  undelivered: NEWEST_UNDELIVERED,
  analysis: NEWEST_OF_LOG,
  replay: NEWEST_OF_REPLAY,
  found: NEWEST_OF_LOG,
};

export const newestOf = (filter: PageFilter) => NEWEST[leadOf(filter)];

/**
 * It is remembered which accounts' logs are too long to be counted. Deliveries leave the log by whole days, oldest
 * first: as long as the one at position 10,001 is there, so are those before it, and nothing has to be counted.
 *
 * One exception: a day with an open delivery stays while younger days leave. Such a log may be taken for a long one for
 * up to this long.
 */
export const BELIEVED_MS = 600_000;
/** Some 2 MB. */
const LONG_LOGS_MAX = 10_000;

const FIRST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

type Statement = { readonly text: string; readonly values: unknown[] };

/** The one row that a page's statement returns. */
type PageRow = {
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
function pageStatement(
  reader: Reader,
  filter: PageFilter,
  belowId: string | null,
  rowsMax: number,
): Statement {
  const values: unknown[] = [rowsMax];
  const { indexed, row } = pageConditions(values, reader, filter);
  const newest = newestOf(filter);
  if (row !== null && belowId === null) return { text: firstPageOfSome(newest, indexed, row), values };
  const below = `${newest.id} < $${values.push(belowId ?? FIRST_ID)} and ${indexed}`;
  if (row !== null) return { text: furtherPageOfSome(newest, indexed, row, below), values };
  const longBy = isEverything(filter) ? lastLookedAt(newest, indexed) : "null";
  return { text: pageOfAll(newest, indexed, below, longBy), values };
}

/** The index answers the whole filter, and the reader sees the whole account. */
function pageOfAll(newest: Newest, indexed: string, below: string, longBy: string): string {
  const counted = `select count(*)::integer as matches from (${newest.select(indexed, LOOKED_AT_MAX, "d.id")}) as d`;
  return pageWith(
    newest.select(below, "$1"),
    counted,
    `case when matches > ${TOTAL_MAX} then (${longBy}) end`,
  );
}

/** A page of the whole log while it is too long to be counted: of no row once `longBy` has left it. */
function pageOfLongLog(
  accountId: string,
  belowId: string | null,
  rowsMax: number,
  longBy: string,
): Statement {
  const page = NEWEST_OF_LOG.select("d.account_id = $2 and d.id < $3", "$1");
  const isLong = "exists (select from sealpost.deliveries d where d.account_id = $2 and d.id = $4)";
  const text = pageWith(page, `select ${LOOKED_AT_MAX} as matches where ${isLong}`, "null");
  return { text, values: [rowsMax, accountId, belowId ?? FIRST_ID, longBy] };
}

const pageWith = (page: string, counted: string, longBy: string) => `
    with page as (${page}), counted as materialized (${counted})
    select matches, matches as looked_at, null as looked_at_to, (${loggedColumns("page")}) as deliveries,
      ${longBy} as long_by
    from counted`;

/** Rows are looked at once, for page and total. `limit 1`: or all of the account's would be joined with the 51. */
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

export type ListDeliveries = ReturnType<typeof createListDeliveries>;

/** @param monotonicMs milliseconds that only ever grow */
export function createListDeliveries(
  readLog: ReadLog,
  monotonicMs: () => number,
  findWorkflowDeliveries: FindWorkflowDeliveries = async () => [],
) {
  const longLogs = new TtlMap<string, string>(LONG_LOGS_MAX, monotonicMs);

  async function read(
    database: Pool | ClientBase,
    { text, values }: Statement,
  ): Promise<PageRow | undefined> {
    // Of few texts, whatever is asked: see `pageConditions`.
    const name = `list_deliveries_${hash("sha256", text, "base64url").slice(0, 16)}`;
    return (await database.query<PageRow>({ name, text, values })).rows[0];
  }

  /**
   * A page of the log as the reader sees it, newest first. In one statement; in two when a day has just left it.
   *
   * @param belowId the page's cursor: only older deliveries; null: from the newest
   * @param limit 1 to 100
   */
  return async (
    reader: Reader,
    { q = null, workflow_id = null, ...asked }: SearchedFilter,
    belowId: string | null,
    limit: number,
  ): Promise<CappedPage<LoggedDelivery>> => {
    const { accountId, spaceIds } = reader;
    // One more than a page has, which tells whether there is another.
    const rowsMax = limit + 1;
    const ofWorkflow =
      workflow_id === null ? null : await findWorkflowDeliveries(reader, workflow_id, FOUND_MAX);
    let isCut = false;
    const row = await readLog(async (database) => {
      isCut = ofWorkflow?.length === FOUND_MAX;
      const searched = q === null ? {} : await findByIds(database, reader, q);
      const found =
        ofWorkflow?.filter((id) => searched.found == null || searched.found.includes(id)) ?? searched.found;
      const filter: PageFilter = { ...asked, ...searched, found, ...bothTimes(asked, searched) };
      const isWhole = isEverything(filter) && spaceIds === null;
      const longBy = isWhole ? longLogs.get(accountId) : undefined;
      if (longBy !== undefined) {
        const known = await read(database, pageOfLongLog(accountId, belowId, rowsMax, longBy));
        if (known !== undefined) return known;
        longLogs.delete(accountId);
      }
      const counted = (await read(database, pageStatement(reader, filter, belowId, rowsMax)))!;
      if (counted.long_by) longLogs.set(accountId, counted.long_by, BELIEVED_MS);
      return counted;
    });
    const { items, next } = cutPage(loggedDeliveries(row.deliveries), limit, ({ id }) => id);
    return {
      items,
      next: next ?? row.looked_at_to,
      total: Math.min(row.matches, TOTAL_MAX),
      isTotalCapped: row.looked_at > TOTAL_MAX || isCut,
    };
  };
}

/** Analyses of an account whose ids are looked at, from the first that the text could be the beginning of. */
const ANALYSES_LOOKED_AT_MAX = 1_000;

/** As many deliveries are looked at for those that a user sees. */
const DELIVERIES_LOOKED_AT_MAX = 1_000;

/**
 * Deliveries that the reader sees and whose own or whose analysis's id begins with this, or what to look for in the
 * log: where there are too many, by the beginning or the time that all of them have; where there are none, by a host.
 *
 * In any collation a text stands before those that it begins, and close to them; their end is known in none but "C", so
 * that it is looked for from there on. An index in "C" would burden publishing.
 */
async function findByIds(database: Pool | ClientBase, reader: Reader, search: string): Promise<PageFilter> {
  const seen = sightOf(reader, "d", 5);
  const [firstId, lastId] = ID_BEGINNING.test(search) ? idsFrom(search) : [null, null];
  const { rows } = await database.query<{ id: string }>({
    name: `find_by_ids${seen.name}`,
    text: `select d.id from (
        select delivery_id as id from (
          select id, delivery_id from sealpost.analyses where account_id = $1 and id >= $2
          order by id limit ${ANALYSES_LOOKED_AT_MAX}) as a
        where starts_with(a.id, $2)
        union
        select d.id from (
          select id, space_id from sealpost.deliveries where account_id = $1 and id between $3 and $4
          order by id desc limit ${DELIVERIES_LOOKED_AT_MAX}) as d
        where true${seen.and}
      ) as found cross join lateral (
        select d.id from sealpost.deliveries as d where d.account_id = $1 and d.id = found.id${seen.and} limit 1
      ) as d
      order by d.id desc limit ${FOUND_MAX}`,
    values: [reader.accountId, search, firstId, lastId, ...seen.values],
  });
  if (rows.length === 0) return { host_begin: search };
  if (rows.length < FOUND_MAX) return { found: rows.map(({ id }) => id) };
  if (firstId === null || lastId === null) return { analysis_begin: search };
  return { created_after: timeOf(firstId, 0), created_before: timeOf(lastId, 1) };
}

/** Within what both ask for. */
function bothTimes(...filters: readonly PageFilter[]): PageFilter {
  const sorted = (name: "created_after" | "created_before") =>
    filters.flatMap((filter) => filter[name] ?? []).sort((one, other) => Date.parse(one) - Date.parse(other));
  return { created_after: sorted("created_after").at(-1), created_before: sorted("created_before")[0] };
}

const timeOf = (id: string, laterMs: number) => isoTime(Number.parseInt(id.slice(0, 12), 16) + laterMs);
