import type { ClientBase, Pool } from "pg";

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

/**
 * Of `deliveries as d` and `open_deliveries as o`, in the order of `LoggedColumns`. As one JSON value, because the
 * driver takes four times as long over 50 rows of 14 columns as JSON.parse does; as an array, because names would be
 * read again in every row.
 */
export const LOGGED_COLUMNS = `json_build_array(d.id, d.event, d.analysis_id, d.status, d.reason, d.run,
  d.attempts_count, d.is_example, d.webhook_url, d.endpoint_url, d.last_error_code, d.last_status_code,
  extract(epoch from o.due_at) * 1000, coalesce(o.lease_until > now(), false),
  coalesce(o.lease_run < o.run, false))`;

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
select ${LOGGED_COLUMNS} as delivery, (
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
  return { delivery: loggedDelivery(row.delivery), attempts: (row.attempts ?? []).map(attemptFromColumns) };
}

type FoundRow = { delivery: LoggedColumns; attempts: AttemptColumns[] | null };

export type LoggedColumns = [
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
export function loggedDelivery(columns: LoggedColumns): LoggedDelivery {
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
