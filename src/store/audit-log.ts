import type { ClientBase, Pool } from "pg";

export type AuditEntry = {
  readonly accountId: string;
  /** Null: the command line. */
  readonly keyId: string | null;
  readonly requestId: string | null;
  readonly operationKey: string;
  /** What it was about, never a secret. */
  readonly details: Readonly<Record<string, unknown>> | null;
};

/**
 * In the transaction of what it tells of: both happen or neither. Returns when that is, by the database's clock.
 */
export async function writeAuditEntry(client: ClientBase | Pool, entry: AuditEntry): Promise<Date> {
  const { rows } = await client.query<{ at: Date }>({
    name: "write_audit_entry",
    text: `insert into sealpost.audit_log (account_id, key_id, request_id, operation_key, details)
           values ($1, $2, $3, $4, $5) returning clock_timestamp() as at`,
    values: [
      entry.accountId,
      entry.keyId,
      entry.requestId,
      entry.operationKey,
      entry.details === null ? null : JSON.stringify(entry.details),
    ],
  });
  return rows[0]!.at;
}

/** Forgets entries older than the retention, at most `rowsMax` of them. Returns how many. */
export async function forgetAuditEntries(pool: Pool, retentionMs: number, rowsMax: number): Promise<number> {
  const { rowCount } = await pool.query(
    `with old as (
       select id from sealpost.audit_log
       where id < sealpost.uuid_v7_floor(now() - $1::float8 * interval '1 millisecond') order by id limit $2
     )
     delete from sealpost.audit_log as a using old where a.id = old.id`,
    [retentionMs, rowsMax],
  );
  return rowCount ?? 0;
}
