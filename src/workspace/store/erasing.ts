import type { ClientBase, Pool } from "pg";
import type { DeletedTable } from "../../base/database/account-rows.ts";
import type { BinKind } from "../model/bin.ts";
import { KEPT_MS, RESERVED_MS } from "./loose-objects.ts";
import { rowsOf } from "./statements.ts";

/** Rows `t` of a table; of the whole account, where there is no such value. */
const only = (column: string, value: string | null) =>
  value === null ? {} : { only: `t.${column} = ${value}` };

/** Pages, beginning with what others can open. @param page SQL: which; null: all */
const pageTables = (page: string | null): readonly DeletedTable[] => [
  { name: "workspace.page_links", key: ["id"], ...only("page_id", page) },
  { name: "workspace.page_versions", key: ["id"], rowsMax: 100, ...only("page_id", page) },
  { name: "workspace.pages", key: ["id"], rowsMax: 100, ...only("id", page) },
];

/** What starts runs. @param workflow SQL: of which; null: of all */
const triggerTables = (workflow: string | null): readonly DeletedTable[] => [
  { name: "workspace.hooks", key: ["id"], ...only("workflow_id", workflow) },
  { name: "workspace.schedules", key: ["workflow_id"], ...only("workflow_id", workflow) },
];

/** @param workflow SQL: which; null: all */
const workflowTables = (workflow: string | null): readonly DeletedTable[] => [
  ...triggerTables(workflow),
  {
    name: "workspace.workflow_versions",
    key: ["workflow_id", "version"],
    rowsMax: 100,
    ...only("workflow_id", workflow),
  },
  { name: "workspace.workflows", key: ["id"], rowsMax: 100, ...only("id", workflow) },
];

/** From the leaves on. @param which SQL: rows `t` */
const folderTable = (which: string): DeletedTable => ({
  name: "workspace.folders",
  key: ["space_id", "id"],
  only: `${which} and not exists (select from workspace.folders as c
    where c.account_id = t.account_id and c.space_id = t.space_id and c.parent_id = t.id
      and c.bin_id is not distinct from t.bin_id)`,
});

/**
 * What is deleted of an account before its documents: first what others can open or run, then its runs. A step of a
 * run that is gone finds nothing to record.
 */
export const FROM_DOCUMENTS: readonly DeletedTable[] = [
  ...pageTables(null),
  ...triggerTables(null),
  // Each with all that it has handed on, so that no step goes on with a part of it.
  { name: "workspace.runs", key: ["id"], rowsMax: 1, only: "completed_at is null" },
  { name: "workspace.node_items", key: ["run_id", "sequence", "index"] },
  { name: "workspace.run_events", key: ["run_id", "sequence"] },
  { name: "workspace.node_runs", key: ["run_id", "sequence"] },
  { name: "workspace.runs", key: ["id"] },
  { name: "workspace.feed_readers", key: [] },
  { name: "workspace.moves", key: ["id"] },
];

/** And after them. Of the counts, users' go with what was theirs. */
export const AROUND_DOCUMENTS: readonly DeletedTable[] = [
  ...workflowTables(null),
  folderTable("true"),
  { name: "workspace.bin", key: ["id"] },
  { name: "workspace.space_members", key: ["user_id", "space_id"] },
  { name: "workspace.spaces", key: ["id"] },
];

/** Workflows whose runs have all ended, and these. A run is as much as others' pages. @param which SQL: rows `w` */
function endedWorkflowTables(which: string): readonly DeletedTable[] {
  // One at a time: so each statement goes by an index.
  const workflow = `(select id from workspace.workflows as w
    where w.account_id = $1 and ${which} and w.id <> all (array(
      select workflow_id from workspace.runs where account_id = $1 and completed_at is null))
    order by id limit 1)`;
  return [
    { name: "workspace.runs", key: ["id"], rowsMax: 1, ...only("workflow_id", workflow) },
    ...workflowTables(workflow),
  ];
}

const documentsWhere = (which: string) => ({ documents: which });
type GoneTable = DeletedTable | ReturnType<typeof documentsWhere>;

const OF_DELETION: readonly GoneTable[] = [documentsWhere("t.bin_id = $2"), folderTable("t.bin_id = $2")];

/**
 * What is deleted for good of what is in the bin: `$2` is the page, the workflow, the space, or the deletion that took
 * documents and folders. Each table when those before it have nothing more.
 */
export const GONE_TABLES: Readonly<Record<BinKind, readonly GoneTable[]>> = {
  page: pageTables("$2"),
  workflow: endedWorkflowTables("w.id = $2"),
  document: OF_DELETION,
  folder: OF_DELETION,
  space: [
    ...pageTables(
      "(select id from workspace.pages where account_id = $1 and space_id = $2 order by id limit 1)",
    ),
    { name: "workspace.moves", key: ["id"], ...only("space_id", "$2") },
    documentsWhere("t.space_id = $2"),
    ...endedWorkflowTables("w.space_id = $2"),
    folderTable("t.space_id = $2"),
    { name: "workspace.bin", key: ["id"], only: "t.space_id = $2 and t.kind <> 'space'" },
    {
      name: "workspace.spaces",
      key: ["id"],
      only: `t.id = $2 and not exists (select from workspace.workflows as w
        where w.account_id = $1 and w.space_id = $2)`,
    },
  ],
};

const DOCUMENTS_PER_STEP = 200;

/**
 * Deletes a page of documents, whose space is locked; their objects go like those of what was moved. Returns how many.
 * @param which SQL: rows `t`
 */
export async function deleteGoneDocuments(
  tx: ClientBase,
  accountId: string,
  ofId: string,
  which: string,
): Promise<number> {
  const { rows } = await tx.query<{ gone: number }>(
    `with page as (
       select id from workspace.documents as t where account_id = $1 and ${which} limit ${DOCUMENTS_PER_STEP}
     ), unmoved as (
       delete from workspace.moves as m using page where m.account_id = $1 and m.document_id = page.id
     ), gone as (
       delete from workspace.documents as d using page where d.account_id = $1 and d.id = page.id
       returning d.storage_key, d.has_content, d.file_size, d.uploaded_by
     ), released as (
       insert into workspace.loose_objects (account_id, storage_key, is_reserved, remove_at, bytes, user_id)
       select $1, storage_key, false, now() + ${KEPT_MS} * interval '1 millisecond', file_size, uploaded_by
       from gone where has_content
     ), hurried as (
       -- What its renames have left for a while.
       update workspace.loose_objects as l
       set remove_at = least(l.remove_at, now() + ${KEPT_MS} * interval '1 millisecond')
       from page where l.account_id = $1 and workspace.document_of(l.storage_key) = page.id::text
         and not l.is_reserved
     )
     select count(*)::integer as gone from gone`,
    [accountId, ofId],
  );
  return rows[0]!.gone;
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
       remove_at = case when is_reserved then now() + ${RESERVED_MS} * interval '1 millisecond'
         else least(remove_at, now() + ${KEPT_MS} * interval '1 millisecond') end
     where account_id = $1 and storage_key = any ($2::text[]) and (is_reserved or bytes > 0 or user_id is not null)`,
    [accountId, keys],
  );
  return rowCount ?? 0;
}

/** Keys that stay for a day or two, as an upload may still store their objects; names from before renames do not. */
export async function countLoose(pool: Pool, accountId: string): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::integer as count from workspace.loose_objects
     where account_id = $1 and remove_at > now() + interval '1 hour'`,
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
