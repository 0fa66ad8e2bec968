import type { ClientBase, Pool } from "pg";
import { timeText } from "../../base/database/time-text.ts";
import type { Document, Folder } from "../model/documents.ts";
import type { SpaceRole } from "../model/roles.ts";
import { isAbove, isBelow, type ListQuery, listOf } from "./lists.ts";
import { IS_MEMBER, isMember, joinMember, namedUserJson } from "./spaces.ts";
import { change, type Database, lockOf, rowOf, rowsOf, type SpaceUser } from "./statements.ts";

const FOLDER = `f.id, f.space_id, f.parent_id, f.name, ${namedUserJson("u")} as created_by,
  ${timeText("f.created_at")} as created_at`;

const FOLDERS = `workspace.folders as f
  join sealpost.users as u on u.account_id = f.account_id and u.id = f.created_by`;

/** A place in a space. @param folderId null: its top */
export type FolderPlace = { readonly spaceId: string; readonly folderId: string | null };

/** Whether the user $2 of the account $1 is a member of the space $3, which has the folder $4. Null: its top. */
const IS_PLACE_SEEN = `
${IS_MEMBER} and ($4::uuid is null
  or exists (select from workspace.folders where account_id = $1 and space_id = $3 and id = $4 and bin_id is null))`;

type SeenPlace = [spaceId: string, folderId: string | null];

/** A list of its own for the top, by the index, which a condition that can be of either kind would not go by. */
function listIn<Row extends object>(query: (inFolder: boolean) => ListQuery<Row, string>) {
  const [ofTop, ofFolder] = [listOf<Row, SeenPlace>(query(false)), listOf<Row, SeenPlace>(query(true))];
  return (...asked: Parameters<typeof ofTop>) => (asked[2][1] === null ? ofTop : ofFolder)(...asked);
}

/** The folders in a place, oldest first. Null: there is no such place, or the user is not a member of the space. */
export const listFolders = listIn<Folder>((inFolder) => {
  const parent = inFolder ? "= $4" : "is null and $4::uuid is null";
  const inPlace = `f.account_id = $1 and f.space_id = $3 and f.parent_id ${parent} and f.bin_id is null`;
  return {
    isSeen: IS_PLACE_SEEN,
    total: { exactly: `select count(*)::integer from workspace.folders as f where ${inPlace}` },
    rows: `select ${FOLDER} from ${FOLDERS} where ${inPlace} and ${isAbove("f.id", "$5")}`,
    order: ["id", "asc"],
  };
});

/** Null: the space has no such folder. */
export const findFolder = rowOf<Folder, string, [spaceId: string, folderId: string]>(
  `select ${FOLDER} from ${FOLDERS} where f.account_id = $1 and f.space_id = $2 and f.id = $3 and f.bin_id is null`,
);

/** Whether there is such a folder in the space; the space's top always is. */
export async function hasFolder(database: Database, accountId: string, { spaceId, folderId }: FolderPlace) {
  return folderId === null || (await findFolders(database, accountId, spaceId, [folderId])).length === 1;
}

/** Those of the ids that are folders of the space. */
export const findFolders = rowsOf<{ readonly id: string }, string, [spaceId: string, ids: readonly string[]]>(
  "select id from workspace.folders where account_id = $1 and space_id = $2 and id = any ($3) and bin_id is null",
);

/** Null: there is one of that name already. The place exists. */
export const insertFolder = rowOf<
  Folder,
  SpaceUser,
  [spaceId: string, parentId: string | null, name: string]
>(
  `with f as (
     insert into workspace.folders (account_id, created_by, space_id, parent_id, name) values ($1, $2, $3, $4, $5)
     on conflict do nothing returning *
   )
   select ${FOLDER} from f join sealpost.users as u on u.account_id = f.account_id and u.id = f.created_by`,
);

/** What runs read of documents. */
export type ReadDocument = Pick<
  Document,
  "id" | "file_name" | "content_type" | "file_size" | "storage_key" | "has_content"
>;

export const READ_DOCUMENT = "id, file_name, content_type, file_size::float8, storage_key, has_content";

/** Those with content that lie directly in the place, in the order of ids. @param aboveId null: from the first */
export async function listUploaded(
  pool: Pool,
  accountId: string,
  { spaceId, folderId }: FolderPlace,
  aboveId: string | null,
  countMax: number,
): Promise<readonly ReadDocument[]> {
  // By the index, which a condition that can be of either kind would not.
  const inFolder = folderId === null ? "folder_id is null and $3::uuid is null" : "folder_id = $3";
  const { rows } = await pool.query<ReadDocument>(
    `select ${READ_DOCUMENT} from workspace.documents
     where account_id = $1 and space_id = $2 and ${inFolder} and has_content and bin_id is null
       and ${isAbove("id", "$4")}
     order by id limit $5`,
    [accountId, spaceId, folderId, aboveId, countMax],
  );
  return rows;
}

/** Null: the space has no such document. */
export const readDocument = rowOf<ReadDocument, string, [spaceId: string, documentId: string]>(
  `select ${READ_DOCUMENT} from workspace.documents
   where account_id = $1 and id = $3 and space_id = $2 and bin_id is null`,
  "read_document",
);

const DOCUMENT = `d.id, d.account_id as tenant_id, w.id as workspace_id, d.space_id, d.folder_id,
  ${namedUserJson("u")} as uploaded_by, d.file_name, d.content_type, d.file_size::float8, d.storage_key, d.status,
  ${timeText("d.created_at")} as created_at, d.doc_origin, d.live_content_type,
  false as has_active_collab_session, d.has_content`;

const WITH_NAMES = `join workspace.workspaces as w on w.account_id = d.account_id
  join sealpost.users as u on u.account_id = d.account_id and u.id = d.uploaded_by`;

/** With where objects of its space are put now, and what the one who asks is in it. */
export type FoundDocument = Document & { readonly storagePrefix: string; readonly role: SpaceRole };

/** Null: there is no such document, or the user is not a member of its space. */
export const findDocument = rowOf<FoundDocument, SpaceUser, [documentId: string]>(
  `select ${DOCUMENT}, s.storage_prefix as "storagePrefix", m.role
   from workspace.documents as d ${WITH_NAMES}
   join workspace.spaces as s on s.account_id = d.account_id and s.id = d.space_id
   ${joinMember("d")}
   where d.account_id = $1 and d.id = $3 and d.bin_id is null`,
  "find_document",
);

/**
 * The same, with its space locked until the transaction ends: renames, uploads and moves of one space take turns, and
 * each sees what the one before has left.
 */
export async function lockDocument(tx: ClientBase, user: SpaceUser, documentId: string) {
  await lockSpaceOf(tx, user, documentId);
  return await findDocument(tx, user, documentId);
}

// No document ever goes to another space.
const lockSpaceOf = lockOf<object, SpaceUser, [documentId: string]>(
  `select from workspace.spaces as s where account_id = $1
   and id = (select space_id from workspace.documents where account_id = $1 and id = $3)
   and ${isMember("s.id")} for no key update`,
);

/**
 * The documents of a folder, newest first; of no folder: of the space, wherever they lie. Null: there is no such place,
 * or the user is not a member of the space.
 */
export const listDocuments = listIn<Document>((inFolder) => {
  // A count in no order would not go by the index, either.
  const place = inFolder ? "d.folder_id = $4" : "$4::uuid is null";
  const inPlace = `d.account_id = $1 and d.space_id = $3 and ${place} and d.bin_id is null`;
  return {
    isSeen: IS_PLACE_SEEN,
    total: { upToMax: `workspace.documents as d where ${inPlace} order by d.id` },
    rows: `
      select ${DOCUMENT} from workspace.documents as d ${WITH_NAMES}
      where ${inPlace} and ${isBelow("d.id", "$5")}`,
    order: ["id", "desc"],
  };
});

type NewDocument = Omit<ReadDocument, "has_content"> &
  Pick<Document, "space_id" | "folder_id" | "live_content_type">;

/** A document without content; false: its name is taken. The place exists, and its space is locked. */
export const insertDocument = change<SpaceUser, [document: NewDocument]>(
  `insert into workspace.documents (account_id, uploaded_by, id, space_id, folder_id, file_name, content_type,
     file_size, storage_key, live_content_type)
   select $1, $2, d.*
   from json_to_record($3) as d (id uuid, space_id uuid, folder_id uuid, file_name text, content_type text,
     file_size bigint, storage_key text, live_content_type text)
   on conflict (account_id, space_id, folder_id, file_name) where bin_id is null do nothing`,
);

/**
 * The document has its content, under that key, from that user; false: it had some. Its space is locked, and it was
 * seen to have none.
 */
export const setUploaded = change<SpaceUser, [documentId: string, storageKey: string]>(
  `update workspace.documents
   set status = 'UPLOADED', has_content = true, storage_key = $4, uploaded_by = $2
   where account_id = $1 and id = $3 and status = 'PENDING_UPLOAD'`,
);

/** Gives the document another name, and one without content that key; false: its name is taken. Its space is locked. */
export const renameDocument = change<
  string,
  [documentId: string, fileName: string, keyWithoutContent: string]
>(
  `update workspace.documents as d
   set file_name = $3, storage_key = case when has_content then storage_key else $4 end
   where account_id = $1 and id = $2 and not exists (
     select from workspace.documents as o where o.account_id = d.account_id and o.space_id = d.space_id
       and o.folder_id is not distinct from d.folder_id and o.file_name = $3 and o.id <> d.id and o.bin_id is null)`,
);
