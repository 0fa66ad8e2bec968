import type { Pool } from "pg";
import { notErased } from "../base/database/account-rows.ts";
import { timeText } from "../base/database/time-text.ts";
import { type CappedPage, cutPage, LOOKED_AT_MAX, TOTAL_MAX } from "../base/model/list-page.ts";
import {
  ACCOUNT_FOUND_MAX,
  ACCOUNTS_SEARCHED_MAX,
  type Account,
  type AccountName,
  COUNTED_MAX,
  FOUND_MAX,
  type Found,
} from "./accounts-schema.ts";
import { TARGET_HOST } from "./delivery-filter-sql.ts";

/** Accounts with undelivered deliveries that are looked at, by their ids. */
const ACCOUNTS_LOOKED_AT_MAX = 2_000;
/** Deliveries that the leading cause is read from, and that a success is looked for in. */
const CAUSES_READ_MAX = 100;
const SUCCESS_LOOKED_FOR_MAX = 1_000;

/** `deliveries as d` whose analyses are kept, $1 being for how many ms. Without the days that are made ahead. */
const KEPT = `d.id >= sealpost.uuid_v7_floor(now() - $1::float8 * interval '1 millisecond')
    and d.id < sealpost.uuid_v7_floor(now() + interval '1 day')`;
const UNDELIVERED = `d.status in ('failed', 'abandoned') and ${KEPT}`;

const countOf = (status: string) => `(
    select count(*)::integer from (
      select from sealpost.deliveries as d
      where d.account_id = a.id and d.status = '${status}' and ${KEPT} limit ${COUNTED_MAX}) as counted)`;

/** Of the accounts of `page`, which has their ids, counts of abandoned ones, and their order. */
const SEEN = `
select a.id, a.name, ${timeText("a.created_at")} as created_at, e.url as endpoint_url,
  e.paused_at is not null as endpoint_paused, page.abandoned, ${countOf("failed")} as failed, cause.leading,
  case when cause.leading is not null then ${timeText("coalesce(h.failing_since, cause.since)")} end as since,
  ${timeText("greatest(h.succeeded_at, success.at)")} as last_success_at
from page
join sealpost.accounts as a on a.id = page.id
left join sealpost.endpoints as e on e.account_id = a.id
left join sealpost.endpoint_health as h on h.account_id = a.id and h.url = e.url
left join lateral (
  select newest.since, json_build_object(
    'target_host', newest.host, 'error_code', newest.code, 'reason', newest.reason, 'accepted_at', (
      select case when good > coalesce(bad, '-infinity') then ${timeText("good")} end from (
        select max(last_at) filter (where outcome = 'succeeded') as good,
          max(last_at) filter (where outcome <> 'succeeded') as bad
        from sealpost.activity
        where account_id = a.id and target_host = newest.host and bucket > now() - interval '1 day') as day
    )) as leading
  from (
    select ${TARGET_HOST} as host, d.last_error_code as code, d.reason, count(*) as deliveries,
      sealpost.uuid_v7_time(min(d.id::text)::uuid) as since
    from (
      select d.* from (values ('abandoned'), ('failed')) as wanted (status) cross join lateral (
        select d.* from sealpost.deliveries as d
        where d.account_id = a.id and d.status = wanted.status and ${UNDELIVERED}
        order by d.id desc limit ${CAUSES_READ_MAX}) as d
    ) as d
    group by 1, 2, 3) as newest
  order by newest.deliveries desc, newest.since desc limit 1
) as cause on true
left join lateral (
  select max(t.ended_at) as at from sealpost.attempts as t
  where t.outcome = 'succeeded' and t.delivery_id = (
    select d.id from (
      select d.id, d.status from sealpost.deliveries as d where d.account_id = a.id and ${KEPT}
      order by d.id desc limit ${SUCCESS_LOOKED_FOR_MAX}) as d
    where d.status = 'succeeded' order by d.id desc limit 1)
) as success on true`;

/** @param order SQL of `seen` */
const pageOf = (order: string) =>
  `coalesce((select json_agg(seen order by ${order}) from (${SEEN}) as seen), '[]') as items`;

type Row = { readonly items: readonly Account[]; readonly total: number; readonly is_capped: boolean };

/**
 * Accounts with deliveries that were abandoned and can still be replayed, those with most first. They are found in the
 * partial index, from one account to the next: accounts whose deliveries all arrive are not in it.
 *
 * Losing option: the rows of what endpoints go through (sealpost.endpoint_health). They know nothing of deliveries with
 * a URL of their own, and forget what was told of.
 */
export async function listFailingAccounts(
  pool: Pool,
  analysisRetentionMs: number,
  offset: number,
  limit: number,
): Promise<CappedPage<Account, number>> {
  const text = `
with recursive undelivered as (
  (select d.account_id, 1 as nth from sealpost.deliveries as d where ${UNDELIVERED} order by d.account_id limit 1)
  union all
  select next.account_id, nth + 1 from undelivered cross join lateral (
    select d.account_id from sealpost.deliveries as d
    where d.account_id > undelivered.account_id and ${UNDELIVERED}
    order by d.account_id limit 1
  ) as next
  where nth <= ${ACCOUNTS_LOOKED_AT_MAX}
), failing as materialized (
  select a.id, ${countOf("abandoned")} as abandoned from (
    select account_id as id from undelivered where nth <= ${ACCOUNTS_LOOKED_AT_MAX}) as a
  where ${notErased("a.id")}
), page as (
  select id, abandoned from failing where abandoned > 0 order by abandoned desc, id offset $2 limit $3
)
select ${pageOf("seen.abandoned desc, seen.id")}, count(*) filter (where abandoned > 0)::integer as total,
  coalesce((select max(nth) > ${ACCOUNTS_LOOKED_AT_MAX} from undelivered), false) as is_capped
from failing`;
  const values = [analysisRetentionMs, offset, limit + 1];
  const { rows } = await pool.query<Row>({ name: "list_failing_accounts", text, values });
  const { items, total, is_capped } = rows[0]!;
  return { ...cutPage(items, limit, () => offset + limit), total, isTotalCapped: is_capped };
}

/** Accounts whose name has `name` in it, in capitals or not, the newest first. @param name null: all */
export async function listAccountPage(
  pool: Pool,
  analysisRetentionMs: number,
  name: string | null,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<Account>> {
  const text = `
with named as materialized (
  select id from sealpost.accounts as a
  where erased_at is null and ($2::text is null or strpos(lower(a.name), lower($2)) > 0)
  order by id desc limit ${LOOKED_AT_MAX}
), page as (
  select a.id, ${countOf("abandoned")} as abandoned
  from (select id from named where $3::uuid is null or id < $3 order by id desc limit $4) as a
)
select ${pageOf("seen.id desc")}, least(count(*), ${TOTAL_MAX})::integer as total,
  count(*) > ${TOTAL_MAX} as is_capped
from named`;
  const values = [analysisRetentionMs, name, belowId, limit + 1];
  const { rows } = await pool.query<Row>({ name: "list_accounts", text, values });
  const { items, total, is_capped } = rows[0]!;
  return { ...cutPage(items, limit, ({ id }) => id), total, isTotalCapped: is_capped };
}

/** Those whose id it is, or whose name has the text in it; whole names first. */
export async function findAccounts(pool: Pool, text: string): Promise<AccountName[]> {
  const { rows } = await pool.query<AccountName>({
    name: "find_accounts",
    text: `select id, name from sealpost.accounts
      where (strpos(lower(name), lower($1)) > 0 or id::text = lower($1)) and erased_at is null
      order by lower(name) = lower($1) or id::text = lower($1) desc, strpos(lower(name), lower($1)), id desc
      limit ${FOUND_MAX}`,
    values: [text],
  });
  return rows;
}

const ACCOUNT = "json_build_object('id', a.id, 'name', a.name) as account";
const SHOWN = `d.id, d.analysis_id, d.status, ${TARGET_HOST} as target_host, ${ACCOUNT}`;

/** Attempts that are read where their deliveries are looked for; a delivery has 8 in a run. */
const ATTEMPTS_READ_MAX = 200;

/**
 * Deliveries whose ids lie between these, ends included, the newest first. The log's own key begins with the account,
 * so whose they are is read where a key begins with the delivery: of bodies and of attempts. What never had an attempt
 * and whose analysis is no longer kept is not found.
 */
export async function findDeliveriesBetween(
  pool: Pool,
  firstId: string,
  lastId: string,
): Promise<Found["deliveries"]> {
  const { rows } = await pool.query<Found["deliveries"][number]>({
    name: "find_deliveries_between",
    text: `select ${SHOWN} from (
        (select delivery_id as id, account_id from sealpost.bodies
          where delivery_id between $1 and $2 order by delivery_id desc limit ${FOUND_MAX})
        union
        (select delivery_id as id, account_id from sealpost.attempts
          where delivery_id between $1 and $2 order by delivery_id desc limit ${ATTEMPTS_READ_MAX})
      ) as found
      join sealpost.accounts as a on a.id = found.account_id and a.erased_at is null
      cross join lateral (
        select * from sealpost.deliveries where account_id = found.account_id and id = found.id limit 1
      ) as d
      order by d.id desc limit ${FOUND_MAX}`,
    values: [firstId, lastId],
  });
  return rows;
}

/**
 * Of every account that has one the delivery of the analysis of this id, and of the first whose ids begin with it. An
 * index on it would burden publishing.
 */
export async function findDeliveriesOfAnalysis(pool: Pool, analysisId: string): Promise<Found["deliveries"]> {
  const { rows } = await pool.query<Found["deliveries"][number]>({
    name: "find_deliveries_of_analysis",
    text: `select ${SHOWN} from (
        select id, name from sealpost.accounts where erased_at is null
        order by id desc limit ${ACCOUNTS_SEARCHED_MAX}) as a
      cross join lateral (
        select delivery_id from (
          select id, delivery_id from sealpost.analyses where account_id = a.id and id >= $1
          order by id limit ${ACCOUNT_FOUND_MAX}
        ) as next where starts_with(next.id, $1)) as found
      cross join lateral (
        select * from sealpost.deliveries where account_id = a.id and id = found.delivery_id limit 1) as d
      order by d.analysis_id = $1 desc, d.id desc limit ${FOUND_MAX}`,
    values: [analysisId],
  });
  return rows;
}

/** Whether there are accounts that a search for an analysis leaves out. */
export async function hasUnsearchedAccounts(pool: Pool): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: "has_unsearched_accounts",
    text: `select from sealpost.accounts where erased_at is null
      order by id desc offset ${ACCOUNTS_SEARCHED_MAX} limit 1`,
  });
  return rowCount === 1;
}

/** Hosts that begin with this, in lower case and without a port, with the accounts whose attempts went there. */
export async function findHosts(pool: Pool, host: string): Promise<Found["hosts"]> {
  const { rows } = await pool.query<Found["hosts"][number]>({
    name: "find_hosts",
    // From one to the next: rows of a month are many, and accounts of a host are few. Hosts are in the order of "C".
    text: `with recursive theirs as (
        (select target_host, account_id, 1 as nth from sealpost.activity where target_host >= $1
          order by target_host, account_id limit 1)
        union all
        select next.target_host, next.account_id, nth + 1 from theirs cross join lateral (
          select target_host, account_id from sealpost.activity
          where (target_host, account_id) > (theirs.target_host, theirs.account_id)
          order by target_host, account_id limit 1
        ) as next
        where nth < ${FOUND_MAX} and starts_with(theirs.target_host, $1)
      )
      select theirs.target_host, day.succeeded, day.failed, ${ACCOUNT}
      from theirs join sealpost.accounts as a on a.id = theirs.account_id and a.erased_at is null
      cross join lateral (
        select coalesce(sum(attempts) filter (where outcome = 'succeeded'), 0)::integer as succeeded,
          coalesce(sum(attempts) filter (where outcome <> 'succeeded'), 0)::integer as failed
        from sealpost.activity
        where account_id = a.id and bucket > now() - interval '24 hours' and target_host = theirs.target_host
      ) as day
      where starts_with(theirs.target_host, $1)
      order by day.failed desc, a.id desc`,
    values: [host],
  });
  return rows;
}
