import type { ClientBase, Pool } from "pg";
import type { EventName } from "../base/model/events.ts";
import type { Reader } from "../base/model/reader.ts";
import type { DeliveryStatus, EndReason } from "../base/model/statuses.ts";
import type { AttemptRow } from "../delivery/record-sql.ts";
import { SECRETS_KEPT_MAX } from "../delivery/signing-secrets-sql.ts";
import { type Sight, sightOf } from "../delivery/visibility-sql.ts";

/** A delivery as the log has it. Times in ms since the epoch. */
export type LoggedDelivery = {
  readonly id: string;
  readonly event: EventName;
  readonly analysisId: string;
  readonly status: DeliveryStatus;
  readonly reason: EndReason | null;
  readonly run: number;
  readonly attemptsCount: number;
  readonly isExample: boolean;
  /** Null: no attempt is to come, one is under way, or it is held. */
  readonly nextAttemptAtMs: number | null;
  readonly isInFlight: boolean;
  /** No attempt starts before its endpoint is resumed, and it has been let go. */
  readonly isHeld: boolean;
  /** The attempt under way is of a run before this one: a replay was asked for meanwhile, and begins after it. */
  readonly isWaitingForEarlierRun: boolean;
  readonly webhookUrl: string | null;
  /** Where the last attempt went when there is no webhook_url. */
  readonly endpointUrl: string | null;
  readonly lastErrorCode: string | null;
  readonly lastStatusCode: number | null;
  /** The bulk replay that started the current run; null: none did. */
  readonly replayId: string | null;
};

/**
 * Deliveries with what is open of them, the newest first: an array for each of `LoggedColumns`. As one JSON value,
 * because the driver takes four times as long over 50 rows of 15 columns as JSON.parse does. By columns, because
 * PostgreSQL looks the type of each value up again that it puts into an array made by row, which took a tenth to a
 * quarter of a page's time. `limit 1` makes a lookup of what would be a join, for which a plan made while next to
 * nothing was open reads all that is open, for every row.
 *
 * @param deliveries a relation with the columns of `sealpost.deliveries`
 */
export const loggedColumns = (deliveries: string) => `
  select json_build_array(coalesce(json_agg(id), '[]'), json_agg(event), json_agg(analysis_id), json_agg(status),
    json_agg(reason), json_agg(run), json_agg(attempts_count), json_agg(is_example), json_agg(webhook_url),
    json_agg(endpoint_url), json_agg(last_error_code), json_agg(last_status_code),
    json_agg(extract(epoch from due_at) * 1000), json_agg(is_in_flight), json_agg(is_lease_of_earlier_run),
    json_agg(replay_id), json_agg(is_held))
  from (
    select d.*, o.due_at, coalesce(o.lease_until > now(), false) as is_in_flight,
      coalesce(o.lease_run < o.run, false) as is_lease_of_earlier_run,
      case
        when d.webhook_url is not null or d.status not in ('pending', 'failed') then false
        when o.delivery_id is null then exists (
          select from sealpost.held_deliveries as h where h.account_id = d.account_id and h.delivery_id = d.id)
        when o.lease_until > now() then false
        else exists (
          select from sealpost.endpoints as e
          where e.account_id = d.account_id and e.paused_at is not null
            and o.lane = sealpost.lane(d.account_id, null))
      end as is_held,
      case when d.run > 1 then (
        select replay_id from sealpost.replay_items where delivery_id = d.id and run = d.run limit 1
      ) end as replay_id
    from ${deliveries} as d left join lateral (
      select * from sealpost.open_deliveries where delivery_id = d.id limit 1
    ) as o on true
    order by d.id desc
  ) as logged`;

/** One attempt as the log shows it. Its error code may be one that a newer version has written. */
export type LoggedAttempt = Omit<AttemptRow, "errorCode" | "targetUrl" | "responseHeaders"> & {
  readonly run: number;
  readonly errorCode: string | null;
  readonly targetUrl: string | null;
  readonly responseHeaders: Readonly<Record<string, string>> | null;
};

/**
 * Attempts that a delivery is shown with: every replay adds some, and each has some KiB of its receiver's making. A
 * run has at most 8, so the current one's are among them.
 */
export const ATTEMPTS_SHOWN_MAX = 100;

const columnsOf = (seen: Sight) =>
  loggedColumns(`(select * from sealpost.deliveries as d where account_id = $1 and id = $2${seen.and})`);

const find = (seen: Sight) => `
select (${columnsOf(seen)}) as delivery, (
  select json_agg(json_build_object(
    'run', run, 'number', number, 'startedAtMs', extract(epoch from started_at) * 1000,
    'endedAtMs', extract(epoch from ended_at) * 1000, 'dnsMs', dns_ms, 'connectMs', connect_ms, 'tlsMs', tls_ms,
    'firstByteMs', first_byte_ms, 'targetUrl', target_url, 'remoteAddress', remote_address, 'outcome', outcome,
    'errorCode', error_code, 'statusCode', status_code, 'responseHeaders', response_headers::json,
    'responseExcerpt', response_excerpt
  ) order by run, number)
  from (
    select * from sealpost.attempts where account_id = $1 and delivery_id = $2
    order by run desc, number desc limit ${ATTEMPTS_SHOWN_MAX}
  ) as newest
) as attempts, (
  select json_build_object('analysisBytes', octet_length(analysis::text), 'traceparent', traceparent)
  from sealpost.bodies where account_id = $1 and delivery_id = $2
) as body, (
  select json_agg(json_build_object(
    'createdAtMs', extract(epoch from created_at) * 1000, 'expiresAtMs', extract(epoch from expires_at) * 1000,
    'isFirst', is_first))
  from (
    select s.created_at, s.expires_at, s.created_at = a.created_at as is_first
    from sealpost.signing_secrets as s join sealpost.accounts as a on a.id = s.account_id
    where s.account_id = $1 order by s.id desc limit ${SECRETS_KEPT_MAX}
  ) as newest
) as secrets`;

/** When a secret signed, in ms since the epoch; expiresAtMs null: it is the current one. */
export type SecretLife = {
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  /** The account was made with it. */
  readonly isFirst: boolean;
};

export type FoundDelivery = {
  readonly delivery: LoggedDelivery;
  /** The newest, oldest first. */
  readonly attempts: readonly LoggedAttempt[];
  /** Null: the analysis is no longer kept. */
  readonly body: { readonly analysisBytes: number; readonly traceparent: string | null } | null;
  /** The account's, newest first, as many as can matter. */
  readonly secrets: readonly SecretLife[];
};

/** One delivery with what is known of its newest requests; null when the reader sees none of this id. */
export async function findDelivery(
  database: Pool | ClientBase,
  reader: Reader,
  deliveryId: string,
): Promise<FoundDelivery | null> {
  const seen = sightOf(reader, "d", 3);
  const { rows } = await database.query<FoundRow>({
    name: `find_delivery${seen.name}`,
    text: find(seen),
    values: [reader.accountId, deliveryId, ...seen.values],
  });
  const { delivery: columns, attempts, body, secrets } = rows[0]!;
  const [delivery] = loggedDeliveries(columns);
  if (delivery === undefined) return null;
  return { delivery, attempts: attempts ?? [], body, secrets: secrets ?? [] };
}

/** The same without its requests. */
export async function findLoggedDelivery(
  database: Pool | ClientBase,
  reader: Reader,
  deliveryId: string,
): Promise<LoggedDelivery | null> {
  const seen = sightOf(reader, "d", 3);
  const { rows } = await database.query<{ delivery: LoggedColumns }>({
    name: `find_logged_delivery${seen.name}`,
    text: `select (${columnsOf(seen)}) as delivery`,
    values: [reader.accountId, deliveryId, ...seen.values],
  });
  return loggedDeliveries(rows[0]!.delivery)[0] ?? null;
}

type FoundRow = {
  delivery: LoggedColumns;
  attempts: LoggedAttempt[] | null;
  body: FoundDelivery["body"];
  secrets: SecretLife[] | null;
};

/** Of each column, its values in all rows. Without rows the first is empty, and the others are null. */
export type LoggedColumns = readonly [
  id: readonly string[],
  event: readonly EventName[],
  analysisId: readonly string[],
  status: readonly DeliveryStatus[],
  reason: readonly (EndReason | null)[],
  run: readonly number[],
  attemptsCount: readonly number[],
  isExample: readonly boolean[],
  webhookUrl: readonly (string | null)[],
  endpointUrl: readonly (string | null)[],
  lastErrorCode: readonly (string | null)[],
  lastStatusCode: readonly (number | null)[],
  dueAtMs: readonly (number | null)[],
  isInFlight: readonly boolean[],
  isLeaseOfEarlierRun: readonly boolean[],
  replayId: readonly (string | null)[],
  isHeld: readonly boolean[],
];

/** The newest first. */
export function loggedDeliveries(columns: LoggedColumns): LoggedDelivery[] {
  return columns[0].map((_, row) => loggedDelivery(columns, row));
}

// By position: taking an array apart by a pattern walks an iterator, at twice the price.
function loggedDelivery(columns: LoggedColumns, row: number): LoggedDelivery {
  const isInFlight = columns[13][row]!;
  const isHeld = columns[16][row]!;
  return {
    id: columns[0][row]!,
    event: columns[1][row]!,
    analysisId: columns[2][row]!,
    status: columns[3][row]!,
    reason: columns[4][row]!,
    run: columns[5][row]!,
    attemptsCount: columns[6][row]!,
    isExample: columns[7][row]!,
    webhookUrl: columns[8][row]!,
    endpointUrl: columns[9][row]!,
    lastErrorCode: columns[10][row]!,
    lastStatusCode: columns[11][row]!,
    nextAttemptAtMs: isInFlight || isHeld ? null : columns[12][row]!,
    isInFlight,
    isHeld,
    isWaitingForEarlierRun: isInFlight && columns[14][row]!,
    replayId: columns[15][row]!,
  };
}
