import type { ClientBase, Pool } from "pg";
import { notErased } from "../base/database/account-rows.ts";
import type { ErrorCode } from "../base/model/error-codes.ts";

/** The certificate that an account's endpoint showed. `expiresAtMs`: ms since the epoch. */
export type SeenCertificate = {
  readonly accountId: string;
  /** Host name, with the port unless it is 443. */
  readonly host: string;
  readonly expiresAtMs: number;
};

/** Notes each account's last one; nothing is written where it is the one that was known. One per account. */
export async function noteCertificates(pool: Pool, seen: readonly SeenCertificate[]): Promise<void> {
  await pool.query({
    name: "note_certificates",
    text: `insert into sealpost.endpoint_certificates as known (account_id, host, ends_at)
      select "accountId", host, to_timestamp("expiresAtMs" / 1000)
      from json_to_recordset($1) as seen ("accountId" uuid, host text, "expiresAtMs" float8)
      where ${notErased('"accountId"')}
      order by "accountId"
      on conflict (account_id) do update set host = excluded.host, ends_at = excluded.ends_at, seen_at = now()
      where (known.host, known.ends_at) is distinct from (excluded.host, excluded.ends_at)`,
    values: [JSON.stringify(seen)],
  });
}

const ms = (column: string) => `(extract(epoch from ${column}) * 1000)::float8`;

/** `endpointUrl`: the account's now; `nowMs`: the database's time. */
type ExpiringCertificate = SeenCertificate & { readonly endpointUrl: string };

/** Those that end within `withinMs` and that nobody was told of, the first to end first. */
export async function findExpiringCertificates(
  database: ClientBase | Pool,
  withinMs: number,
  rowsMax: number,
): Promise<readonly ExpiringCertificate[]> {
  const { rows } = await database.query<ExpiringCertificate>({
    name: "find_expiring_certificates",
    text: `select c.account_id as "accountId", c.host, ${ms("c.ends_at")} as "expiresAtMs", e.url as "endpointUrl"
      from sealpost.endpoint_certificates as c join sealpost.endpoints as e using (account_id)
      where c.ends_at > now() and c.ends_at <= now() + $1::float8 * interval '1 millisecond'
        and not exists (
          select from sealpost.notices as n
          where n.account_id = c.account_id and n.kind = 'certificate.expiring'
            and n.subject = c.host || ' ' || (extract(epoch from c.ends_at) * 1000)::bigint)
      order by c.ends_at
      limit $2`,
    values: [withinMs, rowsMax],
  });
  return rows;
}

/** What one dispatcher saw of one account's endpoint since it last wrote. Times: ms since the epoch, database time. */
export type EndpointNews = {
  readonly accountId: string;
  /** Where the last failed attempt went; null: none failed. */
  readonly url: string | null;
  readonly succeededAtMs: number | null;
  /** The first failed attempt after the last success; null: there was none. */
  readonly failingSinceMs: number | null;
  /** Failed attempts after the last success. */
  readonly failedAttempts: number;
  readonly abandoned: number;
  readonly errorCode: ErrorCode | null;
};

/**
 * Adds what was seen. Endpoints that only succeeded cost a look-up each, and no write unless they were failing before.
 * Dispatchers write in any order, so a success may end a streak that another has seen go on: then the next failure
 * begins it again, a little later than it was.
 *
 * Losing option: columns written by the record statement. It is the hottest there is, and a row per account would be
 * the one that all its attempts wait for.
 */
export async function noteEndpointNews(pool: Pool, news: readonly EndpointNews[]): Promise<void> {
  const { bad = [], good = [] } = Object.groupBy(news, ({ failedAttempts, abandoned }) =>
    failedAttempts > 0 || abandoned > 0 ? "bad" : "good",
  );
  if (bad.length > 0)
    await pool.query({ name: "note_failures", text: NOTE_FAILURES, values: [JSON.stringify(bad)] });
  if (good.length > 0)
    await pool.query({ name: "note_successes", text: NOTE_SUCCESSES, values: [JSON.stringify(good)] });
}

const NOTE_FAILURES = `
insert into sealpost.endpoint_health as h
  (account_id, url, succeeded_at, failing_since, failed_attempts, abandoned, last_error_code)
select "accountId", url, to_timestamp("succeededAtMs" / 1000), to_timestamp("failingSinceMs" / 1000), "failedAttempts",
  abandoned, "errorCode"
from json_to_recordset($1) as seen ("accountId" uuid, url text, "succeededAtMs" float8, "failingSinceMs" float8,
  "failedAttempts" integer, abandoned integer, "errorCode" text)
where ${notErased('"accountId"')}
order by "accountId"
on conflict (account_id) do update set
  url = coalesce(excluded.url, h.url),
  succeeded_at = greatest(h.succeeded_at, excluded.succeeded_at),
  failing_since = case
    when excluded.succeeded_at is not null or excluded.url <> h.url then excluded.failing_since
    else least(h.failing_since, excluded.failing_since) end,
  failed_attempts = excluded.failed_attempts + case
    when excluded.succeeded_at is not null or excluded.url <> h.url then 0
    else h.failed_attempts end,
  abandoned = h.abandoned + excluded.abandoned,
  last_error_code = coalesce(excluded.last_error_code, h.last_error_code)`;

const NOTE_SUCCESSES = `
with seen as materialized (
  select "accountId" as account_id, to_timestamp("succeededAtMs" / 1000) as succeeded_at
  from json_to_recordset($1) as seen ("accountId" uuid, "succeededAtMs" float8)
), mine as (
  select account_id from sealpost.endpoint_health
  where account_id = any (array(select account_id from seen)) and (failing_since is not null or is_failing)
  order by account_id
  for update
)
update sealpost.endpoint_health as h
set failing_since = null, failed_attempts = 0, succeeded_at = greatest(h.succeeded_at, seen.succeeded_at)
from mine join seen using (account_id)
where h.account_id = any (array[mine.account_id])`;

/** What is known of an account's endpoint that does not take everything. `abandoned`: what nobody was told of yet. */
export type StoredHealth = EndpointNews & {
  /** The account's endpoint now; null: it has none. */
  readonly endpointUrl: string | null;
  /** Somebody was told that it is failing, and nobody yet that it has recovered. */
  readonly isFailing: boolean;
  readonly toldAtMs: number | null;
  /** The database's time while it answered. */
  readonly nowMs: number;
};

/** By account, after one (null: the first); not of paused endpoints, whose owners know that nothing arrives. */
export async function findEndpointHealth(
  pool: Pool,
  afterAccountId: string | null,
  rowsMax: number,
): Promise<readonly StoredHealth[]> {
  const { rows } = await pool.query<StoredHealth>({
    name: "find_endpoint_health",
    text: `select h.account_id as "accountId", h.url, e.url as "endpointUrl",
        ${ms("h.failing_since")} as "failingSinceMs",
        h.failed_attempts as "failedAttempts", h.abandoned, h.last_error_code as "errorCode",
        ${ms("h.succeeded_at")} as "succeededAtMs", h.is_failing as "isFailing", ${ms("h.told_at")} as "toldAtMs",
        ${ms("clock_timestamp()")} as "nowMs"
      from sealpost.endpoint_health as h left join sealpost.endpoints as e using (account_id)
      where ($1::uuid is null or h.account_id > $1) and e.paused_at is null
      order by h.account_id
      limit $2`,
    values: [afterAccountId, rowsMax],
  });
  return rows;
}

/** False: somebody else has told it, or it has changed so that nothing is to be told. */
export async function markFailing(
  client: ClientBase,
  accountId: string,
  abandoned: number,
): Promise<boolean> {
  const { rowCount } = await client.query(
    `update sealpost.endpoint_health set is_failing = true, told_at = now(), abandoned = greatest(abandoned - $2, 0)
     where account_id = $1 and not is_failing`,
    [accountId, abandoned],
  );
  return rowCount === 1;
}

/** What was abandoned until now is in the notice's count. False: somebody else has told it. */
export async function markRecovered(client: ClientBase, accountId: string): Promise<boolean> {
  const { rowCount } = await client.query(
    `update sealpost.endpoint_health set is_failing = false, abandoned = 0
     where account_id = $1 and is_failing and succeeded_at > told_at`,
    [accountId],
  );
  return rowCount === 1;
}

/** Forgets what was read of it, unless something has been noted since. */
export async function forgetHealth(pool: Pool, health: StoredHealth): Promise<void> {
  await pool.query(
    `delete from sealpost.endpoint_health
     where account_id = $1 and is_failing = $2 and abandoned = $3 and failed_attempts = $4
       and url is not distinct from $5`,
    [health.accountId, health.isFailing, health.abandoned, health.failedAttempts, health.url],
  );
}

/** `failed`: waiting for another attempt after one that failed. */
type Undelivered = { readonly failed: number; readonly abandoned: number };

/** The account's deliveries to its endpoint that did not arrive and still can; each counted up to `countMax`. */
export async function countUndelivered(
  pool: Pool,
  accountId: string,
  analysisRetentionMs: number,
  countMax: number,
): Promise<Undelivered> {
  const counted = (status: string) => `(
    select count(*)::integer from (
      select from sealpost.deliveries as d
      where d.account_id = $1 and d.status = '${status}' and d.webhook_url is null
        and d.id >= sealpost.uuid_v7_floor(now() - $2::float8 * interval '1 millisecond')
      limit $3
    ) as found)`;
  const { rows } = await pool.query<Undelivered>(
    `select ${counted("failed")} as failed, ${counted("abandoned")} as abandoned`,
    [accountId, analysisRetentionMs, countMax],
  );
  return rows[0]!;
}
