// Fills the log by SQL, as deliveries of earlier days would have left it.
import type pg from "pg";
import { countActivity } from "../../src/log/activity-sql.ts";
import { analysisText } from "./analysis.ts";

export type SeededDays = {
  /** The youngest of the days, counted back from today. */
  readonly firstDaysAgo: number;
  readonly days: number;
  readonly deliveries: number;
  /** The account that has a fifth of them all; the others share the rest evenly. */
  readonly largeAccountId: string;
  /** The text of each analysis; null: they are not kept any more. */
  readonly body: string | null;
};

/**
 * In 1,000: 980 succeeded, 15 abandoned after 8 attempts (of which only the last is seeded), 5 failed with an attempt
 * to come. Ids are made like the real ones, so that they lie in their days' partitions.
 */
const SEED_DAY = `
with numbered as (
  select n, sealpost.uuid_v7($1::timestamptz + (n * 86400.0 / $2::integer) * interval '1 second') as id,
    case when n % 5 = 0 then $3::uuid else ($4::uuid[])[1 + n % array_length($4::uuid[], 1)] end as account_id,
    case when n % 1000 < 15 then 'abandoned' when n % 1000 < 20 then 'failed' else 'succeeded' end as status
  from generate_series(0, $2::integer - 1) as n
), logged as (
  insert into sealpost.deliveries (id, account_id, event, status, reason, analysis_id, endpoint_url, attempts_count,
    last_error_code, last_status_code)
  select id, account_id, case when n % 10 = 0 then 'analysis.failed' else 'analysis.succeeded' end, status,
    case when status = 'abandoned' then 'attempts_exhausted' end, 'seeded-' || id,
    'https://h' || n % 200 || '.example.com/hook',
    case when status = 'abandoned' then 8 else 1 end,
    case when status <> 'succeeded' then case when n % 2 = 0 then 'status_503' else 'connect_timeout' end end,
    case when status = 'succeeded' then 200 when n % 2 = 0 then 503 end
  from numbered
), opened as (
  insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, body_bytes, attempts_in_run)
  select id, account_id, n, now() + interval '1 day', now() + interval '1 day', 100, 1 from numbered
  where status = 'failed' and $5::boolean
), registered as (
  insert into sealpost.analyses (account_id, id, delivery_id, digest)
  select account_id, 'seeded-' || id, id, '\\x00' from numbered
), stored as (
  insert into sealpost.bodies (delivery_id, account_id, event, analysis)
  select id, account_id, 'analysis.succeeded', $6::json from numbered where $6::json is not null
)
insert into sealpost.attempts (delivery_id, account_id, run, number, started_at, ended_at, first_byte_ms, status_code,
  outcome, error_code, target_url)
select id, account_id, 1, case when status = 'abandoned' then 8 else 1 end, $1, $1, 12,
  case when status = 'succeeded' then 200 when n % 2 = 0 then 503 end,
  case when status = 'succeeded' then 'succeeded' when n % 2 = 0 then 'rejected' else 'unreachable' end,
  case when status <> 'succeeded' then case when n % 2 = 0 then 'status_503' else 'connect_timeout' end end,
  'https://h' || n % 200 || '.example.com/hook'
from numbered`;

const LAG_MS = 30_000;

export async function seedLog(
  pool: pg.Pool,
  accountIds: readonly string[],
  { firstDaysAgo, days, deliveries, largeAccountId, body }: SeededDays,
): Promise<void> {
  const { rows } = await pool.query<{ day: Date }>(
    `select (now() at time zone 'UTC')::date::timestamp at time zone 'UTC' - n * interval '1 day' as day
     from generate_series($1::integer, $1::integer + $2::integer - 1) as n`,
    [firstDaysAgo, days],
  );
  const perDay = Math.ceil(deliveries / days);
  // These are no attempts that were written late.
  await pool.query("alter table sealpost.attempts disable trigger note_late_attempt");
  for (const { day } of rows) {
    await pool.query("select sealpost.make_partitions(($1::timestamptz at time zone 'UTC')::date, 1)", [day]);
    // A day that is to be dropped must have no open delivery.
    const isOpen = body === null;
    await pool.query(SEED_DAY, [day, perDay, largeAccountId, accountIds, isOpen, body]);
  }
  await pool.query("alter table sealpost.attempts enable trigger note_late_attempt");
  await pool.query("vacuum analyze");
}

/** The activity of a log that was filled, as a leader would have counted it. */
export async function countSeeded(pool: pg.Pool, days: number): Promise<void> {
  await pool.query("update sealpost.activity_state set counted_to = now() - $1 * interval '1 day'", [days]);
  while ((await countActivity(pool, LAG_MS)).isBehind);
}

/** Of today, after 8 attempts that are not seeded; their analyses are still there to be replayed. */
export async function seedAbandoned(pool: pg.Pool, accountId: string, count: number): Promise<void> {
  await pool.query(
    `with numbered as (
       select sealpost.uuid_v7(now()) as id from generate_series(1, $2::integer)
     ), logged as (
       insert into sealpost.deliveries (id, account_id, event, status, reason, analysis_id, attempts_count,
         last_error_code, last_status_code)
       select id, $1, 'analysis.succeeded', 'abandoned', 'attempts_exhausted', 'seeded-' || id, 8, 'status_503', 503
       from numbered
     ), registered as (
       insert into sealpost.analyses (account_id, id, delivery_id, digest)
       select $1, 'seeded-' || id, id, '\\x00' from numbered
     )
     insert into sealpost.bodies (delivery_id, account_id, event, analysis)
     select id, $1, 'analysis.succeeded', $3 from numbered`,
    [accountId, count, analysisText("seeded", 0)],
  );
  await pool.query("vacuum analyze");
}
