import type { ClientBase, Pool } from "pg";
import pg from "pg";

/** The database is of another cell than this process (CELL), or of none yet: nothing is read from it or written. */
export class OtherCellError extends Error {
  override readonly name = "OtherCellError";
  /** Null: the database is of no cell yet. */
  readonly found: string | null;

  constructor(wanted: string, found: string | null) {
    super(
      found === null
        ? `The database belongs to no cell yet, and CELL is ${wanted}: run migrate, which writes CELL into it once.`
        : `The database belongs to the cell ${found}, and CELL is ${wanted}: correct CELL or DATABASE_URL.`,
    );
    this.found = found;
  }
}

/** No table of settings, or one from before there were cells. */
const BEFORE_CELLS = /^(?:3F000|42P01|42703)$/;

/** The cell that the database is of; null: none. */
export async function readCell(database: Pool | ClientBase): Promise<string | null> {
  try {
    const { rows } = await database.query<{ cell: string | null }>("select cell from sealpost.settings");
    return rows[0]?.cell ?? null;
  } catch (error) {
    if (error instanceof pg.DatabaseError && BEFORE_CELLS.test(error.code ?? "")) return null;
    throw error;
  }
}

/** @throws OtherCellError unless the database is of `cell` */
export async function requireCell(client: ClientBase, cell: string): Promise<void> {
  const found = await readCell(client);
  if (found !== cell) throw new OtherCellError(cell, found);
}

/** @throws OtherCellError when the database is of another cell than `cell` */
export async function refuseOtherCell(client: ClientBase, cell: string): Promise<void> {
  const found = await readCell(client);
  if (found !== null && found !== cell) throw new OtherCellError(cell, found);
}

/** For ever: two cells under one name could not be told apart. @throws OtherCellError when it is already another's */
export async function writeCell(client: ClientBase, cell: string): Promise<void> {
  await client.query("update sealpost.settings set cell = $1 where cell is null", [cell]);
  await requireCell(client, cell);
}

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
