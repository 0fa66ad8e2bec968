import type { Pool } from "pg";

/** How long the rows of a database are kept. */
export type Retention = {
  /** Analyses are readable this long; bodies are kept a day longer, because they are dropped by whole days. */
  readonly analysisRetentionMs: number;
  readonly logRetentionMs: number;
  readonly auditRetentionMs: number;
  readonly idempotencyRetentionMs: number;
};

/** Says by what house is kept from now on. An unchanged row is not rewritten: publishers read it all the time. */
export async function writeRetention(pool: Pool, retention: Retention): Promise<void> {
  await pool.query(
    `update sealpost.settings
     set analysis_retention_ms = $1, log_retention_ms = $2, audit_retention_ms = $3, idempotency_retention_ms = $4
     where (analysis_retention_ms, log_retention_ms, audit_retention_ms, idempotency_retention_ms)
       is distinct from ($1::bigint, $2::bigint, $3::bigint, $4::bigint)`,
    [
      retention.analysisRetentionMs,
      retention.logRetentionMs,
      retention.auditRetentionMs,
      retention.idempotencyRetentionMs,
    ],
  );
}

/** Null: no leader has kept house here yet. */
export async function readRetention(pool: Pool): Promise<Retention | null> {
  const { rows } = await pool.query<{ [Name in keyof Retention]: number | null }>(
    `select analysis_retention_ms::float8 as "analysisRetentionMs", log_retention_ms::float8 as "logRetentionMs",
       audit_retention_ms::float8 as "auditRetentionMs", idempotency_retention_ms::float8 as "idempotencyRetentionMs"
     from sealpost.settings`,
  );
  return rows[0]!.logRetentionMs === null ? null : (rows[0] as Retention);
}

/** The database's clock, ms since the epoch. */
export async function readClock(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ ms: number }>(
    "select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms",
  );
  return rows[0]!.ms;
}
