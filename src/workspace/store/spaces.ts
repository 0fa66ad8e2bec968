import type { ClientBase, Pool } from "pg";
import { newId } from "../../base/database/partitions.ts";
import type { CappedPage } from "../../base/model/list-page.ts";
import { storagePrefix } from "../model/names.ts";
import type { SpaceRole } from "../model/roles.ts";
import type { Space } from "../model/spaces.ts";
import { isBelow, readListPage, timeText } from "./lists.ts";

/** A space as one of its members sees it; what the role allows is not in the row. */
export type StoredSpace = Omit<Space, `can_${string}` | "skill_count">;

const SPACE = `s.id, o.idp_user_id, s.name, s.storage_prefix, ${timeText("s.created_at")} as created_at, m.role,
  s.owner_id = m.user_id as is_owner, s.document_count,
  (select count(*)::integer from workspace.space_members as n
   where n.account_id = s.account_id and n.space_id = s.id) as member_count`;

const OF_MEMBER = `workspace.space_members as m
  join workspace.spaces as s on s.account_id = m.account_id and s.id = m.space_id
  join sealpost.users as o on o.account_id = s.account_id and o.id = s.owner_id`;

/** A user of an account. */
export type SpaceUser = { readonly accountId: string; readonly userId: string };

/** Null: there is no such space, or the user is not a member. */
export async function findSpace(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  spaceId: string,
): Promise<StoredSpace | null> {
  const { rows } = await database.query<StoredSpace>({
    name: "find_space",
    text: `select ${SPACE} from ${OF_MEMBER} where m.account_id = $1 and m.user_id = $2 and m.space_id = $3`,
    values: [accountId, userId, spaceId],
  });
  return rows[0] ?? null;
}

/** The spaces that the user is a member of, newest first. @param belowId null: from the newest */
export async function listSpaces(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<StoredSpace>> {
  const list = await readListPage<StoredSpace>(database, {
    name: "list_spaces",
    isSeen: "true",
    total: { upToMax: "workspace.space_members where account_id = $1 and user_id = $2" },
    rows: `
      select ${SPACE} from ${OF_MEMBER}
      where m.account_id = $1 and m.user_id = $2 and ${isBelow("m.space_id", "$3")}`,
    order: ["id", "desc"],
    values: [accountId, userId, belowId],
    limit,
  });
  return list!;
}

const INSERT = `
insert into workspace.spaces (account_id, id, owner_id, name, storage_prefix) values ($1, $2, $3, $4, $5)
on conflict do nothing`;

/** Makes a space that the user owns. */
export async function insertSpace(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  name: string,
): Promise<string> {
  await tx.query("insert into workspace.workspaces (account_id) values ($1) on conflict do nothing", [
    accountId,
  ]);
  for (;;) {
    const id = await newId(tx);
    const { rowCount } = await tx.query(INSERT, [accountId, id, userId, name, storagePrefix(name, id)]);
    // One time in millions of millions another space has an id that ends alike.
    if (rowCount === 0) continue;
    await tx.query(
      "insert into workspace.space_members (account_id, user_id, space_id, role) values ($1, $2, $3, 'ADMIN')",
      [accountId, userId, id],
    );
    return id;
  }
}

/**
 * What the user is in the space, whose row is locked until the transaction ends: changes of one space and its members
 * take turns, and each sees what the one before has left. Null: there is no such space, or the user is not a member.
 */
export async function lockSpace(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  spaceId: string,
): Promise<{ readonly role: SpaceRole; readonly storagePrefix: string } | null> {
  const storagePrefix = await lockStoragePrefix(tx, accountId, spaceId);
  const { rows } = await tx.query<{ role: SpaceRole }>(
    "select role from workspace.space_members where account_id = $1 and user_id = $2 and space_id = $3",
    [accountId, userId, spaceId],
  );
  return storagePrefix === null || rows[0] === undefined ? null : { role: rows[0].role, storagePrefix };
}

/** Where the space has its objects. It is locked: until the transaction ends nobody renames it or its documents. */
export async function lockStoragePrefix(
  tx: ClientBase,
  accountId: string,
  spaceId: string,
): Promise<string | null> {
  const { rows } = await tx.query<{ storage_prefix: string }>(
    "select storage_prefix from workspace.spaces where account_id = $1 and id = $2 for no key update",
    [accountId, spaceId],
  );
  return rows[0]?.storage_prefix ?? null;
}

/** Gives the space its new name and prefix, which new objects are kept under from now on. */
export async function renameSpace(
  tx: ClientBase,
  accountId: string,
  spaceId: string,
  name: string,
): Promise<void> {
  await tx.query(
    "update workspace.spaces set name = $3, storage_prefix = $4 where account_id = $1 and id = $2",
    [accountId, spaceId, name, storagePrefix(name, spaceId)],
  );
}
