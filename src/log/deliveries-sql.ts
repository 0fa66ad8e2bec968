import type { ClientBase, Pool } from "pg";
import { createdAtMs } from "../base/database/partitions.ts";
import { timeText } from "../base/database/time-text.ts";
import type { Reader } from "../base/model/reader.ts";
import { isoTime } from "../base/model/time.ts";
import { restingBetweenTurns } from "../delivery/receivers-sql.ts";
import { SECRETS_KEPT_MAX } from "../delivery/signing-secrets-sql.ts";
import { type Sight, sightOf } from "../delivery/visibility-sql.ts";
import { ATTEMPTS_SHOWN_MAX, type Attempt, type Delivery } from "./delivery-schema.ts";

/** A delivery as the API answers, with what its explanation depends on besides. */
export type LoggedDelivery = Omit<Delivery, "explanation"> & {
  readonly is_example: boolean;
  /** The attempt under way is of a run before this one: a replay was asked for meanwhile, and begins after it. */
  readonly waits_for_earlier_run: boolean;
  /** It is due, and its receiver has proven nothing: see docs/design.md, Consent. */
  readonly waits_for_proof: boolean;
};

/**
 * Deliveries with what is open of them, the newest first, as `LoggedColumns`. As one JSON value,
 * because the driver takes four times as long over 50 rows of 15 columns as JSON.parse does. By columns, because
 * PostgreSQL looks the type of each value up again that it puts into an array made by row, which took a tenth to a
 * quarter of a page's time. `limit 1` makes a lookup of what would be a join, for which a plan made while next to
 * nothing was open reads all that is open, for every row.
 *
 * @param deliveries a relation with the columns of `sealpost.deliveries`
 */
export const loggedColumns = (deliveries: string) => `
  select json_build_object('id', coalesce(json_agg(id), '[]'), 'event', json_agg(event),
    'analysis_id', json_agg(analysis_id), 'status', json_agg(status), 'reason', json_agg(reason), 'run', json_agg(run),
    'replay_id', json_agg(replay_id), 'attempts_count', json_agg(attempts_count),
    'next_attempt_at', json_agg(case when not is_in_flight and not is_held then ${timeText("due_at")} end),
    'in_flight', json_agg(is_in_flight), 'held', json_agg(is_held),
    'target_url', json_agg(coalesce(webhook_url, endpoint_url)), 'target_source', json_agg(
      case when webhook_url is not null then 'request' when endpoint_url is not null then 'endpoint' end),
    'last_error_code', json_agg(last_error_code), 'last_status_code', json_agg(last_status_code),
    'is_example', json_agg(is_example),
    'waits_for_earlier_run', json_agg(is_in_flight and is_lease_of_earlier_run),
    'waits_for_proof', json_agg(not is_in_flight and coalesce(waits_for_proof, false)))
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
      o.due_at <= now() and ${restingBetweenTurns("d.account_id", "d.webhook_url")} as waits_for_proof,
      case when d.run > 1 then (
        select replay_id from sealpost.replay_items where delivery_id = d.id and run = d.run limit 1
      ) end as replay_id
    from ${deliveries} as d left join lateral (
      select * from sealpost.open_deliveries where delivery_id = d.id limit 1
    ) as o on true
    order by d.id desc
  ) as logged`;

/** One attempt as the API answers, but for what is said of it. Its error code may be one that a newer version wrote. */
export type LoggedAttempt = Omit<Attempt, "error_message" | "answered_by" | "request_headers">;

const columnsOf = (seen: Sight) =>
  loggedColumns(`(select * from sealpost.deliveries as d where account_id = $1 and id = $2${seen.and})`);

/** Of what a user does not see nothing is looked at, so that the time it takes tells nothing. */
const seenOnly = ({ and }: Sight) =>
  and === ""
    ? ""
    : `and exists (select from sealpost.deliveries as d where account_id = $1 and id = $2${and})`;

const find = (seen: Sight) => `
select (${columnsOf(seen)}) as delivery, (
  select coalesce(json_agg(json_build_object('run', run, 'number', number, 'started_at', ${timeText("started_at")},
    'ended_at', ${timeText("ended_at")},
    -- An interrupted one's end is when its lease was over.
    'duration_ms', case when outcome <> 'interrupted'
      then round(extract(epoch from ended_at - started_at) * 1000)::integer end,
    'timings', json_build_object('dns', dns_ms, 'connect', connect_ms, 'tls', tls_ms, 'first_byte', first_byte_ms),
    'target_url', target_url, 'remote_address', remote_address, 'outcome', outcome, 'error_code', error_code,
    'status_code', status_code, 'response_headers', response_headers::json, 'response_excerpt', response_excerpt
  ) order by run, number), '[]')
  from (
    select * from sealpost.attempts where account_id = $1 and delivery_id = $2 ${seenOnly(seen)}
    order by run desc, number desc limit ${ATTEMPTS_SHOWN_MAX}
  ) as newest
) as attempts, (
  select json_build_object('analysisBytes', octet_length(coalesce(reference, analysis::text)),
    'traceparent', traceparent, 'isErased', sealpost.is_erased(analysis))
  from sealpost.bodies where account_id = $1 and delivery_id = $2 ${seenOnly(seen)}
) as body, (
  select coalesce(json_agg(json_build_object(
    'createdAtMs', extract(epoch from created_at) * 1000, 'expiresAtMs', extract(epoch from expires_at) * 1000,
    'isFirst', is_first)), '[]')
  from (
    select s.created_at, s.expires_at, s.created_at = a.created_at as is_first
    from sealpost.signing_secrets as s join sealpost.accounts as a on a.id = s.account_id
    where s.account_id = $1 ${seenOnly(seen)} order by s.id desc limit ${SECRETS_KEPT_MAX}
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
  readonly body: {
    readonly analysisBytes: number;
    readonly traceparent: string | null;
    readonly isErased: boolean;
  } | null;
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
  const { rows } = await database.query<Omit<FoundDelivery, "delivery"> & { delivery: LoggedColumns }>({
    name: `find_delivery${seen.name}`,
    text: find(seen),
    values: [reader.accountId, deliveryId, ...seen.values],
  });
  const found = rows[0]!;
  const [delivery] = loggedDeliveries(found.delivery);
  return delivery === undefined ? null : { ...found, delivery };
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

/** Of each column, its values in all rows. Without rows that of ids is empty, and the others are null. */
export type LoggedColumns = {
  readonly [Name in Exclude<keyof LoggedDelivery, "created_at">]: readonly LoggedDelivery[Name][];
};

/** The newest first. Each is written out: a loop over the names takes twice as long. */
export function loggedDeliveries(columns: LoggedColumns): LoggedDelivery[] {
  return columns.id.map((id, row) => ({
    id,
    event: columns.event[row]!,
    analysis_id: columns.analysis_id[row]!,
    created_at: isoTime(createdAtMs(id)),
    status: columns.status[row]!,
    reason: columns.reason[row]!,
    run: columns.run[row]!,
    replay_id: columns.replay_id[row]!,
    attempts_count: columns.attempts_count[row]!,
    next_attempt_at: columns.next_attempt_at[row]!,
    in_flight: columns.in_flight[row]!,
    held: columns.held[row]!,
    target_url: columns.target_url[row]!,
    target_source: columns.target_source[row]!,
    last_error_code: columns.last_error_code[row]!,
    last_status_code: columns.last_status_code[row]!,
    is_example: columns.is_example[row]!,
    waits_for_earlier_run: columns.waits_for_earlier_run[row]!,
    waits_for_proof: columns.waits_for_proof[row]!,
  }));
}
