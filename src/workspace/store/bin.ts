import type { ClientBase, Pool } from "pg";
import { deleteRows, notErased } from "../../base/database/account-rows.ts";
import { timeText } from "../../base/database/time-text.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { BIN_DAYS, type BinItem, type BinKind, DELETED_AT_ONCE_MAX } from "../model/bin.ts";
import type { SpaceRole } from "../model/roles.ts";
import { deleteGoneDocuments, GONE_TABLES } from "./erasing.ts";
import { accountsBehind, isBelow, listOf } from "./lists.ts";
import { isRestorable, lockStoragePrefix, namedUserJson } from "./spaces.ts";
import { change, lockOf, rowOf, type SpaceUser } from "./statements.ts";

/** What is to be deleted, found by its kind and its id. */
export type Deleted = Pick<BinItem, "kind" | "id" | "space_id" | "name">;

/** What names it in a path, as `folder_id`; a space's folder is named with its `space_id`. */
export type ItemIds = { readonly [Name in `${BinKind}_id`]: string };

/** `binId`: the deletion's. */
export type StoredBinItem = BinItem & { readonly binId: string };

const BIN_ITEM = `b.id as "binId", b.kind, b.item_id as id, b.space_id, b.name, ${namedUserJson("u")} as deleted_by,
  ${timeText("b.deleted_at")} as deleted_at,
  ${timeText("case when isfinite(b.gone_at) then b.gone_at else now() end")} as gone_at`;

const BIN =
  "workspace.bin as b join sealpost.users as u on u.account_id = b.account_id and u.id = b.deleted_by";

/** What is in a space's bin, and the space itself, if it is there: the newest first. Null: the user is not a member. */
export const listBin = listOf<StoredBinItem, [spaceId: string]>({
  isSeen: `exists (select from workspace.space_members as m where m.account_id = $1 and m.user_id = $2
    and m.space_id = $3 and (m.bin_id is null or ${isRestorable("m.bin_id")}))`,
  total: { upToMax: "workspace.bin where account_id = $1 and space_id = $3 and gone_at > now()" },
  rows: `
    select ${BIN_ITEM} from ${BIN}
    where b.account_id = $1 and b.space_id = $3 and b.gone_at > now() and ${isBelow("b.id", "$4")}`,
  order: ["binId", "desc"],
});

export const findBinItem = rowOf<StoredBinItem, string, [binId: string]>(
  `select ${BIN_ITEM} from ${BIN} where b.account_id = $1 and b.id = $2`,
);

/** Whether the user is a member of the space, be it in the bin or not. */
export const isMemberAnyway = change<SpaceUser, [spaceId: string]>(
  "select from workspace.space_members where account_id = $1 and user_id = $2 and space_id = $3",
);

const insertItem = rowOf<
  { readonly id: string },
  SpaceUser,
  [kind: BinKind, id: string, spaceId: string, name: string]
>(
  `insert into workspace.bin (account_id, deleted_by, kind, item_id, space_id, name, gone_at, next_at)
   select $1, $2, $3, $4, $5, $6, gone_at, gone_at from (select now() + interval '${BIN_DAYS} days' as gone_at) as gone
   returning id`,
);

/** What there is in a folder and below it, it included; no more than one beyond what can be deleted at once. */
const findInside = rowOf<
  { readonly folders: readonly string[]; readonly documents: readonly string[] },
  string,
  [spaceId: string, folderId: string]
>(
  `with recursive tree as (
     select id from workspace.folders where account_id = $1 and space_id = $2 and id = $3
     union all
     select f.id from tree join workspace.folders as f
       on f.account_id = $1 and f.space_id = $2 and f.parent_id = tree.id and f.bin_id is null
   ), inside as materialized (select id from tree limit ${DELETED_AT_ONCE_MAX} + 1)
   select array(select id from inside)::text[] as folders, array(
     select d.id from inside join workspace.documents as d
       on d.account_id = $1 and d.space_id = $2 and d.folder_id = inside.id and d.bin_id is null
     limit ${DELETED_AT_ONCE_MAX} + 1)::text[] as documents`,
);

const takeFolders = change<string, [binId: string, spaceId: string, ids: readonly string[]]>(
  "update workspace.folders set bin_id = $2 where account_id = $1 and space_id = $3 and id = any ($4)",
);

const takeDocuments = change<string, [binId: string, spaceId: string, ids: readonly string[]]>(
  `with taken as (
     update workspace.documents set bin_id = $2 where account_id = $1 and id = any ($4::uuid[]) returning 1
   )
   update workspace.spaces set document_count = document_count - (select count(*) from taken)
   where account_id = $1 and id = $3`,
);

/** Closes all links to these pages, as many as there may be. Null: there are more. @param pages SQL */
const closeLinks = (pages: string) =>
  rowOf<object, string, [id: string]>(
    `with open as materialized (
       select id from workspace.page_links
       where account_id = $1 and status = 'ACTIVE' and page_id = any (array(${pages}))
       limit ${DELETED_AT_ONCE_MAX} + 1
     ), closed as (
       update workspace.page_links set status = 'REVOKED', updated_at = now()
       where account_id = $1 and id = any (array(select id from open))
         and (select count(*) from open) <= ${DELETED_AT_ONCE_MAX}
     )
     select from open having count(*) <= ${DELETED_AT_ONCE_MAX}`,
  );
const closeLinksTo = closeLinks("select $2::uuid");
const closeLinksIn = closeLinks("select id from workspace.pages where account_id = $1 and space_id = $2");

const takePage = change<string, [binId: string, pageId: string]>(
  "update workspace.pages set bin_id = $2 where account_id = $1 and id = $3",
);
const takeWorkflow = change<string, [binId: string, workflowId: string]>(
  "update workspace.workflows set bin_id = $2 where account_id = $1 and id = $3",
);
/** Its members first: who has held what they are there has ended. */
const takeMembers = change<string, [binId: string, spaceId: string]>(
  "update workspace.space_members set bin_id = $2 where account_id = $1 and space_id = $3",
);
const takeSpace = change<string, [binId: string, spaceId: string]>(
  "update workspace.spaces set bin_id = $2 where account_id = $1 and id = $3",
);

/**
 * Brings something to the bin with all that is in it, and closes the links to it. It was found, and is locked, or its
 * space is. Returns the deletion's id; null: that is too much for a transaction, which is to be undone.
 */
export async function moveToBin(tx: ClientBase, user: SpaceUser, item: Deleted): Promise<string | null> {
  const { accountId } = user;
  const { kind, id, space_id: spaceId, name } = item;
  const binId = (await insertItem(tx, user, kind, id, spaceId, name))!.id;
  switch (kind) {
    case "document":
      await takeDocuments(tx, accountId, binId, spaceId, [id]);
      return binId;
    case "folder": {
      const { folders, documents } = (await findInside(tx, accountId, spaceId, id))!;
      if (folders.length + documents.length > DELETED_AT_ONCE_MAX) return null;
      await takeFolders(tx, accountId, binId, spaceId, folders);
      await takeDocuments(tx, accountId, binId, spaceId, documents);
      return binId;
    }
    case "page":
      await takePage(tx, accountId, binId, id);
      return (await closeLinksTo(tx, accountId, id)) && binId;
    case "workflow":
      await takeWorkflow(tx, accountId, binId, id);
      return binId;
    case "space":
      await takeMembers(tx, accountId, binId, id);
      await takeSpace(tx, accountId, binId, id);
      return (await closeLinksIn(tx, accountId, id)) && binId;
    default:
      throw new Error(`Something of unknown kind: ${JSON.stringify(kind satisfies never)}`);
  }
}

const lockSpaceOf = lockOf<object, SpaceUser, [kind: BinKind, id: string]>(
  `select from workspace.spaces as s where account_id = $1
   and id = (select space_id from workspace.bin where account_id = $1 and kind = $3 and item_id = $4)
   and exists (select from workspace.space_members where account_id = $1 and user_id = $2 and space_id = s.id)
   for no key update`,
);

const lockItem = lockOf<
  Deleted & { readonly binId: string; readonly role: SpaceRole },
  SpaceUser,
  [kind: BinKind, id: string]
>(
  `select b.id as "binId", b.kind, b.item_id as id, b.space_id, b.name, m.role from workspace.bin as b
   join workspace.space_members as m on m.account_id = b.account_id and m.space_id = b.space_id and m.user_id = $2
     and (m.bin_id is null or b.kind = 'space')
   where b.account_id = $1 and b.kind = $3 and b.item_id = $4 and b.gone_at > now() for update of b for share of m`,
);

/**
 * Finds what can be restored, with what the user is in its space, which is locked; neither changes until the
 * transaction ends. Null: it is not in the bin, or its space is, or the user is not a member.
 */
export async function lockBinItem(tx: ClientBase, user: SpaceUser, kind: BinKind, ids: ItemIds) {
  const id = ids[`${kind}_id`];
  await lockSpaceOf(tx, user, kind, id);
  const item = await lockItem(tx, user, kind, id);
  return (ids.space_id ?? item?.space_id) === item?.space_id ? item : null;
}

/** From now on nobody can restore it. It is locked. */
export const deleteForGood = change<string, [binId: string]>(
  "update workspace.bin set gone_at = '-infinity', next_at = now() where account_id = $1 and id = $2",
);

/** What was in a folder that is not there any more is restored to the top; a folder restored with it is there. */
const toTop = (table: "documents" | "folders", place: "folder_id" | "parent_id") =>
  change<string, [binId: string]>(
    `update workspace.${table} as t set ${place} = null
     where account_id = $1 and bin_id = $2 and ${place} is not null and not exists (
       select from workspace.folders as f where f.account_id = $1 and f.space_id = t.space_id and f.id = t.${place}
         and (f.bin_id is null or f.bin_id = $2))`,
  );
const documentsToTop = toTop("documents", "folder_id");
const foldersToTop = toTop("folders", "parent_id");

const isNameTaken = (table: "documents" | "folders", place: string, name: string) =>
  change<string, [binId: string, id: string]>(
    `select from workspace.${table} as t
     join workspace.${table} as o on o.account_id = $1 and o.space_id = t.space_id
       and o.${place} is not distinct from t.${place} and o.${name} = t.${name} and o.bin_id is null
     where t.account_id = $1 and t.bin_id = $2 and t.id = $3`,
  );
const isDocumentTaken = isNameTaken("documents", "folder_id", "file_name");
const isFolderTaken = isNameTaken("folders", "parent_id", "name");

/** Objects of documents that were renamed, or whose space was, are moved now. */
const moveMisplaced = change<SpaceUser, [binId: string]>(
  `insert into workspace.moves (account_id, asked_by, space_id, document_id)
   select d.account_id, $2, d.space_id, d.id from workspace.documents as d
   join workspace.spaces as s on s.account_id = d.account_id and s.id = d.space_id
   where d.account_id = $1 and d.bin_id = $3 and not (
     starts_with(d.storage_key, s.storage_prefix || d.id || '-')
     and right(d.storage_key, length(d.file_name) + 1) = '/' || d.file_name)
   on conflict (account_id, space_id, document_id) do nothing`,
);

const bringDocumentsBack = change<string, [binId: string, spaceId: string]>(
  `with back as (
     update workspace.documents set bin_id = null where account_id = $1 and bin_id = $2 returning 1
   )
   update workspace.spaces set document_count = document_count + (select count(*) from back)
   where account_id = $1 and id = $3`,
);

const bringBack = (table: string, id: string) =>
  change<string, [binId: string, id: string]>(
    `update workspace.${table} set bin_id = null where account_id = $1 and bin_id = $2 and ${id} = $3`,
  );
const bringFoldersBack = bringBack("folders", "space_id");
const bringPageBack = bringBack("pages", "id");
const bringWorkflowBack = bringBack("workflows", "id");
const bringSpaceBack = bringBack("spaces", "id");
const bringMembersBack = bringBack("space_members", "space_id");
const deleteItem = change<string, [binId: string]>(
  "delete from workspace.bin where account_id = $1 and id = $2",
);

/** Brings back what the deletion took, which is locked; false: something else has its name, and all is to be undone. */
export async function restoreFromBin(
  tx: ClientBase,
  user: SpaceUser,
  { kind, id, space_id: spaceId, binId }: Deleted & { readonly binId: string },
): Promise<boolean> {
  const { accountId } = user;
  switch (kind) {
    case "document":
    case "folder":
      await documentsToTop(tx, accountId, binId);
      await foldersToTop(tx, accountId, binId);
      if (await (kind === "folder" ? isFolderTaken : isDocumentTaken)(tx, accountId, binId, id)) return false;
      await moveMisplaced(tx, user, binId);
      await bringFoldersBack(tx, accountId, binId, spaceId);
      await bringDocumentsBack(tx, accountId, binId, spaceId);
      break;
    case "page":
      await bringPageBack(tx, accountId, binId, id);
      break;
    case "workflow":
      await bringWorkflowBack(tx, accountId, binId, id);
      break;
    case "space":
      await bringMembersBack(tx, accountId, binId, id);
      await bringSpaceBack(tx, accountId, binId, id);
      break;
    default:
      throw new Error(`Something of unknown kind: ${JSON.stringify(kind satisfies never)}`);
  }
  return await deleteItem(tx, accountId, binId);
}

/** Who takes a step has this long; then somebody else does, too. */
const STEP_LEASE_MS = 300_000;
/** Workflows are kept until their last run has ended. */
const RUNS_LOOKED_AT_EVERY_MS = 600_000;

type GoneItem = Pick<BinItem, "kind" | "id"> & {
  readonly accountId: string;
  readonly binId: string;
  readonly spaceId: string;
};

const claimGone = rowOf<GoneItem, string, []>(
  `with recursive ${accountsBehind("$1::uuid", "workspace.bin")}, due as (
     select item.* from accounts cross join lateral (
       select account_id, id from workspace.bin as b
       where b.account_id = accounts.account_id and b.next_at <= now() and ${notErased("b.account_id")}
       order by b.next_at limit 1 for update skip locked
     ) as item
     limit 1
   )
   update workspace.bin as b
   set gone_at = '-infinity', next_at = now() + ${STEP_LEASE_MS} * interval '1 millisecond'
   from due where b.account_id = due.account_id and b.id = due.id
   returning b.account_id as "accountId", b.id as "binId", b.kind, b.item_id as id, b.space_id as "spaceId"`,
  "claim_gone",
);

const lockGone = lockOf<object, string, [binId: string]>(
  "select from workspace.bin where account_id = $1 and id = $2 for update",
);
const goOnIn = change<string, [binId: string, delayMs: number]>(
  `update workspace.bin set next_at = now() + $3::float8 * interval '1 millisecond' where account_id = $1 and id = $2`,
);

/**
 * Takes a step of deleting for good what can no longer be restored, of the next account behind this one that has any:
 * killed anywhere, its row says that there is more. Returns the account; null: there is nothing.
 */
export async function deleteGone(
  pool: Pool,
  afterAccountId: string,
): Promise<{ readonly accountId: string } | null> {
  const item = await claimGone(pool, afterAccountId);
  if (item === null) return null;
  const { accountId, binId, kind, id, spaceId } = item;
  await inTransaction(pool, async (tx) => {
    // In the order of restoring, and whoever moves documents waits. Pages and workflows are no others' to lock.
    if (kind !== "page" && kind !== "workflow") await lockStoragePrefix(tx, accountId, spaceId);
    // Somebody else has deleted the last of it, or its space.
    if ((await lockGone(tx, accountId, binId)) === null) return;
    const ofId = kind === "document" || kind === "folder" ? binId : id;
    for (const table of GONE_TABLES[kind]) {
      const gone =
        "documents" in table
          ? await deleteGoneDocuments(tx, accountId, ofId, table.documents)
          : await deleteRows(tx, table, accountId, ofId);
      if (gone > 0) return await goOnIn(tx, accountId, binId, 0);
    }
    const isLeft = `select from workspace.${kind}s where account_id = $1 and id = $2`;
    const { rowCount } = await tx.query(isLeft, [accountId, id]);
    if (rowCount === 0) await deleteItem(tx, accountId, binId);
    else await goOnIn(tx, accountId, binId, RUNS_LOOKED_AT_EVERY_MS);
    return;
  });
  return item;
}
