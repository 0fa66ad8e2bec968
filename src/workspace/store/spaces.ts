import type { ClientBase } from "pg";
import { newId } from "../../base/database/partitions.ts";
import { timeText } from "../../base/database/time-text.ts";
import { hasRoomFor } from "../../base/model/reader.ts";
import { storagePrefix } from "../model/documents.ts";
import type { SpaceRole } from "../model/roles.ts";
import type { Member, Space } from "../model/spaces.ts";
import { isAbove, isBelow, listOf } from "./lists.ts";
import { change, type Database, lockOf, rowOf, type SpaceUser } from "./statements.ts";

/** A space as one of its members sees it; what the role allows is not in the row. */
export type StoredSpace = Omit<Space, `can_${string}` | "skill_count">;

const SPACE = `s.id, o.idp_user_id, s.name, s.storage_prefix, ${timeText("s.created_at")} as created_at, m.role,
  s.owner_id = m.user_id as is_owner, s.document_count,
  (select count(*)::integer from workspace.space_members as n
   where n.account_id = s.account_id and n.space_id = s.id) as member_count`;

const OF_MEMBER = `workspace.space_members as m
  join workspace.spaces as s on s.account_id = m.account_id and s.id = m.space_id
  join sealpost.users as o on o.account_id = s.account_id and o.id = s.owner_id`;

/** Whether what that deletion of the account $1 took can be restored. @param binId SQL */
export const isRestorable = (binId: string) =>
  `exists (select from workspace.bin as b where b.account_id = $1 and b.id = ${binId} and b.gone_at > now())`;

/** A member's row of a space that is not in the bin; with $3, of one that is, and can be restored. */
const IS_LISTED = `case when $3::boolean then ${isRestorable("m.bin_id")} else m.bin_id is null end`;

/** Null: there is no such space, or the user is not a member. */
export const findSpace = rowOf<StoredSpace, SpaceUser, [spaceId: string]>(
  `select ${SPACE} from ${OF_MEMBER}
   where m.account_id = $1 and m.user_id = $2 and m.space_id = $3 and m.bin_id is null`,
  "find_space",
);

/** The spaces that the user is a member of, newest first: those that are not deleted, or those that can be restored. */
export const listSpaces = listOf<StoredSpace, [isDeleted: boolean]>({
  name: "list_spaces",
  isSeen: "true",
  total: {
    upToMax: `workspace.space_members as m where m.account_id = $1 and m.user_id = $2 and ${IS_LISTED}`,
  },
  rows: `
    select ${SPACE} from ${OF_MEMBER}
    where m.account_id = $1 and m.user_id = $2 and ${IS_LISTED} and ${isBelow("m.space_id", "$4")}`,
  order: ["id", "desc"],
});

const INSERT = `
insert into workspace.spaces (account_id, id, owner_id, name, storage_prefix) values ($1, $2, $3, $4, $5)
on conflict do nothing`;

/** Spaces that a user owns; all their ids are looked at whenever the user reads something published. */
export const SPACES_OWNED_MAX = 1_000;
/** Spaces of others that a user is a member of, asked for or not: of one owner half of what other owners leave. */
export const SPACES_JOINED_MAX = 1_000;

/** Whether the user may own one space more, or be a member of this one. It stays so until the transaction ends. */
async function hasRoomForSpace(tx: ClientBase, user: SpaceUser, joining: string | null): Promise<boolean> {
  await holdMemberships(tx, user);
  const { rows } = await tx.query<{ owned: number; joined: number; ofOwner: number }>(
    `select count(*) filter (where s.owner_id = $2)::integer as owned,
       count(*) filter (where s.owner_id <> $2)::integer as joined,
       count(*) filter (where s.owner_id <> $2 and s.owner_id = (
         select owner_id from workspace.spaces where account_id = $1 and id = $3))::integer as "ofOwner"
     from workspace.space_members as m
     join workspace.spaces as s on s.account_id = m.account_id and s.id = m.space_id
     where m.account_id = $1 and m.user_id = $2`,
    [user.accountId, user.userId, joining],
  );
  const { owned, joined, ofOwner } = rows[0]!;
  if (joining === null) return owned < SPACES_OWNED_MAX;
  // Whoever adds users to all of their spaces leaves room for others'.
  return hasRoomFor(1, { inAll: joined, ofUser: ofOwner }, SPACES_JOINED_MAX);
}

/** Makes a space that the user owns. Null: the user owns too many. */
export async function insertSpace(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  name: string,
): Promise<string | null> {
  if (!(await hasRoomForSpace(tx, { accountId, userId }, null))) return null;
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
export async function lockSpace(tx: ClientBase, user: SpaceUser, spaceId: string) {
  const space = await lockOfMember(tx, user, spaceId);
  const member = await findRole(tx, user, spaceId);
  return space && member && { ...space, ...member };
}

const memberIn = (space: string) =>
  `select from workspace.space_members
   where account_id = $1 and user_id = $2 and space_id = ${space} and bin_id is null`;

/** Whether the user $2 of the account $1 is a member of the space, which is not in the bin. @param space SQL */
export const isMember = (space: string) => `exists (${memberIn(space)})`;

export const IS_MEMBER = isMember("$3");

/** Nobody else locks it, not even for as long as it takes to say that it is not theirs. */
const lockOfMember = lockOf<{ readonly storagePrefix: string }, SpaceUser, [spaceId: string]>(
  `select storage_prefix as "storagePrefix" from workspace.spaces
   where account_id = $1 and id = $3 and ${IS_MEMBER} for no key update`,
);

const findRole = rowOf<{ readonly role: SpaceRole }, SpaceUser, [spaceId: string]>(
  `select role from workspace.space_members
   where account_id = $1 and user_id = $2 and space_id = $3 and bin_id is null`,
);

/** Where the space has its objects. It is locked: until the transaction ends nobody renames it or its documents. */
export const lockStoragePrefix = lockOf<{ readonly storagePrefix: string }, string, [spaceId: string]>(
  `select storage_prefix as "storagePrefix" from workspace.spaces where account_id = $1 and id = $2 for no key update`,
);

/** Gives the space its new name and prefix, which new objects are kept under from now on. */
export const renameSpace = change<string, [spaceId: string, name: string, storagePrefix: string]>(
  "update workspace.spaces set name = $3, storage_prefix = $4 where account_id = $1 and id = $2",
);

/** A user out of a row of sealpost.users, with these of its columns. */
function rowJson(alias: string, columns: readonly string[]): string {
  return `json_build_object(${columns.map((column) => `'${column}', ${alias}.${column}`).join(", ")})`;
}

/** A `User`, a `Person` and a `NamedUser` out of a row of sealpost.users. */
export const userJson = (alias: string) => rowJson(alias, ["id", "email", "name", "image_url"]);
export const personJson = (alias: string) => rowJson(alias, ["id", "name", "email"]);
export const namedUserJson = (alias: string) => rowJson(alias, ["id", "name"]);

/** With the id that lists go by. */
export type StoredMember = Member & { readonly userId: string };

const MEMBER = `m.user_id as "userId", ${userJson("u")} as "user", m.role, s.owner_id = m.user_id as is_owner,
  ${timeText("m.created_at")} as created_at`;

const MEMBERS = `workspace.space_members as m
  join workspace.spaces as s on s.account_id = m.account_id and s.id = m.space_id
  join sealpost.users as u on u.account_id = m.account_id and u.id = m.user_id`;

/** The spaces that the user is a member of, as a `uuid[]`. */
export const findSpaceIds = rowOf<{ readonly ids: string }, SpaceUser, []>(
  `select array(select space_id from workspace.space_members
   where account_id = $1 and user_id = $2 and bin_id is null)::text as ids`,
  "find_space_ids",
);

/** Where the space's id is found by the name of a path parameter, $3. */
const SPACE_OF = {
  space_id: "$3",
  document_id: "(select space_id from workspace.documents where account_id = $1 and id = $3)",
  page_id: "(select space_id from workspace.pages where account_id = $1 and id = $3)",
  link_id: `(select p.space_id from workspace.page_links as l
    join workspace.pages as p on p.account_id = $1 and p.id = l.page_id where l.account_id = $1 and l.id = $3)`,
  workflow_id: "(select space_id from workspace.workflows where account_id = $1 and id = $3)",
  run_id: "(select space_id from workspace.runs where account_id = $1 and id = $3)",
} as const;

type NameInSpace = keyof typeof SPACE_OF;
export const NAMES_IN_SPACE = Object.keys(SPACE_OF) as readonly NameInSpace[];

const memberOf = (name: NameInSpace) => memberIn(`${SPACE_OF[name]}::uuid`);

/** Whether the user is a member of the space that this is, or is in. */
export async function isMemberOf(database: Database, user: SpaceUser, name: NameInSpace, id: string) {
  return (await rowOf<object, SpaceUser, [id: string]>(memberOf(name))(database, user, id)) !== null;
}

/**
 * What the user is in the space that this is in stays until the transaction ends: whoever removes the user waits, and
 * then sees what was written. Called before the role is looked at, and before other locks.
 */
export async function holdMember(tx: ClientBase, user: SpaceUser, name: NameInSpace, id: string) {
  await lockOf<object, SpaceUser, [id: string]>(`${memberOf(name)} for share`)(tx, user, id);
}

const TABLES = { page_id: "pages", link_id: "page_links", workflow_id: "workflows" } as const;

/** Finds the same, locked until the transaction ends, after a hold on what the user is in its space. */
export function lockerOf<Found>(
  name: keyof typeof TABLES,
  find: (database: Database, user: SpaceUser, id: string) => Promise<Found | null>,
) {
  const lock = lockOf<object, SpaceUser, [id: string]>(
    `select from workspace.${TABLES[name]}
     where account_id = $1 and id = $3 and ${isMember(SPACE_OF[name])} for no key update`,
  );
  return async (tx: ClientBase, user: SpaceUser, id: string): Promise<Found | null> => {
    await holdMember(tx, user, name, id);
    await lock(tx, user, id);
    return await find(tx, user, id);
  };
}

/**
 * Which spaces the user is a member of stays until the transaction ends: whoever removes the user, or acts for them,
 * waits, and sees what the one before has left. Not "for share", which lets the next pass whoever waits to remove.
 */
export const holdMemberships = lockOf<object, SpaceUser, []>(
  "select from sealpost.users where account_id = $1 and id = $2 for no key update",
);

/** Joins, as m, what the user $2 is in the space of this row; nothing, if no member, or if the space is in the bin. */
export function joinMember(row: string): string {
  return `join workspace.space_members as m on m.account_id = ${row}.account_id and m.space_id = ${row}.space_id
    and m.user_id = $2 and m.bin_id is null`;
}

/** Null: no member. */
export const findMember = rowOf<StoredMember, SpaceUser, [spaceId: string]>(
  `select ${MEMBER} from ${MEMBERS} where m.account_id = $1 and m.user_id = $2 and m.space_id = $3`,
);

/** The members of a space by their ids, the oldest users first. Null: the user is not one. */
export const listMembers = listOf<StoredMember, [spaceId: string]>({
  name: "list_space_members",
  isSeen: IS_MEMBER,
  total: {
    exactly: "select count(*)::integer from workspace.space_members where account_id = $1 and space_id = $3",
  },
  rows: `
    select ${MEMBER} from ${MEMBERS}
    where m.account_id = $1 and m.space_id = $3 and ${isAbove("m.user_id", "$4")}`,
  order: ["userId", "asc"],
});

/**
 * Makes the user a member, or changes its role. The space is locked, and the user not its owner; see lockSpace.
 */
export async function setMember(
  tx: ClientBase,
  user: SpaceUser,
  spaceId: string,
  role: SpaceRole,
): Promise<"set" | "unknown_user" | "too_many_spaces"> {
  const isNew = (await findRole(tx, user, spaceId)) === null;
  if (isNew && !(await hasRoomForSpace(tx, user, spaceId))) return "too_many_spaces";
  return (await upsertMember(tx, user, spaceId, role)) ? "set" : "unknown_user";
}

const upsertMember = change<SpaceUser, [spaceId: string, role: SpaceRole]>(
  // Selecting from users, so that an unknown one is no row and not an error.
  `insert into workspace.space_members (account_id, user_id, space_id, role)
   select account_id, id, $3, $4 from sealpost.users where account_id = $1 and id = $2
   on conflict (account_id, user_id, space_id) do update set role = excluded.role`,
);

/** The same, of removing one that is a member: what is begun for the user waits from now on, see holdMemberships. */
export async function removeMember(tx: ClientBase, user: SpaceUser, spaceId: string): Promise<void> {
  await holdMemberships(tx, user);
  await deleteMember(tx, user, spaceId);
}

const deleteMember = change<SpaceUser, [spaceId: string]>(
  "delete from workspace.space_members where account_id = $1 and user_id = $2 and space_id = $3",
);
