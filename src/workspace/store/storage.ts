import type { ClientBase, Pool } from "pg";
import type { StorageKind, StorageUse } from "../../model/storage.ts";

const KINDS: readonly StorageKind[] = ["documents", "leftovers", "pages", "workflows", "runs"];

/** What the account's workspace stores, exactly. */
export async function readWorkspaceStorage(pool: Pool, accountId: string): Promise<readonly StorageUse[]> {
  const { rows } = await pool.query<StorageUse>({
    name: "read_workspace_storage",
    text: `
      select kind, coalesce(s.bytes, 0)::float8 as bytes, l.bytes_max::float8 as "bytesMax"
      from unnest($2::text[]) as listed (kind)
      left join (select kind, bytes from workspace.storage where account_id = $1) as s using (kind)
      left join sealpost.storage_limits as l using (kind)`,
    values: [accountId, KINDS],
  });
  return rows;
}

/**
 * Before a rename, or an upload, which may leave an object behind: those that are left already are no more than they
 * may be. What was begun is never refused, so they may be more for a while, by what all documents have.
 *
 * @throws what `storageRefusalOf` knows
 */
export async function requireRoomForLeftovers(database: Pool | ClientBase, accountId: string): Promise<void> {
  await database.query(
    `select sealpost.refuse_storage(l.kind, l.bytes_max)
     from sealpost.storage_limits as l join workspace.storage as s using (kind)
     where l.kind = 'leftovers' and s.account_id = $1 and s.bytes > l.bytes_max`,
    [accountId],
  );
}
