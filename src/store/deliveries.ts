import { hash } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { type DeliveryFilter, indexedCondition, rowCondition } from "./delivery-filter.ts";

/** Rows that a filter without an index walks at most for one page; then the page ends early, with a cursor. */
const WALKED_MAX = 10_000;
/** Totals are exact up to here. */
const TOTAL_MAX = 10_000;
const FIRST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

/** A delivery as the log has it. Times in ms since the epoch. */
export type LoggedDelivery = {
  readonly id: string;
  readonly event: string;
  readonly analysisId: string;
  readonly status: "pending" | "failed" | "succeeded" | "abandoned";
  readonly reason: string | null;
  readonly run: number;
  readonly attemptsCount: number;
  readonly isExample: boolean;
  /** Null: no attempt is to come, or one is under way. */
  readonly nextAttemptAtMs: number | null;
  readonly isInFlight: boolean;
  /** The attempt under way is of a run before this one: a replay was asked for meanwhile, and begins after it. */
  readonly isWaitingForEarlierRun: boolean;
  readonly webhookUrl: string | null;
  /** Where the last attempt went when there is no webhook_url. */
  readonly endpointUrl: string | null;
  readonly lastErrorCode: string | null;
  readonly lastStatusCode: number | null;
};

export type DeliveryPage = {
  readonly deliveries: readonly LoggedDelivery[];
  /** The next page begins below this id; null: there is none. */
  readonly nextBelowId: string | null;
  readonly total: number;
  /** The total is a lower bound: there are more than are counted. */
  readonly isTotalCapped: boolean;
};

// As one JSON value, because the driver takes four times as long over 50 rows of 14 columns as JSON.parse does; as an
// array, because names would be read again in every row. In the order of `Columns`.
const COLUMNS = `json_build_array(d.id, d.event, d.analysis_id, d.status, d.reason, d.run, d.attempts_count,
  d.is_example, d.webhook_url, d.endpoint_url, d.last_error_code, d.last_status_code,
  extract(epoch from o.due_at) * 1000, coalesce(o.lease_until > now(), false),
  coalesce(o.lease_run < o.run, false))`;

/**
 * A page of the account's log, newest first, in one statement.
 *
 * @param belowId the page's cursor: only older deliveries; null: from the newest
 * @param limit 1 to 100
 */
export async function listDeliveries(
  database: Pool | ClientBase,
  accountId: string,
  filter: DeliveryFilter,
  belowId: string | null,
  limit: number,
): Promise<DeliveryPage> {
  const indexed = indexedCondition(accountId, filter, 3);
  const row = rowCondition(filter, 3 + indexed.values.length);
  const below = `d.id < $1 and ${indexed.text}`;
  const text = `
    with page as (
      select d.* from (
        select * from sealpost.deliveries d where ${below} order by d.id desc limit ${WALKED_MAX}
      ) as d
      where ${row.text}
      limit $2
    ), counted as (
      select count(*) filter (where ${row.text}) as matches, count(*) as walked from (
        select * from sealpost.deliveries d where ${indexed.text} order by d.id desc limit ${TOTAL_MAX + 1}
      ) as d
    )
    select counted.matches::integer as matches, counted.walked::integer as walked, (
        select json_agg(${COLUMNS} order by d.id desc)
        from page as d left join sealpost.open_deliveries as o on o.delivery_id = d.id
      ) as deliveries,
      case when (select count(*) from page) < $2 then (
        select d.id from sealpost.deliveries d where ${below} order by d.id desc offset ${WALKED_MAX - 1} limit 1
      ) end as walked_to
    from counted`;
  const { rows } = await database.query<PageRow>({
    // One prepared statement per set of filters that occurs.
    name: `list_deliveries_${hash("sha256", text, "base64url").slice(0, 16)}`,
    text,
    values: [belowId ?? FIRST_ID, limit + 1, ...indexed.values, ...row.values],
  });
  const { matches, walked, walked_to, deliveries } = rows[0]!;
  const found = (deliveries ?? []).map(fromColumns);
  const page = found.slice(0, limit);
  const last = page.at(-1);
  return {
    deliveries: page,
    nextBelowId: found.length > limit && last !== undefined ? last.id : walked_to,
    total: Math.min(matches, TOTAL_MAX),
    isTotalCapped: walked > TOTAL_MAX,
  };
}

/** One attempt as the log shows it. Times in ms since the epoch, durations in ms; null: did not happen. */
export type LoggedAttempt = {
  readonly run: number;
  readonly number: number;
  readonly startedAtMs: number;
  readonly endedAtMs: number;
  readonly dnsMs: number | null;
  readonly connectMs: number | null;
  readonly tlsMs: number | null;
  readonly firstByteMs: number | null;
  readonly targetUrl: string | null;
  readonly remoteAddress: string | null;
  readonly outcome: string;
  readonly errorCode: string | null;
  readonly statusCode: number | null;
  readonly responseHeaders: Readonly<Record<string, string>> | null;
  readonly responseExcerpt: string | null;
};

const FIND = `
select ${COLUMNS} as delivery, (
  select json_agg(json_build_array(
    a.run, a.number, extract(epoch from a.started_at) * 1000, extract(epoch from a.ended_at) * 1000,
    a.dns_ms, a.connect_ms, a.tls_ms, a.first_byte_ms, a.target_url, a.remote_address, a.outcome, a.error_code,
    a.status_code, a.response_headers::json, a.response_excerpt
  ) order by a.run, a.number)
  from sealpost.attempts a where a.delivery_id = d.id
) as attempts
from sealpost.deliveries d
left join sealpost.open_deliveries o on o.delivery_id = d.id
where d.account_id = $1 and d.id = $2`;

/** One delivery with every attempt, oldest first; null when the account has none of this id. */
export async function findDelivery(
  database: Pool | ClientBase,
  accountId: string,
  deliveryId: string,
): Promise<{ readonly delivery: LoggedDelivery; readonly attempts: readonly LoggedAttempt[] } | null> {
  const { rows } = await database.query<FoundRow>({
    name: "find_delivery",
    text: FIND,
    values: [accountId, deliveryId],
  });
  const [row] = rows;
  if (row === undefined) return null;
  return { delivery: fromColumns(row.delivery), attempts: (row.attempts ?? []).map(attemptFromColumns) };
}

type PageRow = { matches: number; walked: number; walked_to: string | null; deliveries: Columns[] | null };
type FoundRow = { delivery: Columns; attempts: AttemptColumns[] | null };

type Columns = [
  id: string,
  event: string,
  analysisId: string,
  status: LoggedDelivery["status"],
  reason: string | null,
  run: number,
  attemptsCount: number,
  isExample: boolean,
  webhookUrl: string | null,
  endpointUrl: string | null,
  lastErrorCode: string | null,
  lastStatusCode: number | null,
  dueAtMs: number | null,
  isInFlight: boolean,
  isLeaseOfEarlierRun: boolean,
];

// By position: taking an array apart by a pattern walks an iterator, at twice the price.
function fromColumns(columns: Columns): LoggedDelivery {
  const isInFlight = columns[13];
  return {
    id: columns[0],
    event: columns[1],
    analysisId: columns[2],
    status: columns[3],
    reason: columns[4],
    run: columns[5],
    attemptsCount: columns[6],
    isExample: columns[7],
    webhookUrl: columns[8],
    endpointUrl: columns[9],
    lastErrorCode: columns[10],
    lastStatusCode: columns[11],
    nextAttemptAtMs: isInFlight ? null : columns[12],
    isInFlight,
    isWaitingForEarlierRun: isInFlight && columns[14],
  };
}

type AttemptColumns = [
  run: number,
  number: number,
  startedAtMs: number,
  endedAtMs: number,
  dnsMs: number | null,
  connectMs: number | null,
  tlsMs: number | null,
  firstByteMs: number | null,
  targetUrl: string | null,
  remoteAddress: string | null,
  outcome: string,
  errorCode: string | null,
  statusCode: number | null,
  responseHeaders: Readonly<Record<string, string>> | null,
  responseExcerpt: string | null,
];

function attemptFromColumns(columns: AttemptColumns): LoggedAttempt {
  return {
    run: columns[0],
    number: columns[1],
    startedAtMs: columns[2],
    endedAtMs: columns[3],
    dnsMs: columns[4],
    connectMs: columns[5],
    tlsMs: columns[6],
    firstByteMs: columns[7],
    targetUrl: columns[8],
    remoteAddress: columns[9],
    outcome: columns[10],
    errorCode: columns[11],
    statusCode: columns[12],
    responseHeaders: columns[13],
    responseExcerpt: columns[14],
  };
}
