import type { Pool } from "pg";

/** One attempt, leased: all that is needed to post it. Times in ms since the epoch, database time. */
export type LeasedDelivery = {
  readonly kind: "leased";
  readonly deliveryId: string;
  readonly accountId: string;
  readonly lane: string;
  readonly leaseToken: string;
  readonly run: number;
  /** 1-based position of this attempt in its run; null when the run's attempts are used up. */
  readonly number: number | null;
  readonly runStartedAtMs: number;
  /** An earlier attempt was found cut and has just been written down as interrupted. */
  readonly wasInterrupted: boolean;
  /** … and it had been posted alone. */
  readonly wasInterruptedAlone: boolean;
  readonly createdAtMs: number;
  readonly event: string;
  readonly analysisId: string;
  readonly webhookUrl: string | null;
  readonly endpointUrl: string | null;
  /** Null: the body's partition is gone. */
  readonly analysisText: string | null;
  readonly bodyBytes: number;
  readonly traceparent: string | null;
  /** Valid signing secrets, the current first, as `id:base64 of the sealed text`. */
  readonly sealedSecrets: readonly string[];
};

/**
 * What a claim did with an id that was due: took it, found that it has to be posted alone, or left it for later because
 * the bytes were used up. An id that is not due, is leased or is gone does not come back at all.
 */
export type ClaimedDelivery =
  | LeasedDelivery
  | { readonly kind: "must_go_alone" | "left"; readonly deliveryId: string; readonly lane: string };

/**
 * Leases everything that may start now, in one statement. The lease is the open attempt: no row is written for it until
 * it ends. A claim that finds an expired lease writes the attempt that it stood for down as `interrupted`.
 *
 * When the answer was lost, the same claim with the same token may be made again, as long as nothing was posted under
 * it: what the first one leased comes back as if it were new.
 *
 * Losing option: an attempt row opened at the claim and closed at the record; it cost three times as much PostgreSQL.
 */
const CLAIM = `
with due as (
  select delivery_id, account_id, lane, interruptions, body_bytes,
    lease_number is not null and lease_token is distinct from $2::uuid as was_cut,
    coalesce(lease_run = run, false) as cut_counts,
    lease_alone and lease_run = run and (lease_number is null or lease_token is distinct from $2::uuid)
      as was_cut_alone,
    lease_run, lease_number, lease_started_at, lease_until
  from sealpost.open_deliveries
  where delivery_id = any ($1::uuid[])
    and due_at <= coalesce($6::timestamptz, now())
    and (lease_until is null or lease_until <= coalesce($6::timestamptz, now()) or lease_token = $2::uuid)
  order by delivery_id
  for update skip locked
), judged as (
  select *, interruptions + was_cut::integer as interruptions_now,
    case
      when not (row_number() over in_order = 1 or sum(body_bytes) over in_order <= $4::bigint) then 'left'
      when interruptions + was_cut::integer >= $7::integer and not $5::boolean and not was_cut_alone
        then 'must_go_alone'
      else 'leased'
    end as kind
  from due
  window in_order as (order by delivery_id)
), claimed as (
  update sealpost.open_deliveries as o
  set
    attempts_in_run = o.attempts_in_run + (judged.was_cut and judged.cut_counts)::integer,
    interruptions = judged.interruptions_now,
    run_started_at = case when judged.kind = 'leased'
      then coalesce(o.run_started_at, coalesce($6::timestamptz, now())) else o.run_started_at end,
    lease_token = case when judged.kind = 'leased' then $2::uuid end,
    lease_until = case when judged.kind = 'leased'
      then coalesce($6::timestamptz, now()) + $3::float8 * interval '1 millisecond' end,
    lease_started_at = coalesce($6::timestamptz, now()),
    lease_run = o.run,
    -- No number, no attempt: a lease that is only for ending a run, because its attempts are used up, or because
    -- the last one was cut although it was alone (which stays known until the run has ended).
    lease_number = case when judged.kind = 'leased' and not judged.was_cut_alone then nullif(
      o.attempts_in_run + (judged.was_cut and judged.cut_counts)::integer + 1, $8::integer + 1) end,
    lease_alone = $5::boolean or judged.was_cut_alone,
    wake_at = case when judged.kind = 'leased'
      then least(o.wake_at, coalesce($6::timestamptz, now()) + $3::float8 * interval '1 millisecond')
      else o.wake_at end
  from judged
  where o.delivery_id = judged.delivery_id and judged.kind <> 'left'
  returning o.delivery_id, o.account_id, o.lane, o.run, o.lease_number, o.run_started_at, o.body_bytes,
    judged.kind, judged.was_cut, judged.was_cut_alone
), cut as (
  insert into sealpost.attempts
    (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code)
  select delivery_id, account_id, lease_run, lease_number, lease_started_at, lease_until, 'interrupted', 'interrupted'
  from judged where was_cut and kind <> 'left'
), told as (
  update sealpost.deliveries as d
  set
    attempts_count = d.attempts_count + 1,
    status = case when judged.cut_counts then 'failed' else d.status end,
    last_error_code = 'interrupted',
    last_status_code = null
  from judged
  where judged.was_cut and judged.kind <> 'left' and d.account_id = judged.account_id and d.id = judged.delivery_id
)
select
  claimed.kind, claimed.delivery_id, claimed.account_id, claimed.lane, claimed.run, claimed.lease_number,
  extract(epoch from claimed.run_started_at) * 1000 as run_started_at_ms,
  claimed.was_cut, claimed.was_cut_alone, claimed.body_bytes,
  d.event, d.analysis_id, d.webhook_url, d.traceparent, endpoints.url as endpoint_url,
  b.analysis::text as analysis_text,
  array(
    select s.id || ':' || encode(s.sealed, 'base64')
    from sealpost.signing_secrets as s
    where s.account_id = claimed.account_id
      and (s.expires_at is null or s.expires_at > coalesce($6::timestamptz, now()))
    order by s.id desc
    limit 2
  ) as sealed_secrets,
  extract(epoch from coalesce($6::timestamptz, clock_timestamp())) * 1000 as now_ms
from claimed
left join sealpost.deliveries as d
  on claimed.kind = 'leased' and d.account_id = claimed.account_id and d.id = claimed.delivery_id
left join sealpost.bodies as b on claimed.kind = 'leased' and b.delivery_id = claimed.delivery_id
left join sealpost.endpoints on claimed.kind = 'leased' and endpoints.account_id = claimed.account_id
union all
select kind, delivery_id, account_id, lane, null, null, null, was_cut, was_cut_alone, body_bytes,
  null, null, null, null, null, null, null,
  extract(epoch from coalesce($6::timestamptz, clock_timestamp())) * 1000
from judged where kind = 'left'`;

type Row = {
  kind: "leased" | "must_go_alone" | "left";
  delivery_id: string;
  account_id: string;
  lane: string;
  run: number;
  lease_number: number | null;
  run_started_at_ms: string;
  was_cut: boolean;
  was_cut_alone: boolean;
  body_bytes: number;
  event: string;
  analysis_id: string;
  webhook_url: string | null;
  traceparent: string | null;
  endpoint_url: string | null;
  analysis_text: string | null;
  sealed_secrets: string[];
  now_ms: string;
};

export type Claim = {
  readonly deliveries: readonly ClaimedDelivery[];
  /** The database's time while it answered; null when nothing was due. */
  readonly databaseNowMs: number | null;
};

export async function claimDeliveries(
  pool: Pool,
  input: {
    readonly deliveryIds: readonly string[];
    /** Fresh for every claim, but for one that is repeated because its answer was lost: the fence for late results. */
    readonly leaseToken: string;
    readonly leaseMs: number;
    /** At most so many bytes of analyses, but always at least one. */
    readonly bytesMax: number;
    /** Post alone whatever comes back (see the life of a delivery, interruptions). */
    readonly isAlone: boolean;
    readonly interruptionsBeforeAlone: number;
    /** Attempts of one run. */
    readonly attemptsMax: number;
    /** Tests and the simulation give a moment; null: the database's own clock. */
    readonly at: Date | null;
  },
): Promise<Claim> {
  const { rows } = await pool.query<Row>({
    name: "claim",
    text: CLAIM,
    values: [
      `{${input.deliveryIds.join(",")}}`,
      input.leaseToken,
      input.leaseMs,
      input.bytesMax,
      input.isAlone,
      input.at,
      input.interruptionsBeforeAlone,
      input.attemptsMax,
    ],
  });
  return {
    deliveries: rows.map((row) => fromRow(row, input.leaseToken)),
    databaseNowMs: rows[0] === undefined ? null : Number(rows[0].now_ms),
  };
}

function fromRow(row: Row, leaseToken: string): ClaimedDelivery {
  if (row.kind !== "leased") return { kind: row.kind, deliveryId: row.delivery_id, lane: row.lane };
  return {
    kind: "leased",
    deliveryId: row.delivery_id,
    accountId: row.account_id,
    lane: row.lane,
    leaseToken,
    run: row.run,
    number: row.lease_number,
    runStartedAtMs: Number(row.run_started_at_ms),
    wasInterrupted: row.was_cut,
    wasInterruptedAlone: row.was_cut_alone,
    createdAtMs: createdAtMs(row.delivery_id),
    event: row.event,
    analysisId: row.analysis_id,
    webhookUrl: row.webhook_url,
    endpointUrl: row.endpoint_url,
    analysisText: row.analysis_text,
    bodyBytes: row.body_bytes,
    traceparent: row.traceparent,
    sealedSecrets: row.sealed_secrets,
  };
}

/** A delivery's created_at is the time in its UUIDv7, to the millisecond. */
export function createdAtMs(deliveryId: string): number {
  return Number.parseInt(deliveryId.slice(0, 8) + deliveryId.slice(9, 13), 16);
}
