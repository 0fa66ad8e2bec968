import type { Pool } from "pg";
import { inTransaction } from "../../base/database/transaction.ts";
import type { Quota, QuotaUse, StorageKind, StorageUse } from "../../base/model/storage.ts";
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
  `select kind, coalesce((to_jsonb(s) ->> kind)::float8, 0) as bytes, l.bytes_max::float8 as "bytesMax"
   from unnest('{${KINDS.join()}}'::text[]) as listed (kind)
   left join workspace.storage as s on s.account_id = $1 and s.holder_id = $1
   left join sealpost.storage_limits as l using (kind)`,
  "read_workspace_storage",
);

/** Of the account's row `s`, and of the spaces' that have the most. */
const USED: Readonly<Record<Quota, string>> = {
  bytes: "s.documents + s.pages + s.workflows + s.runs",
  documents: "s.document_count",
  runs_per_day: "case when s.run_day = (now() at time zone 'UTC')::date then s.run_count end",
  ended_run_bytes: "s.ended_runs",
  space_bytes: "largest.documents",
  space_documents: "largest.document_count",
};

/** What it has of what it may have, exactly. */
export const readQuotas = rowsOf<QuotaUse, string, []>(
  `select used.quota, coalesce(used.amount, 0)::float8 as used, q.most::float8
   from (
     select max(o.documents) as documents, max(o.document_count) as document_count from workspace.spaces as p
     join workspace.storage as o on o.account_id = p.account_id and o.holder_id = p.id where p.account_id = $1
   ) as largest
   left join workspace.storage as s on s.account_id = $1 and s.holder_id = $1
   cross join lateral (
     values ${Object.entries(USED)
       .map(([quota, amount]) => `('${quota}', ${amount})`)
       .join()}
   ) as used (quota, amount)
   left join sealpost.quotas as q on q.account_id = $1 and q.quota = used.quota`,
  "read_quotas",
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
     select sum(leftovers) from workspace.storage where account_id = $1 and holder_id in ($1, $2))`,
);
