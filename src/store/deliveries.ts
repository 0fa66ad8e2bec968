import { createHash } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { type DeliveryFilter, indexedCondition, rowCondition } from "./delivery-filter.ts";

/** Rows that a filter without an index walks at most for one page; then the page ends early, with a cursor. */
const WALKED_MAX = 10_000;
/** Totals are exact up to here. */
export const TOTAL_MAX = 10_000;
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

const COLUMNS = `d.id, d.event, d.analysis_id, d.status, d.reason, d.run, d.attempts_count, d.is_example, d.webhook_url,
  d.endpoint_url, d.last_error_code, d.last_status_code`;
const OPEN_COLUMNS = `
extract(epoch from o.due_at) * 1000 as due_at_ms, coalesce(o.lease_until > now(), false) as is_in_flight`;

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
      select ${COLUMNS} from (
        select * from sealpost.deliveries d where ${below} order by d.id desc limit ${WALKED_MAX}
      ) as d
      where ${row.text}
      limit $2
    ), counted as (
      select count(*) filter (where ${row.text}) as matches, count(*) as walked from (
        select * from sealpost.deliveries d where ${indexed.text} order by d.id desc limit ${TOTAL_MAX + 1}
      ) as d
    )
    select d.*, ${OPEN_COLUMNS}, counted.matches::integer as matches, counted.walked::integer as walked,
      case when (select count(*) from page) < $2 then (
        select d.id from sealpost.deliveries d where ${below} order by d.id desc offset ${WALKED_MAX - 1} limit 1
      ) end as walked_to
    from counted
    left join page as d on true
    left join sealpost.open_deliveries as o on o.delivery_id = d.id
    order by d.id desc`;
  const { rows } = await database.query<PageRow>({
    // One prepared statement per set of filters that occurs.
    name: `list_deliveries_${createHash("sha256").update(text).digest("base64url").slice(0, 16)}`,
    text,
    values: [belowId ?? FIRST_ID, limit + 1, ...indexed.values, ...row.values],
  });
  const [first] = rows;
  const found = rows.filter((found) => found.id !== null).map(fromRow);
  const deliveries = found.slice(0, limit);
  const last = deliveries.at(-1);
  return {
    deliveries,
    nextBelowId: found.length > limit && last !== undefined ? last.id : (first?.walked_to ?? null),
    total: Math.min(first?.matches ?? 0, TOTAL_MAX),
    isTotalCapped: (first?.walked ?? 0) > TOTAL_MAX,
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
select ${COLUMNS}, ${OPEN_COLUMNS}, (
  select coalesce(json_agg(json_build_object(
    'run', a.run, 'number', a.number,
    'startedAtMs', extract(epoch from a.started_at) * 1000, 'endedAtMs', extract(epoch from a.ended_at) * 1000,
    'dnsMs', a.dns_ms, 'connectMs', a.connect_ms, 'tlsMs', a.tls_ms, 'firstByteMs', a.first_byte_ms,
    'targetUrl', a.target_url, 'remoteAddress', a.remote_address, 'outcome', a.outcome, 'errorCode', a.error_code,
    'statusCode', a.status_code, 'responseHeaders', a.response_headers::json, 'responseExcerpt', a.response_excerpt
  ) order by a.run, a.number), '[]')
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
  const { rows } = await database.query<Row & { attempts: LoggedAttempt[] }>({
    name: "find_delivery",
    text: FIND,
    values: [accountId, deliveryId],
  });
  const [row] = rows;
  return row === undefined ? null : { delivery: fromRow(row), attempts: row.attempts };
}

type Row = {
  id: string;
  event: string;
  analysis_id: string;
  status: LoggedDelivery["status"];
  reason: string | null;
  run: number;
  attempts_count: number;
  is_example: boolean;
  webhook_url: string | null;
  endpoint_url: string | null;
  last_error_code: string | null;
  last_status_code: number | null;
  due_at_ms: string | null;
  is_in_flight: boolean;
};

type PageRow = Row & { matches: number; walked: number; walked_to: string | null };

function fromRow(row: Row): LoggedDelivery {
  return {
    id: row.id,
    event: row.event,
    analysisId: row.analysis_id,
    status: row.status,
    reason: row.reason,
    run: row.run,
    attemptsCount: row.attempts_count,
    isExample: row.is_example,
    nextAttemptAtMs: row.due_at_ms === null || row.is_in_flight ? null : Number(row.due_at_ms),
    isInFlight: row.is_in_flight,
    webhookUrl: row.webhook_url,
    endpointUrl: row.endpoint_url,
    lastErrorCode: row.last_error_code,
    lastStatusCode: row.last_status_code,
  };
}
