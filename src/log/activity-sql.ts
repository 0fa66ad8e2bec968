import type { ClientBase, Pool } from "pg";
import { countPublished } from "../base/database/storage.ts";
import { timeText } from "../base/database/time-text.ts";
import { type Answer, answeredBy } from "../base/model/answered-by.ts";
import { DAY_MS } from "../base/model/time.ts";
import { type Activity, type EndpointHealth, TIMED_MAX } from "./activity-schema.ts";
import { hostOf } from "./delivery-filter-sql.ts";

/** Counted by five minutes for so long, and by hours after that. */
export const FINE_ACTIVITY_MS = 2 * DAY_MS;
/** And kept for so long. */
export const ACTIVITY_KEPT_MS = 30 * DAY_MS;
/** How much time a step counts at most: at a thousand attempts a second it takes a second. */
const SPAN_PER_STEP_MS = 5 * 60_000;
const LATE_PER_STEP_MAX = 10_000;
const ACCOUNTS_FOLDED_PER_STEP_MAX = 1_000;

type ActivityStep = {
  /** All that ended before is counted; null: another leader is at it. */
  readonly countedTo: Date | null;
  /** There is more to count. */
  readonly isBehind: boolean;
};

/** Adds attempts that ended up to `lagMs` ago: longer than writing one may take, and 5 s. See sql/0011_log.sql. */
export async function countActivity(pool: Pool, lagMs: number): Promise<ActivityStep> {
  const { rows } = await pool.query<ActivityStep>({
    name: "count_activity",
    text: `select counted_to as "countedTo", is_behind as "isBehind" from sealpost.count_activity(
      $1::float8 * interval '1 millisecond', $2::float8 * interval '1 millisecond', $3)`,
    values: [lagMs, SPAN_PER_STEP_MS, LATE_PER_STEP_MAX],
  });
  return rows[0]!;
}

/** Makes hours of old five minutes, a step of them. Whether there was something to do. */
export async function foldActivity(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ folded: boolean }>({
    name: "fold_activity",
    text: "select sealpost.fold_activity($1::float8 * interval '1 millisecond', $2) as folded",
    values: [FINE_ACTIVITY_MS, ACCOUNTS_FOLDED_PER_STEP_MAX],
  });
  return rows[0]!.folded;
}

const FAILURES_MAX = 20;
/** Of so many of them, the most frequent, it is read who answered last. */
const ANSWERS_READ_MAX = 5;
/** Among the last attempts of so many deliveries of each status. By its time, one is found by reading all of them. */
const UNDELIVERED_READ_MAX = 100;

const newest = (status: "failed" | "abandoned") => `(
  select id from sealpost.deliveries where account_id = $1 and status = '${status}'
  order by id desc limit ${UNDELIVERED_READ_MAX})`;

const READ = `
with chosen as materialized (
  select * from sealpost.activity where account_id = $1 and bucket >= $2 and bucket < $3
), bars as (
  select date_bin($4::float8 * interval '1 millisecond', bucket, '2000-01-01 00:00Z') as at,
    sum(attempts) filter (where outcome = 'succeeded') as succeeded,
    sum(attempts) filter (where outcome <> 'succeeded') as failed
  from chosen group by 1
), hosts as (
  select target_host, max(last_at) filter (where outcome = 'succeeded') as succeeded_at from chosen group by 1
), failed as (
  select target_host, error_code, sum(attempts) as attempts, max(last_at) as last_at, hosts.succeeded_at,
    min(min(greatest(first_at, hosts.succeeded_at)) filter (where last_at > coalesce(hosts.succeeded_at, '-infinity')))
      over (partition by target_host) as failing_since
  from chosen join hosts using (target_host)
  where outcome <> 'succeeded'
  group by target_host, error_code, hosts.succeeded_at
  order by attempts desc, target_host, error_code limit ${FAILURES_MAX}
), answered as materialized (
  select ${hostOf("target_url")} as target_host, error_code, ended_at, json_build_object(
    'statusCode', status_code, 'headers', response_headers::json, 'excerpt', response_excerpt) as answer
  from (${newest("failed")} union all ${newest("abandoned")}) as d cross join lateral (
    select * from sealpost.attempts as t where t.account_id = $1 and t.delivery_id = d.id
    order by t.run desc, t.number desc limit 1
  ) as t
)
select ${timeText("counted_to")} as counted_to, (
    select coalesce(json_agg(json_build_object('at', ${timeText("at")},
      'succeeded', coalesce(succeeded, 0), 'failed', coalesce(failed, 0)) order by at), '[]')
    from generate_series($2::timestamptz, least($3, counted_to) - interval '1 microsecond',
      $4::float8 * interval '1 millisecond') as at left join bars using (at)
  ) as items, (
    select coalesce(json_agg(json_build_object(
      'target_host', target_host, 'error_code', error_code, 'attempts', attempts, 'last_at', ${timeText("last_at")},
      'last_success_at', ${timeText("succeeded_at")}, 'failing_since', ${timeText("failing_since")},
      'answer', answer)), '[]')
    from (
      select *, case
        when failing_since is not null and row_number() over (order by attempts desc) <= ${ANSWERS_READ_MAX} then (
          select a.answer from answered as a
          where a.target_host = failed.target_host and a.error_code = failed.error_code
          order by a.ended_at desc limit 1
        ) end as answer
      from failed
    ) as failed
  ) as top
from sealpost.activity_state`;

/** `answer`: to the last of its attempts; null: it was not looked for, or not found. */
type FoundActivity = Omit<Activity, "top"> & {
  readonly top: (Omit<Activity["top"][number], "answered_by"> & { readonly answer: Answer | null })[];
};

/** What ended in buckets that begin in [from, to), in buckets of `bucketMs`, aligned to UTC, up to what is counted. */
export async function readActivity(
  database: Pool | ClientBase,
  accountId: string,
  { from, to, bucketMs }: { readonly from: Date; readonly to: Date; readonly bucketMs: number },
): Promise<Activity> {
  const values = [accountId, from, to, bucketMs];
  const { rows } = await database.query<FoundActivity>({ name: "read_activity", text: READ, values });
  const { top, ...found } = rows[0]!;
  const withAnswerer = ({ answer, ...cause }: FoundActivity["top"][number]) => ({
    ...cause,
    answered_by: answer && answeredBy(answer),
  });
  return { ...found, top: top.map(withAnswerer) };
}

/** How the host of the account's endpoint did for a day. Null: the account has no endpoint. */
export async function readEndpointHealth(
  database: Pool | ClientBase,
  accountId: string,
): Promise<EndpointHealth | null> {
  const { rows } = await database.query<EndpointHealth>({
    name: "read_endpoint_health",
    text: `with endpoint as materialized (
        select ${hostOf("url")} as host from sealpost.endpoints where account_id = $1
      ), day as materialized (
        select a.* from endpoint join sealpost.activity as a on a.target_host = host
        where a.account_id = $1 and a.bucket > now() - interval '24 hours'
      ), good as (
        select coalesce(sum(attempts), 0)::integer as attempts, max(last_at) as last_at from day
        where outcome = 'succeeded'
      ), bad as (
        select coalesce(sum(day.attempts), 0)::integer as attempts, min(greatest(day.first_at, good.last_at))
            filter (where day.last_at > coalesce(good.last_at, '-infinity')) as since,
          (array_agg(day.error_code order by day.last_at desc)
            filter (where day.last_at > coalesce(good.last_at, '-infinity')))[1] as code
        from day cross join good where outcome <> 'succeeded'
      ), timed as (
        select percentile_cont(array[0.5, 0.95]) within group (order by t.ms) as ms
        from endpoint cross join (
          select d.id from sealpost.deliveries as d where d.account_id = $1 order by d.id desc limit ${TIMED_MAX}
        ) as d cross join lateral (
          select extract(epoch from t.ended_at - t.started_at) * 1000 as ms, t.status_code, t.target_url
          from sealpost.attempts as t where t.account_id = $1 and t.delivery_id = d.id
          order by t.run desc, t.number desc limit 1
        ) as t
        where t.status_code is not null and ${hostOf("t.target_url")} = endpoint.host
      )
      select ${timeText("bad.since")} as failing_since, bad.code as error_code,
        ${timeText("good.last_at")} as last_success_at,
        good.attempts as succeeded, bad.attempts as failed, ${timeText("counted_to")} as counted_to,
        case when ms[1] is not null then json_build_object(
          'p50', round(ms[1])::integer, 'p95', round(ms[2])::integer) end as response_time_ms
      from endpoint cross join good cross join bad cross join timed cross join sealpost.activity_state`,
    values: [accountId],
  });
  return rows[0] ?? null;
}

/** What ends with a lease is written down a moment later: so long, and it need not be counted as late. */
const AFTER_LEASE_MS = 10_000;

/** Counts what was published and what has ended up to a lease ago until it has caught up; then makes hours of it. */
export async function countAllActivity(pool: Pool, leaseMs: number, signal: AbortSignal): Promise<void> {
  const lagMs = leaseMs + AFTER_LEASE_MS;
  while (!signal.aborted && (await countPublished(pool, lagMs)));
  while (!signal.aborted && (await countActivity(pool, lagMs)).isBehind);
  while (!signal.aborted && (await foldActivity(pool)));
}
