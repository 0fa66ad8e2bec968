import type { Pool } from "pg";
import { inTransaction } from "../../base/database/transaction.ts";
import type { StorageKind, StorageUse } from "../../base/model/storage.ts";
import { type Database, rowOf, rowsOf, type SpaceUser, scalarOf } from "./statements.ts";

/** Whether the account has any space. False, too, on a database that the workspace was never installed in. */
export async function hasSpaces(database: Database, accountId: string): Promise<boolean> {
  return (await isInstalled(database)) && (await findAnySpace(database, accountId)) !== null;
}

/** Whether the database has the workspace's tables. */
export const isInstalled = scalarOf<boolean>("select to_regclass('workspace.spaces') is not null");
const findAnySpace = rowOf<object, string, []>("select from workspace.spaces where account_id = $1 limit 1");

/** The id of the object store that documents are in; null: nothing has been stored yet. */
export const readStoreId = scalarOf<string | null>("select id from workspace.object_store");
const lockStoreId = scalarOf<string | null>("select id from workspace.object_store for update");

/** Keeps what `findId` resolves with, where there is none yet, by one process at a time. Returns the one there is. */
export async function settleStoreId(pool: Pool, findId: () => Promise<string>): Promise<string> {
  return await inTransaction(pool, async (tx) => {
    const known = await lockStoreId(tx);
    if (known !== null) return known;
    const id = await findId();
    await tx.query("update workspace.object_store set id = $1", [id]);
    return id;
  });
}

const KINDS: readonly StorageKind[] = ["documents", "leftovers", "pages", "workflows", "runs"];

/** What the account's workspace stores, exactly. */
export const readWorkspaceStorage = rowsOf<StorageUse, string, []>(
  `select kind, coalesce(s.bytes, 0)::float8 as bytes, l.bytes_max::float8 as "bytesMax"
   from unnest('{${KINDS.join()}}'::text[]) as listed (kind)
   left join (select kind, bytes from workspace.storage where account_id = $1 and user_id = $1) as s using (kind)
   left join sealpost.storage_limits as l using (kind)`,
  "read_workspace_storage",
);

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
