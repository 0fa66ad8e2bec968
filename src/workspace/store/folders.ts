import type { ClientBase, Pool } from "pg";
import type { ListPage } from "../../base/model/list-page.ts";
import type { Folder } from "../model/documents.ts";
import { isAbove, readListPage, timeText } from "./lists.ts";
import { IS_MEMBER, namedUserJson } from "./members.ts";
import type { SpaceUser } from "./spaces.ts";

const FOLDER = `f.id, f.space_id, f.parent_id, f.name, ${namedUserJson("u")} as created_by,
  ${timeText("f.created_at")} as created_at`;

const FOLDERS = `workspace.folders as f
  join sealpost.users as u on u.account_id = f.account_id and u.id = f.created_by`;

/** By the index, which a condition that can be of either kind would not. */
function inPlace({ folderId }: FolderPlace): string {
  const parent = folderId === null ? "is null and $4::uuid is null" : "= $4";
  return `f.account_id = $1 and f.space_id = $3 and f.parent_id ${parent}`;
}

/** A place in a space. @param folderId null: its top */
export type FolderPlace = { readonly spaceId: string; readonly folderId: string | null };

/** Whether the user $2 of the account $1 is a member of the space $3, which has the folder $4. Null: its top. */
export const IS_PLACE_SEEN = `
${IS_MEMBER} and ($4::uuid is null
  or exists (select from workspace.folders where account_id = $1 and space_id = $3 and id = $4))`;

/**
 * The folders in a place, oldest first. Null: there is no such place, or whoever asks is not a member of the space.
 * @param aboveId null: from the first
 */
export async function listFolders(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  place: FolderPlace,
  aboveId: string | null,
  limit: number,
): Promise<ListPage<Folder> | null> {
  return await readListPage<Folder>(database, {
    isSeen: IS_PLACE_SEEN,
    total: { exactly: `select count(*)::integer from workspace.folders as f where ${inPlace(place)}` },
    rows: `select ${FOLDER} from ${FOLDERS} where ${inPlace(place)} and ${isAbove("f.id", "$5")}`,
    order: ["id", "asc"],
    values: [accountId, userId, place.spaceId, place.folderId, aboveId],
    limit,
  });
}

/** Whether there is such a folder in the space; the space's top always is. */
export async function hasFolder(
  database: Pool | ClientBase,
  accountId: string,
  { spaceId, folderId }: FolderPlace,
): Promise<boolean> {
  if (folderId === null) return true;
  const { rowCount } = await database.query(
    "select from workspace.folders where account_id = $1 and space_id = $2 and id = $3",
    [accountId, spaceId, folderId],
  );
  return rowCount === 1;
}

/** Those of the ids that are folders of the space. */
export async function findFolders(
  database: Pool | ClientBase,
  accountId: string,
  spaceId: string,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await database.query<{ id: string }>(
    "select id from workspace.folders where account_id = $1 and space_id = $2 and id = any ($3)",
    [accountId, spaceId, ids],
  );
  return new Set(rows.map(({ id }) => id));
}

/** Null: there is one of that name already. The place exists. */
export async function insertFolder(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  { spaceId, folderId }: FolderPlace,
  name: string,
): Promise<Folder | null> {
  const { rows } = await tx.query<Folder>(
    `with f as (
       insert into workspace.folders (account_id, space_id, parent_id, name, created_by) values ($1, $2, $3, $4, $5)
       on conflict do nothing returning *
     )
     select ${FOLDER} from f join sealpost.users as u on u.account_id = f.account_id and u.id = f.created_by`,
    [accountId, spaceId, folderId, name, userId],
  );
  return rows[0] ?? null;
}
