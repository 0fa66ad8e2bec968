import type { Pool } from "pg";
import { inTransaction } from "../../base/database/transaction.ts";
import type { StorageKind, StorageUse } from "../../base/model/storage.ts";
import { type Database, rowOf, type SpaceUser } from "./statements.ts";

/** Whether the account has any space. False, too, on a database that the workspace was never installed in. */
export async function hasSpaces(database: Database, accountId: string): Promise<boolean> {
  const { rows } = await database.query<{ is_there: boolean }>(
    "select to_regclass('workspace.spaces') is not null as is_there",
  );
  if (!rows[0]!.is_there) return false;
  const { rowCount } = await database.query("select from workspace.spaces where account_id = $1 limit 1", [
    accountId,
  ]);
  return rowCount === 1;
}

/** The id of the object store that documents are in; null: nothing has been stored yet. */
export async function readStoreId(pool: Pool): Promise<string | null> {
  const { rows } = await pool.query<{ id: string | null }>("select id from workspace.object_store");
  return rows[0]!.id;
}

/** Keeps what `findId` resolves with, where there is none yet, by one process at a time. Returns the one there is. */
export async function settleStoreId(pool: Pool, findId: () => Promise<string>): Promise<string> {
  return await inTransaction(pool, async (tx) => {
    const { rows } = await tx.query<{ id: string | null }>(
      "select id from workspace.object_store for update",
    );
    const known = rows[0]!.id;
    if (known !== null) return known;
    const id = await findId();
    await tx.query("update workspace.object_store set id = $1", [id]);
    return id;
  });
}

const KINDS: readonly StorageKind[] = ["documents", "leftovers", "pages", "workflows", "runs"];

/** What the account's workspace stores, exactly. */
export async function readWorkspaceStorage(pool: Pool, accountId: string): Promise<readonly StorageUse[]> {
  const { rows } = await pool.query<StorageUse>({
    name: "read_workspace_storage",
    text: `
      select kind, coalesce(s.bytes, 0)::float8 as bytes, l.bytes_max::float8 as "bytesMax"
      from unnest($2::text[]) as listed (kind)
      left join (select kind, bytes from workspace.storage where account_id = $1 and user_id = $1) as s using (kind)
      left join sealpost.storage_limits as l using (kind)`,
    values: [accountId, KINDS],
  });
  return rows;
}

/**
 * Before a rename, or an upload, which may leave an object behind: those that are left already are no more than they
 * may be, and this user's no more than is left for others. What was begun is never refused, so they may be more for a
 * while, by what all documents have.
 *
 * @throws what `storageRefusalOf` knows
 */
export const requireRoomForLeftovers = rowOf<object, SpaceUser, []>(
  `select sealpost.refuse_storage(kind, bytes_max) from sealpost.storage_limits
   where kind = 'leftovers' and bytes_max < (
     select sum(bytes) from workspace.storage
     where account_id = $1 and kind = 'leftovers' and user_id in ($1, $2))`,
);
