import type { Pool } from "pg";
import type { DeliveryStatus } from "../base/model/statuses.ts";
import { TARGET_HOST } from "./delivery-filter-sql.ts";

export type NamedAccount = { readonly id: string; readonly name: string };

/** A delivery that was found, and whose it is. */
export type FoundDelivery = {
  readonly id: string;
  readonly analysisId: string;
  readonly status: DeliveryStatus;
  readonly host: string | null;
  readonly accountId: string;
  readonly accountName: string;
};

/** Accounts that an analysis's id is looked for in, the newest first: each is one look into an index. */
export const ACCOUNTS_SEARCHED_MAX = 10_000;

/** Those whose id it is, or whose name has the text in it; whole names first. */
export async function findAccounts(pool: Pool, text: string, max: number): Promise<readonly NamedAccount[]> {
  const { rows } = await pool.query<NamedAccount>({
    name: "find_accounts",
    text: `select id, name from sealpost.accounts
      where strpos(lower(name), lower($1)) > 0 or id::text = lower($1)
      order by lower(name) = lower($1) or id::text = lower($1) desc, strpos(lower(name), lower($1)), id desc
      limit $2`,
    values: [text, max],
  });
  return rows;
}

const SHOWN = `d.id, d.analysis_id as "analysisId", d.status, ${TARGET_HOST} as host, a.id as "accountId",
  a.name as "accountName"`;

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
  max: number,
): Promise<readonly FoundDelivery[]> {
  const { rows } = await pool.query<FoundDelivery>({
    name: "find_deliveries_between",
    text: `select ${SHOWN} from (
        (select delivery_id as id, account_id from sealpost.bodies
          where delivery_id between $1 and $2 order by delivery_id desc limit $3)
        union
        (select delivery_id as id, account_id from sealpost.attempts
          where delivery_id between $1 and $2 order by delivery_id desc limit ${ATTEMPTS_READ_MAX})
      ) as found
      join sealpost.accounts as a on a.id = found.account_id
      cross join lateral (
        select * from sealpost.deliveries where account_id = found.account_id and id = found.id limit 1
      ) as d
      order by d.id desc limit $3`,
    values: [firstId, lastId, max],
  });
  return rows;
}

/** Deliveries of the analysis of this id, of every account that has one. An index on it would burden publishing. */
export async function findDeliveriesOfAnalysis(
  pool: Pool,
  analysisId: string,
  max: number,
): Promise<readonly FoundDelivery[]> {
  const { rows } = await pool.query<FoundDelivery>({
    name: "find_deliveries_of_analysis",
    text: `select ${SHOWN} from (
        select id, name from sealpost.accounts order by id desc limit ${ACCOUNTS_SEARCHED_MAX}) as a
      cross join lateral (
        select delivery_id from sealpost.analyses where account_id = a.id and id = $1 limit 1) as found
      cross join lateral (
        select * from sealpost.deliveries where account_id = a.id and id = found.delivery_id limit 1) as d
      order by d.id desc limit $2`,
    values: [analysisId, max],
  });
  return rows;
}

/** Whether there are accounts that a search for an analysis leaves out. */
export async function hasUnsearchedAccounts(pool: Pool): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: "has_unsearched_accounts",
    text: `select from sealpost.accounts order by id desc offset ${ACCOUNTS_SEARCHED_MAX} limit 1`,
  });
  return rowCount === 1;
}

/** A host to which an account's attempts went. */
export type FoundHost = {
  readonly host: string;
  /** In the last 24 hours. */
  readonly succeeded: number;
  readonly failed: number;
  readonly accountId: string;
  readonly accountName: string;
};

/** Accounts whose attempts went to this host, which is in lower case and without a port. */
export async function findHosts(pool: Pool, host: string, max: number): Promise<readonly FoundHost[]> {
  const { rows } = await pool.query<FoundHost>({
    name: "find_hosts",
    // From one account to the next: rows of a month are many, and accounts of one host are few.
    text: `with recursive theirs as (
        (select account_id, 1 as nth from sealpost.activity where target_host = $1 order by account_id limit 1)
        union all
        select next.account_id, nth + 1 from theirs cross join lateral (
          select account_id from sealpost.activity
          where target_host = $1 and account_id > theirs.account_id order by account_id limit 1
        ) as next
        where nth < $2
      )
      select $1 as host, day.succeeded, day.failed, a.id as "accountId", a.name as "accountName"
      from theirs join sealpost.accounts as a on a.id = theirs.account_id
      cross join lateral (
        select coalesce(sum(attempts) filter (where outcome = 'succeeded'), 0)::integer as succeeded,
          coalesce(sum(attempts) filter (where outcome <> 'succeeded'), 0)::integer as failed
        from sealpost.activity
        where account_id = a.id and bucket > now() - interval '24 hours' and target_host = $1
      ) as day
      order by day.failed desc, a.id desc`,
    values: [host, max],
  });
  return rows;
}
