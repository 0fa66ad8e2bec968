import type { Pool } from "pg";
import type { DeletedTable } from "../../base/database/account-rows.ts";
import { RESERVED_MS } from "./loose-objects.ts";
import { rowsOf } from "./statements.ts";

/**
 * What is deleted of an account before its documents: first what others can open, then its runs. A step of a run that
 * is gone finds nothing to record.
 */
export const FROM_DOCUMENTS: readonly DeletedTable[] = [
  { name: "workspace.page_links", key: ["id"] },
  { name: "workspace.page_versions", key: ["id"], rowsMax: 100 },
  { name: "workspace.pages", key: ["id"], rowsMax: 100 },
  // Each with all that it has handed on, so that no step goes on with a part of it.
  { name: "workspace.runs", key: ["id"], rowsMax: 1, only: "completed_at is null" },
  { name: "workspace.node_items", key: ["run_id", "sequence", "index"] },
  { name: "workspace.run_events", key: ["run_id", "sequence"] },
  { name: "workspace.node_runs", key: ["run_id", "sequence"] },
  { name: "workspace.runs", key: ["id"] },
  { name: "workspace.feed_readers", key: [] },
  { name: "workspace.moves", key: ["id"] },
];

/** And after them. Folders from the leaves on; of the counts those that nothing adds to or takes from any more. */
export const AROUND_DOCUMENTS: readonly DeletedTable[] = [
  { name: "workspace.workflow_versions", key: ["workflow_id", "version"], rowsMax: 100 },
  { name: "workspace.workflows", key: ["id"], rowsMax: 100 },
  {
    name: "workspace.folders",
    key: ["space_id", "id"],
    only: `not exists (select from workspace.folders as c
      where c.account_id = t.account_id and c.space_id = t.space_id and c.parent_id = t.id)`,
  },
  { name: "workspace.space_members", key: ["user_id", "space_id"] },
  { name: "workspace.spaces", key: ["id"] },
  {
    name: "workspace.storage",
    key: ["kind", "user_id"],
    only: `user_id <> account_id and not exists (select from workspace.loose_objects as l
      where l.account_id = t.account_id and l.user_id = t.user_id)`,
  },
];

/** A workflow and its current version refer to each other. Returns how many of a page had one. */
export async function unpublishWorkflows(pool: Pool, accountId: string): Promise<number> {
  const { rowCount } = await pool.query(
    `update workspace.workflows set current_version = null
     where account_id = $1 and id = any (array(
       select id from workspace.workflows where account_id = $1 and current_version is not null limit 100))`,
    [accountId],
  );
  return rowCount ?? 0;
}

/** The prefix of each of the account's spaces, as it is now. */
export const readStoragePrefixes = rowsOf<{ readonly storagePrefix: string }, string, []>(
  `select storage_prefix as "storagePrefix" from workspace.spaces where account_id = $1`,
);

type StoredDocument = { readonly id: string; readonly storageKey: string; readonly hasContent: boolean };

export const readStoredDocuments = rowsOf<StoredDocument, string, [countMax: number]>(
  `select id, storage_key as "storageKey", has_content as "hasContent" from workspace.documents
   where account_id = $1 order by id limit $2`,
);

/** Those of them that are still where they were. */
export async function deleteDocuments(
  pool: Pool,
  accountId: string,
  documents: readonly StoredDocument[],
): Promise<void> {
  await pool.query(
    `delete from workspace.documents as d using unnest($2::uuid[], $3::text[]) as gone (id, storage_key)
     where d.account_id = $1 and d.id = gone.id and d.storage_key = gone.storage_key`,
    [accountId, documents.map(({ id }) => id), documents.map(({ storageKey }) => storageKey)],
  );
}

/** The account's loose objects behind this key. */
export const readLooseKeys = rowsOf<
  { readonly storageKey: string },
  string,
  [after: string, countMax: number]
>(
  `select storage_key as "storageKey" from workspace.loose_objects
   where account_id = $1 and storage_key > $2 order by storage_key limit $3`,
);

/**
 * Nobody brings these keys to a document any more, and they are nobody's. What was reserved until now is looked at
 * again when whoever stores something there has ended. Returns how many have changed.
 */
export async function letLooseGo(pool: Pool, accountId: string, keys: readonly string[]): Promise<number> {
  const { rowCount } = await pool.query(
    `update workspace.loose_objects
     set is_reserved = false, bytes = 0, user_id = null,
       remove_at = case when is_reserved then now() + ${RESERVED_MS} * interval '1 millisecond' else remove_at end
     where account_id = $1 and storage_key = any ($2::text[]) and (is_reserved or bytes > 0 or user_id is not null)`,
    [accountId, keys],
  );
  return rowCount ?? 0;
}

export async function countLoose(pool: Pool, accountId: string): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    "select count(*)::integer as count from workspace.loose_objects where account_id = $1",
    [accountId],
  );
  return rows[0]!.count;
}

/** Deletes what is left of erased accounts' workspaces once the last of their loose objects has gone. */
export async function forgetErased(pool: Pool): Promise<void> {
  await pool.query(
    `with gone as materialized (
       select w.account_id from workspace.workspaces as w
       join sealpost.accounts as a on a.id = w.account_id and a.erased_at is not null
       where not exists (select from workspace.spaces as s where s.account_id = w.account_id)
         and not exists (select from workspace.loose_objects as l where l.account_id = w.account_id)
     ), counts as (
       delete from workspace.storage as s using gone where s.account_id = gone.account_id
     )
     delete from workspace.workspaces as w using gone where w.account_id = gone.account_id`,
  );
}
