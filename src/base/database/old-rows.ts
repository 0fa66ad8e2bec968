import type { Pool } from "pg";

const KEPT = "$1::float8 * interval '1 millisecond'";

/** Of each table that is not partitioned by days, the rows that may go: what follows `where`. */
const OLD = {
  activity: `bucket < now() - ${KEPT}`,
  // A session that is kept names the key that opened it.
  api_keys: `least(expires_at, revoked_at) < now() - ${KEPT} and id not in (
    select key_id from sealpost.console_sessions where key_id is not null)`,
  audit_log: `id < sealpost.uuid_v7_floor(now() - ${KEPT}) order by id`,
  console_sessions: `expires_at < now() - ${KEPT}`,
  feed_consumers: `updated_at < now() - ${KEPT}`,
  idempotency_keys: `created_at < now() - ${KEPT}`,
  notice_mails: `id < sealpost.uuid_v7_floor(now() - ${KEPT})`,
  // An address that was not confirmed while it could be.
  notice_recipients: `confirmed_at is null and greatest(token_expires_at, created_at + ${KEPT}) < now()`,
  notices: `id < sealpost.uuid_v7_floor(now() - ${KEPT})`,
  rate_limits: `expire < (extract(epoch from now() - ${KEPT}) * 1000)::bigint`,
  replays: `ended_at < now() - ${KEPT} order by id`,
  signing_secrets: `expires_at < now() - ${KEPT}`,
} as const;

export type OldRows = keyof typeof OLD;

/**
 * Deletes at most `rowsMax` rows that are older than `keptMs` by the database's clock. Returns how many. It waits for
 * none, or it and a statement with some of the same rows might wait for each other: what is in use is not to go yet.
 */
export async function deleteOldRows(
  pool: Pool,
  table: OldRows,
  keptMs: number,
  rowsMax: number,
): Promise<number> {
  const { rowCount } = await pool.query(
    `delete from sealpost.${table} where ctid = any (array(
       select ctid from sealpost.${table} where ${OLD[table]} limit $2 for update skip locked))`,
    [keptMs, rowsMax],
  );
  return rowCount ?? 0;
}
