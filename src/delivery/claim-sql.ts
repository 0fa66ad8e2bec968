import type { Pool } from "pg";
import { createdAtMs, dayOf, queryDay } from "../base/database/partitions.ts";
import { inTransaction, UNPRUNED } from "../base/database/transaction.ts";
import type { EventName } from "../base/model/events.ts";
import { holdLeased, sendToEndpoint } from "./endpoint-sql.ts";
import { refusing } from "./receivers-sql.ts";
import { INTERRUPTIONS_BEFORE_QUARANTINE } from "./schedule/life.ts";

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
  readonly dueAtMs: number;
  /** An earlier attempt was found cut and has just been recorded as interrupted. */
  readonly wasInterrupted: boolean;
  /** … and it had been posted from quarantine. */
  readonly wasInterruptedInQuarantine: boolean;
  readonly createdAtMs: number;
  readonly event: EventName;
  readonly webhookUrl: string | null;
  readonly endpointUrl: string | null;
  /** What its webhook has as `data`. Null: the body's partition is gone. */
  readonly analysisText: string | null;
  readonly bodyBytes: number;
  readonly traceparent: string | null;
  /** When the receiver was last proven, of the last 30 days; null: not, as far as its URL's text says. */
  readonly provenAtMs: number | null;
  /** Since when it is proven, or the endpoint is there: until then it was another. Null: it is not, or nobody knows. */
  readonly provenSinceMs: number | null;
  /** Its receiver wants nothing from the account at this URL. */
  readonly isRefused: boolean;
  /** Valid signing secrets, the current first, as `id:base64 of the sealed text`. */
  readonly sealedSecrets: readonly string[];
  /** It is signed for Standard Webhooks, too. */
  readonly signsStandard: boolean;
  /** The endpoint's own headers, in base64; null: none, or it goes to a `webhook_url`. */
  readonly sealedHeaders: string | null;
};

/**
 * What a claim did with an id that was due: took it, found that it must be quarantined, or left it for later because
 * the bytes were used up. An id that is not due, is leased, is held or is gone does not come back at all.
 */
export type ClaimedDelivery =
  | LeasedDelivery
  | { readonly kind: "must_be_quarantined" | "left"; readonly deliveryId: string; readonly lane: string };

/**
 * Leases everything that may start now, in one statement per day of publishing. The lease is the open attempt: no row
 * is written for it until it ends. A row whose lease has run out comes back as `cut`; RECOVER sees to it first.
 *
 * It names the day's partition, because a statement over the parent locks every partition before it runs.
 *
 * When the answer is lost, the same claim may be repeated with the same token, as long as nothing was posted under it:
 * what the first one leased comes back as if it were new, before older rows that are due since. The token is also the
 * fencing token for late results.
 *
 * Joins say `= any (array[…])` so that an index can only be used to look ids up. With a plain `=` it could also be used
 * to read the table in order; a plan made while the table was nearly empty does that, and keeps doing it.
 *
 * Losing option: an attempt row opened at the claim and closed at the record; it cost three times as much PostgreSQL.
 */
const claimText = (bodies: string) => `
with due as (
  select delivery_id, lane, interruptions, body_bytes,
    lease_token <> $2::uuid as was_cut, lease_token is not distinct from $2::uuid as is_ours,
    lease_alone and lease_run = run and lease_number is null as was_cut_in_quarantine
  from sealpost.open_deliveries
  where delivery_id = any ($1::uuid[])
    and due_at <= coalesce($6::timestamptz, now())
    and (lease_until is null or lease_until <= coalesce($6::timestamptz, now()) or lease_token = $2::uuid)
  order by delivery_id
  for update skip locked
), judged as (
  select delivery_id, lane, was_cut_in_quarantine,
    case
      when was_cut then 'cut'
      when not (is_ours or (row_number() over in_order = 1 and $4::bigint > 0)
        or sum(body_bytes) over in_order <= $4::bigint) then 'left'
      when interruptions >= $7::integer and not $5::boolean and not was_cut_in_quarantine then 'must_be_quarantined'
      else 'leased'
    end as kind
  from due
  window in_order as (order by is_ours desc, delivery_id)
), claimed as (
  update sealpost.open_deliveries as o
  set
    run_started_at = coalesce(o.run_started_at, coalesce($6::timestamptz, now())),
    lease_token = $2::uuid,
    lease_until = coalesce($6::timestamptz, now()) + $3::float8 * interval '1 millisecond',
    lease_started_at = coalesce($6::timestamptz, now()),
    lease_run = o.run,
    -- No number, no attempt: a lease that is only for ending a run, because its attempts are used up, or because
    -- the last one was cut although it was in quarantine (which stays known until the run has ended).
    lease_number = case when not judged.was_cut_in_quarantine then nullif(o.attempts_in_run + 1, $8::integer + 1) end,
    lease_alone = $5::boolean or judged.was_cut_in_quarantine,
    wake_at = least(o.wake_at, coalesce($6::timestamptz, now()) + $3::float8 * interval '1 millisecond')
  from judged
  where o.delivery_id = any (array[judged.delivery_id]) and judged.kind = 'leased'
  returning o.delivery_id, o.account_id, o.lane, o.run, o.lease_number, o.run_started_at, o.due_at, o.body_bytes,
    judged.was_cut_in_quarantine
)
select
  'leased' as kind, claimed.delivery_id as "deliveryId", claimed.account_id as "accountId", claimed.lane, claimed.run,
  claimed.lease_number as number, extract(epoch from claimed.run_started_at)::float8 * 1000 as "runStartedAtMs",
  claimed.was_cut_in_quarantine as "wasInterruptedInQuarantine", claimed.body_bytes as "bodyBytes",
  extract(epoch from claimed.due_at)::float8 * 1000 as "dueAtMs",
  extract(epoch from receivers.proven_at)::float8 * 1000 as "provenAtMs",
  extract(epoch from receivers.proven_since)::float8 * 1000 as "provenSinceMs",
  ${refusing("claimed.account_id", "coalesce(b.webhook_url, endpoints.url)")} as "isRefused",
  b.event, b.webhook_url as "webhookUrl", b.traceparent, endpoints.url as "endpointUrl",
  coalesce(b.reference, b.analysis::text) as "analysisText",
  -- In the endpoint's own lane, which a webhook_url and a test event sent meanwhile are not.
  case when endpoints.paused_at is not null and lease_number is not null then
    claimed.lane = sealpost.lane(claimed.account_id, null)
  else false end as "isPaused",
  closed is not null as "isClosed",
  -- One text: an array of texts costs several times as much to write and to read again.
  (
    select string_agg(valid.secret, ' ')
    from (
      select s.id || ':' || encode(s.sealed, 'base64') as secret
      from sealpost.signing_secrets as s
      where s.account_id = claimed.account_id
        and (s.expires_at is null or s.expires_at > coalesce($6::timestamptz, now()))
      order by s.id desc
      limit 2
    ) as valid
  ) as "sealedSecrets",
  coalesce(endpoints.signs_standard, false) as "signsStandard",
  case when b.webhook_url is null then encode(endpoints.sealed_headers, 'base64') end as "sealedHeaders",
  extract(epoch from coalesce($6::timestamptz, clock_timestamp()))::float8 * 1000 as "nowMs"
from claimed
left join ${bodies} as b on b.delivery_id = any (array[claimed.delivery_id])
left join sealpost.endpoints on endpoints.account_id = any (array[claimed.account_id])
-- Spelled differently, it is looked up by what the URL means (withProof). With the limit it is a look-up by both.
left join lateral (
  select proven_at,
    greatest(proven_since, case when b.webhook_url is null then endpoints.updated_at end) as proven_since
  from sealpost.receivers as r
  where r.account_id = claimed.account_id and r.origin = sealpost.origin(coalesce(b.webhook_url, endpoints.url))
    and r.proven_at > coalesce($6::timestamptz, now()) - interval '30 days'
  limit 1
) as receivers on true
left join lateral sealpost.closed_url(
  claimed.account_id, case when b.webhook_url is not null and lease_number is not null then claimed.delivery_id end
) as closed on true
union all
select kind, delivery_id, null, lane, null, null, null, null, null, null, null, null, false, null, null, null, null,
  null, false, false, null, false, null,
  extract(epoch from coalesce($6::timestamptz, clock_timestamp()))::float8 * 1000
from judged where kind <> 'leased'`;

/**
 * Records attempts whose lease has run out as `interrupted`, and frees their rows. One that was cut in quarantine
 * leaves lease_alone behind, so that the next claim knows it, however late it comes. Where it went to is what a claim
 * would have found then, unless the endpoint was changed meanwhile.
 */
const RECOVER = `
with cut as (
  select delivery_id, account_id, run, lease_run, lease_number, lease_started_at, lease_until,
    lease_number is not null as had_attempt, coalesce(lease_run = run, false) as is_of_this_run,
    (
      select e.url from sealpost.endpoints as e
      where e.account_id = o.account_id and e.updated_at <= o.lease_started_at limit 1
    ) as endpoint_url,
    (select b.webhook_url from sealpost.bodies as b where b.delivery_id = o.delivery_id limit 1) as webhook_url
  from sealpost.open_deliveries as o
  where delivery_id = any ($1::uuid[])
    and lease_token is not null and lease_until <= coalesce($2::timestamptz, now())
  order by delivery_id
  for update skip locked
), freed as (
  update sealpost.open_deliveries as o
  set
    lease_token = null, lease_until = null, lease_number = null,
    attempts_in_run = o.attempts_in_run + (cut.had_attempt and cut.is_of_this_run)::integer,
    interruptions = o.interruptions + cut.had_attempt::integer
  from cut
  where o.delivery_id = any (array[cut.delivery_id])
), logged as (
  insert into sealpost.attempts
    (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, target_url)
  select delivery_id, account_id, lease_run, lease_number, lease_started_at, lease_until, 'interrupted', 'interrupted',
    coalesce(webhook_url, endpoint_url)
  from cut where had_attempt
), told as (
  update sealpost.deliveries as d
  set
    attempts_count = d.attempts_count + 1,
    status = case when cut.is_of_this_run then 'failed' else d.status end,
    last_error_code = 'interrupted',
    last_status_code = null,
    endpoint_url = case when d.webhook_url is null then coalesce(cut.endpoint_url, d.endpoint_url) end
  from cut
  where cut.had_attempt and d.account_id = any (array[cut.account_id]) and d.id = cut.delivery_id
)
select delivery_id as "deliveryId", had_attempt as "hadAttempt" from cut`;

/** Where nothing was leased, all but its kind, its id, its lane and the time is null or false. */
type Row = Omit<
  LeasedDelivery,
  "kind" | "leaseToken" | "wasInterrupted" | "createdAtMs" | "sealedSecrets"
> & {
  readonly kind: "leased" | "cut" | "must_be_quarantined" | "left";
  readonly isPaused: boolean;
  readonly isClosed: boolean;
  readonly sealedSecrets: string | null;
  readonly nowMs: number;
};

export type Claim = {
  readonly deliveries: readonly ClaimedDelivery[];
  /** The database's time while it answered; null when nothing was due. */
  readonly databaseNowMs: number | null;
};

export type ClaimInput = {
  readonly deliveryIds: readonly string[];
  /** The fencing token: fresh for every claim, except one that is repeated because its answer was lost. */
  readonly leaseToken: string;
  readonly leaseMs: number;
  /** At most so many bytes of analyses, but always at least one analysis. */
  readonly bytesMax: number;
  /** Whether the claim is made by the quarantine process, which posts one delivery at a time. */
  readonly isInQuarantine: boolean;
  /** Attempts of one run. */
  readonly attemptsMax: number;
  /** For tests and the simulation; null: the database's clock. */
  readonly at: Date | null;
};

/**
 * Claims what is due of these ids, after recording what a dead dispatcher left behind as interrupted. What would go to
 * a paused endpoint is held, and what has a URL that is closed is made the endpoint's: neither was claimed.
 */
export async function claimDeliveries(pool: Pool, input: ClaimInput): Promise<Claim> {
  const rows: Row[] = [];
  const interrupted = new Set<string>();
  const heldIds: string[] = [];
  const closedIds: string[] = [];
  let bytesLeft = input.bytesMax;

  /** Returns the ids of attempts that were cut. */
  async function claimOfDay(day: string, ids: readonly string[]): Promise<readonly string[]> {
    const cutIds: string[] = [];
    const { rows: claimed } = await queryDay<Row>(pool, day, {
      name: "claim",
      text: (partition) => claimText(partition("bodies")),
      values: [
        `{${ids.join(",")}}`,
        input.leaseToken,
        input.leaseMs,
        bytesLeft,
        input.isInQuarantine,
        input.at,
        INTERRUPTIONS_BEFORE_QUARANTINE,
        input.attemptsMax,
      ],
    });
    for (const row of claimed) {
      if (row.kind === "cut") cutIds.push(row.deliveryId);
      else if (row.isPaused) heldIds.push(row.deliveryId);
      else if (row.isClosed) closedIds.push(row.deliveryId);
      else {
        rows.push(row);
        bytesLeft -= row.bodyBytes ?? 0;
      }
    }
    return cutIds;
  }

  for (const [day, ids] of Map.groupBy(input.deliveryIds, dayOf)) {
    const cutIds = await claimOfDay(day, ids);
    if (cutIds.length === 0) continue;
    const recovered = await recoverInterrupted(pool, cutIds, input.at);
    for (const { deliveryId, hadAttempt } of recovered) if (hadAttempt) interrupted.add(deliveryId);
    await claimOfDay(
      day,
      recovered.map(({ deliveryId }) => deliveryId),
    );
  }
  if (heldIds.length > 0) await holdLeased(pool, heldIds, input.leaseToken, input.at);
  if (closedIds.length > 0) await sendToEndpoint(pool, closedIds, input.leaseToken, input.at);
  return {
    deliveries: rows.map((row) => fromRow(row, input.leaseToken, interrupted)),
    databaseNowMs: rows.at(-1)?.nowMs ?? null,
  };
}

type Recovered = { readonly deliveryId: string; readonly hadAttempt: boolean };

/** Ends attempts whose dispatcher has died, and leaves the rows for whoever wants them: it returns which. */
export async function recoverInterrupted(
  pool: Pool,
  cutIds: readonly string[],
  at: Date | null,
): Promise<readonly Recovered[]> {
  const values = [`{${cutIds.join(",")}}`, at];
  const recover = { name: "recover", text: RECOVER, values };
  return (await inTransaction(pool, (tx) => tx.query<Recovered>(recover), UNPRUNED)).rows;
}

function fromRow(row: Row, leaseToken: string, interrupted: ReadonlySet<string>): ClaimedDelivery {
  const { kind, isPaused, isClosed, nowMs, sealedSecrets, ...leased } = row;
  const { deliveryId, lane } = leased;
  if (kind !== "leased") return { kind: kind === "cut" ? "left" : kind, deliveryId, lane };
  return {
    ...leased,
    kind,
    leaseToken,
    wasInterrupted: interrupted.has(deliveryId),
    createdAtMs: createdAtMs(deliveryId),
    sealedSecrets: sealedSecrets?.split(" ") ?? [],
  };
}
