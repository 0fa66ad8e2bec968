import type { Pool } from "pg";
import { type CappedPage, cutPage, LOOKED_AT_MAX, TOTAL_MAX } from "../base/model/list-page.ts";
import { TARGET_HOST } from "./delivery-filter-sql.ts";

/** An account as support staff see it. Times in ms since the epoch. */
export type SeenAccount = {
  readonly id: string;
  readonly name: string;
  readonly createdAtMs: number;
  /** Null: it has no endpoint. */
  readonly endpointUrl: string | null;
  readonly isPaused: boolean;
  /** Abandoned deliveries that can still be replayed, up to `COUNTED_MAX`, and those that are tried again. */
  readonly abandoned: number;
  readonly failed: number;
  /** What most of the newest of these failed with; null: there are none, or it has no target or no code. */
  readonly host: string | null;
  readonly errorCode: string | null;
  readonly reason: string | null;
  /** Since when its endpoint takes nothing, or, not known, when the oldest of these was published. */
  readonly sinceMs: number | null;
  /** Null: not among the newest deliveries. */
  readonly lastSuccessAtMs: number | null;
};

/** More of one account's are "at least" so many. */
export const COUNTED_MAX = 1_000;
/** Accounts with undelivered deliveries that are looked at, by their ids. */
const ACCOUNTS_LOOKED_AT_MAX = 2_000;
/** Deliveries that the leading cause is read from, and that a success is looked for in. */
const CAUSES_READ_MAX = 100;
const SUCCESS_LOOKED_FOR_MAX = 1_000;

/** `deliveries as d` whose analyses are kept, $1 being for how many ms. Without the days that are made ahead. */
const KEPT = `d.id >= sealpost.uuid_v7_floor(now() - $1::float8 * interval '1 millisecond')
    and d.id < sealpost.uuid_v7_floor(now() + interval '1 day')`;
const UNDELIVERED = `d.status in ('failed', 'abandoned') and ${KEPT}`;

const ms = (at: string) => `(extract(epoch from ${at}) * 1000)::float8`;
const countOf = (status: string) => `(
    select count(*)::integer from (
      select from sealpost.deliveries as d
      where d.account_id = a.id and d.status = '${status}' and ${KEPT} limit ${COUNTED_MAX}) as counted)`;

/** Of the accounts of `page`, which has their ids, counts of abandoned ones, and their order. */
const SEEN = `
select a.id, a.name, ${ms("a.created_at")} as "createdAtMs", e.url as "endpointUrl",
  e.paused_at is not null as "isPaused", page.abandoned, ${countOf("failed")} as failed,
  cause.host, cause.code as "errorCode", cause.reason,
  coalesce(${ms("h.failing_since")}, ${ms("cause.since")}) as "sinceMs",
  ${ms("greatest(h.succeeded_at, success.at)")} as "lastSuccessAtMs"
from page
join sealpost.accounts as a on a.id = page.id
left join sealpost.endpoints as e on e.account_id = a.id
left join sealpost.endpoint_health as h on h.account_id = a.id and h.url = e.url
left join lateral (
  select newest.host, newest.code, newest.reason, newest.since from (
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

/**
 * Accounts with deliveries that were abandoned and can still be replayed, those with most first. Who they are is read
 * in the partial index, from one account to the next: it holds nothing of those to whom all arrives.
 *
 * Losing option: the rows of what endpoints go through (sealpost.endpoint_health). They know nothing of deliveries with
 * a URL of their own, and forget what was told of.
 */
export async function listHurtAccounts(
  pool: Pool,
  analysisRetentionMs: number,
  offset: number,
  limit: number,
): Promise<CappedPage<SeenAccount, number>> {
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
), hurt as materialized (
  select a.id, ${countOf("abandoned")} as abandoned from (
    select account_id as id from undelivered where nth <= ${ACCOUNTS_LOOKED_AT_MAX}) as a
), page as (
  select id, abandoned from hurt where abandoned > 0 order by abandoned desc, id offset $2 limit $3
)
select seen.*, counted.total, counted.is_capped as "isCapped" from (
  select count(*) filter (where abandoned > 0)::integer as total,
    (select max(nth) > ${ACCOUNTS_LOOKED_AT_MAX} from undelivered) as is_capped
  from hurt
) as counted left join (${SEEN}) as seen on true
order by seen.abandoned desc, seen.id`;
  const values = [analysisRetentionMs, offset, limit + 1];
  const { rows } = await pool.query<Row>({ name: "list_hurt_accounts", text, values });
  return pageOf(rows, limit, () => offset + limit);
}

/** Accounts whose name has `name` in it, in capitals or not, the newest first. @param name null: all */
export async function listAccountPage(
  pool: Pool,
  analysisRetentionMs: number,
  name: string | null,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<SeenAccount>> {
  const text = `
with named as materialized (
  select id from sealpost.accounts as a
  where $2::text is null or strpos(lower(a.name), lower($2)) > 0 order by id desc limit ${LOOKED_AT_MAX}
), page as (
  select a.id, ${countOf("abandoned")} as abandoned
  from (select id from named where $3::uuid is null or id < $3 order by id desc limit $4) as a
)
select seen.*, counted.total, counted.is_capped as "isCapped" from (
  select least(count(*), ${TOTAL_MAX})::integer as total, count(*) > ${TOTAL_MAX} as is_capped from named
) as counted left join (${SEEN}) as seen on true
order by seen.id desc`;
  const values = [analysisRetentionMs, name, belowId, limit + 1];
  const { rows } = await pool.query<Row>({ name: "list_accounts", text, values });
  return pageOf(rows, limit, ({ id }) => id);
}

type Row = SeenAccount & { readonly total: number; readonly isCapped: boolean };

/** Without accounts there is one row, which has only the total. */
function pageOf<Position>(
  rows: readonly Row[],
  limit: number,
  positionOf: (last: SeenAccount) => Position,
): CappedPage<SeenAccount, Position> {
  const found = rows.filter(({ id }) => id !== null);
  const accounts = found.map(({ total: _, isCapped: __, ...account }) => account);
  const [{ total = 0, isCapped = false } = {}] = rows;
  return { ...cutPage(accounts, limit, positionOf), total, isTotalCapped: isCapped };
}
