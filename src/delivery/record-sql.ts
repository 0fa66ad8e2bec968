import type { Pool } from "pg";
import { dayOf, queryDay } from "../base/database/partitions.ts";
import type { ErrorCode } from "../base/model/error-codes.ts";
import type { EndReason } from "../base/model/statuses.ts";
import type { PostResult, PostTimings } from "../egress/post/result.ts";

/** One attempt as it ended. Times in ms since the epoch, database time; null: not known or did not happen. */
export type AttemptRow = Readonly<PostTimings> &
  Readonly<Pick<PostResult, "outcome" | "errorCode" | "statusCode" | "remoteAddress" | "responseExcerpt">> & {
    readonly number: number;
    readonly startedAtMs: number;
    readonly endedAtMs: number;
    readonly targetUrl: string;
    /** A JSON object. */
    readonly responseHeaders: string | null;
  };

/** The outcome of a leased delivery. */
export type Recording = {
  readonly deliveryId: string;
  readonly leaseToken: string;
  readonly run: number;
  /** Null: nothing was posted (the run ends without an attempt, or the lease is given back unused). */
  readonly attempt: AttemptRow | null;
  readonly next:
    | { readonly status: "succeeded" }
    | { readonly status: "failed"; readonly dueAtMs: number }
    /** `errorCode`: of what was found wrong without an attempt. */
    | { readonly status: "abandoned"; readonly reason: EndReason; readonly errorCode?: ErrorCode | null }
    /** The lease is given back: due again at dueAtMs, status as it was. */
    | { readonly status: "released"; readonly dueAtMs: number }
    /** Not its turn: the lease is given back, and all is as it was. */
    | { readonly status: "waits" };
  /** Of the time since the run began, how much it waited for its turn, which uses up none of the window. Absent: 0. */
  readonly waitedMs?: number;
};

/**
 * Records the outcomes of leased deliveries in one statement, and moves each delivery if the lease is still ours. A
 * replay that came while the attempt was in flight has raised the row's run: then the attempt is kept in the log, the
 * lease is freed, and only a 2xx still moves the status (the replay falls away).
 *
 * `input` is the one join over unnest; the later steps read it. Joining CTEs with each other goes quadratic. What
 * `= any (array[…])` is for, the claim says.
 */
const recordText = (attempts: string, deliveries: string) => `
with input as (
  select o.account_id, i.*,
    o.run <> i.run and i.status <> 'succeeded' as is_superseded,
    i.status in ('released', 'waits') as is_returned
  from unnest(
    $1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::float8[], $7::integer[], $8::float8[],
    $9::float8[], $10::real[], $11::real[], $12::real[], $13::real[], $14::integer[], $15::text[], $16::text[],
    $17::text[], $18::text[], $19::text[], $20::text[], $21::float8[]
  ) as i (
    delivery_id, lease_token, run, status, reason, due_at_ms, number, started_at_ms,
    ended_at_ms, dns_ms, connect_ms, tls_ms, first_byte_ms, status_code, outcome, error_code,
    target_url, remote_address, response_headers, response_excerpt, waited_ms
  )
  join sealpost.open_deliveries as o on o.delivery_id = any (array[i.delivery_id]) and o.lease_token = i.lease_token
  order by i.delivery_id
  for update of o
), ended as (
  delete from sealpost.open_deliveries as o
  using input
  where o.delivery_id = any (array[input.delivery_id]) and not input.is_superseded
    and input.status in ('succeeded', 'abandoned')
), kept as (
  update sealpost.open_deliveries as o
  set
    lease_token = null, lease_until = null, lease_number = null, lease_alone = false,
    interruptions = case when input.outcome is null then o.interruptions else 0 end,
    attempts_in_run = case when input.is_superseded then o.attempts_in_run
      else o.attempts_in_run + (input.outcome is not null)::integer end,
    run_started_at = nullif(o.run_started_at, case when input.status = 'waits' then o.lease_started_at end)
      + input.waited_ms * interval '1 ms',
    due_at = case when input.is_superseded or input.status = 'waits' then o.due_at
      else to_timestamp(input.due_at_ms / 1000) end,
    wake_at = case when input.is_superseded then o.due_at
      when input.status = 'waits' then now() + interval '15 seconds'
      else to_timestamp(input.due_at_ms / 1000) end
  from input
  where o.delivery_id = any (array[input.delivery_id])
    and (input.is_superseded or input.status in ('failed', 'released', 'waits'))
), logged as (
  insert into ${attempts} (
    delivery_id, account_id, run, number, started_at, ended_at, dns_ms, connect_ms, tls_ms, first_byte_ms, status_code,
    outcome, error_code, target_url, remote_address, response_headers, response_excerpt)
  select delivery_id, account_id, run, number, to_timestamp(started_at_ms / 1000), to_timestamp(ended_at_ms / 1000),
    dns_ms, connect_ms, tls_ms, first_byte_ms, status_code,
    outcome, error_code, target_url, remote_address, response_headers, response_excerpt
  from input where outcome is not null
), told as (
  update ${deliveries} as d
  set
    status = case when input.is_superseded or input.is_returned then d.status else input.status end,
    reason = case when input.is_superseded or input.is_returned then d.reason else input.reason end,
    run = case when input.status = 'succeeded' then input.run else d.run end,
    attempts_count = d.attempts_count + (input.outcome is not null)::integer,
    last_error_code = case
      when input.status = 'succeeded' then null else coalesce(input.error_code, d.last_error_code) end,
    last_status_code = case when input.outcome is null then d.last_status_code else input.status_code end,
    endpoint_url = case when d.webhook_url is null then coalesce(input.target_url, d.endpoint_url) end
  from input
  where d.account_id = any (array[input.account_id]) and d.id = input.delivery_id
    and not (input.is_returned and input.outcome is null)
)
select delivery_id from input`;

/** Returns the ids whose lease was still ours. Of the others, another claim has recorded the attempt. */
export async function recordOutcomes(
  pool: Pool,
  recordings: readonly Recording[],
): Promise<ReadonlySet<string>> {
  const ours = new Set<string>();
  for (const [day, ofDay] of Map.groupBy(recordings, ({ deliveryId }) => dayOf(deliveryId))) {
    const { rows } = await queryDay<{ delivery_id: string }>(pool, day, {
      name: "record",
      text: (partition) => recordText(partition("attempts"), partition("deliveries")),
      values: toColumns(ofDay),
    });
    for (const row of rows) ours.add(row.delivery_id);
  }
  return ours;
}

/**
 * Column by column, as PostgreSQL's array literals. Ids and numbers need no quoting and are joined here, at a fifth of
 * the cost of pg's conversion; any text from outside goes through pg's.
 */
function toColumns(recordings: readonly Recording[]): unknown[] {
  const plain = (pick: (recording: Recording) => string | number | null | undefined) =>
    `{${recordings.map((recording) => pick(recording) ?? "NULL").join(",")}}`;
  const quoted = (pick: (recording: Recording) => string | null) => recordings.map(pick);
  return [
    plain((r) => r.deliveryId),
    plain((r) => r.leaseToken),
    plain((r) => r.run),
    plain((r) => r.next.status),
    plain((r) => (r.next.status === "abandoned" ? r.next.reason : null)),
    plain((r) => (r.next.status === "failed" || r.next.status === "released" ? r.next.dueAtMs : null)),
    plain((r) => r.attempt?.number),
    plain((r) => r.attempt?.startedAtMs),
    plain((r) => r.attempt?.endedAtMs),
    plain((r) => r.attempt?.dnsMs),
    plain((r) => r.attempt?.connectMs),
    plain((r) => r.attempt?.tlsMs),
    plain((r) => r.attempt?.firstByteMs),
    plain((r) => r.attempt?.statusCode),
    plain((r) => r.attempt?.outcome),
    plain((r) => r.attempt?.errorCode ?? ("errorCode" in r.next ? r.next.errorCode : null)),
    quoted((r) => r.attempt?.targetUrl ?? null),
    plain((r) => r.attempt?.remoteAddress),
    quoted((r) => r.attempt?.responseHeaders ?? null),
    quoted((r) => r.attempt?.responseExcerpt ?? null),
    plain((r) => r.waitedMs ?? 0),
  ];
}
