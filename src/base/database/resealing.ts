import type { Pool } from "pg";
import { keysOf, type SecretsKey } from "../model/secrets-key.ts";
import { opens, SEALED_COLUMNS, type SealedFor, seal, unseal } from "./sealing.ts";

/** Looked at by a step, which locks those of them that it seals. */
const STEP_ROWS = 1_000;

type Row = SealedFor & {
  /** Its primary key. */
  readonly place: readonly string[];
  readonly sealed: Buffer | null;
};

/** A secret that none of the keys opens; `table` with its schema. */
type Unreadable = { readonly table: string; readonly id: string };

/**
 * Seals with the first key whatever another one sealed, except for the canary. Each step is a statement of its own, and
 * what is done is skipped: whoever is killed begins again. A row that changes meanwhile is left to who changed it.
 *
 * @returns how many were sealed anew; or the first that no key opens, where it stopped
 */
export async function reseal(pool: Pool, secretsKey: SecretsKey): Promise<number | Unreadable> {
  let count = 0;
  for (const [table, { schema }] of Object.entries(SEALED_COLUMNS)) {
    if (schema !== undefined && !(await isThere(pool, nameOf(table)))) continue;
    let rows: readonly Row[] = [];
    do {
      rows = await readRows(pool, table, rows.at(-1)?.place ?? []);
      const stale = rows.filter(
        (row) => row.sealed !== null && !opens(keysOf(secretsKey)[0], row.sealed, row),
      );
      const unreadable = stale.find((row) => !opens(secretsKey, row.sealed!, row));
      if (unreadable !== undefined) return { table: nameOf(table), id: unreadable.id };
      if (stale.length > 0) count += await resealRows(pool, table, stale, secretsKey);
    } while (rows.length > 0);
  }
  return count;
}

const nameOf = (table: string) => `${SEALED_COLUMNS[table]!.schema ?? "sealpost"}.${table}`;

async function isThere(pool: Pool, name: string): Promise<boolean> {
  const { rows } = await pool.query<{ there: boolean }>("select to_regclass($1) is not null as there", [
    name,
  ]);
  return rows[0]!.there;
}

/** @param after where the last step ended; empty: at the start */
async function readRows(pool: Pool, table: string, after: readonly string[]): Promise<readonly Row[]> {
  const { column, key, owner, if: isSealed = "true" } = SEALED_COLUMNS[table]!;
  const names = Object.keys(key);
  const last = Object.values(key).map((type, n) => `$${n + 1}::${type}`);
  const { rows } = await pool.query<Row>(
    `select array[${names.map((name) => `${name}::text`)}] as place, account_id as "accountId",
       concat_ws('/', ${owner}) as id, case when ${isSealed} then ${column} end as sealed
     from ${nameOf(table)} ${after.length === 0 ? "" : `where (${names}) > (${last})`}
     order by ${names} limit ${STEP_ROWS}`,
    [...after],
  );
  return rows;
}

async function resealRows(pool: Pool, table: string, rows: readonly Row[], key: SecretsKey): Promise<number> {
  const { column, key: types } = SEALED_COLUMNS[table]!;
  const names = Object.keys(types);
  const keys = Object.values(types).map((type, n) => `$${n + 3}::${type}[]`);
  const { rowCount } = await pool.query(
    `update ${nameOf(table)} as t set ${column} = r.resealed
     from unnest($1::bytea[], $2::bytea[], ${keys}) as r (found, resealed, ${names})
     where (${names.map((name) => `t.${name}`)}) = (${names.map((name) => `r.${name}`)}) and t.${column} = r.found`,
    [
      rows.map(({ sealed }) => sealed),
      rows.map((row) => seal(unseal(row.sealed!, key, row), key, row)),
      ...names.map((_, n) => rows.map(({ place }) => place[n])),
    ],
  );
  return rowCount ?? 0;
}
