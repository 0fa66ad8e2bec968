import type { ClientBase, Pool } from "pg";
import { DAY_MS } from "../../model/time.ts";

/** How long whoever reserves a key may take to bring it to a document. */
export const RESERVED_MS = DAY_MS;
/** How long an object is kept that no document names any more: whoever has just read its key finds it. */
export const KEPT_MS = 60_000;

/** Before anything is stored under these keys. */
export async function reserveKeys(
  database: Pool | ClientBase,
  accountId: string,
  keys: readonly string[],
): Promise<void> {
  await database.query(
    `insert into workspace.loose_objects (account_id, storage_key, is_reserved, remove_at)
     select $1, unnest($2::text[]), true, now() + $3::float8 * interval '1 millisecond'`,
    [accountId, keys, RESERVED_MS],
  );
}

/** Of these keys those that a document can be given in this transaction: the others have been given up. */
export async function takeReserved(
  tx: ClientBase,
  accountId: string,
  keys: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await tx.query<{ storage_key: string }>(
    `delete from workspace.loose_objects
     where account_id = $1 and storage_key = any ($2::text[]) and is_reserved returning storage_key`,
    [accountId, keys],
  );
  return new Set(rows.map((row) => row.storage_key));
}

/** Nobody brings these keys to a document any more; what is there is removed. */
export async function giveUpKeys(
  database: Pool | ClientBase,
  accountId: string,
  keys: readonly string[],
  keptMs: number,
): Promise<void> {
  await database.query(
    `insert into workspace.loose_objects (account_id, storage_key, is_reserved, remove_at)
     select $1, unnest($2::text[]), false, now() + $3::float8 * interval '1 millisecond'
     on conflict (account_id, storage_key) do update set is_reserved = false, remove_at = excluded.remove_at`,
    [accountId, keys, keptMs],
  );
}
