import type { ClientBase, Pool } from "pg";
import type { ListPage } from "../../model/list-page.ts";
import { readListPage } from "./lists.ts";
import { IS_PAGE_SEEN } from "./pages.ts";
import type { SpaceUser } from "./spaces.ts";
import { type StoredUser, userOfRow } from "./users.ts";

export type StoredVersion = {
  readonly id: string;
  readonly pageId: string;
  /** From 1, without a gap. */
  readonly number: number;
  readonly title: string;
  readonly revision: number;
  readonly publishedBy: StoredUser;
  readonly publishedAt: Date;
};

const VERSION = `v.id, v.page_id as "pageId", v.number, v.title, v.revision,
  ${userOfRow("u")} as "publishedBy", v.published_at as "publishedAt"`;

const BY_USER = "join sealpost.users as u on u.account_id = v.account_id and u.id = v.published_by";

/** Publishes what is being written. The page is locked. */
export async function insertVersion(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  pageId: string,
): Promise<StoredVersion> {
  const { rows } = await tx.query<StoredVersion>(
    `with v as (
       insert into workspace.page_versions (account_id, page_id, number, title, markdown, revision, published_by)
       select account_id, id, numbers.next, title, markdown, revision, $3
       from workspace.pages, lateral (
         select coalesce(max(number), 0) + 1 as next from workspace.page_versions
         where account_id = $1 and page_id = $2
       ) as numbers
       where account_id = $1 and id = $2
       returning *
     )
     select ${VERSION} from v ${BY_USER}`,
    [accountId, pageId, userId],
  );
  return rows[0]!;
}

/**
 * The versions of a page, newest first. Null: there is no such page, or whoever asks is not a member of its space.
 * @param below null: from the newest
 */
export async function listVersions(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  pageId: string,
  below: number | null,
  limit: number,
): Promise<ListPage<StoredVersion, number> | null> {
  return await readListPage<StoredVersion, number>(database, {
    isSeen: IS_PAGE_SEEN,
    total: {
      exactly:
        "select coalesce(max(number), 0) from workspace.page_versions where account_id = $1 and page_id = $3",
    },
    rows: `
      select ${VERSION} from workspace.page_versions as v ${BY_USER}
      where v.account_id = $1 and v.page_id = $3 and ($4::integer is null or v.number < $4)`,
    order: ["number", "desc"],
    values: [accountId, userId, pageId, below],
    limit,
  });
}

export type VersionWithText = StoredVersion & { readonly markdown: string };

/** Null: the page has no such version, or whoever asks is not a member of its space. */
export async function findVersion(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  pageId: string,
  versionId: string,
): Promise<VersionWithText | null> {
  const { rows } = await database.query<VersionWithText>({
    name: "find_page_version",
    text: `
      select ${VERSION}, v.markdown
      from workspace.page_versions as v ${BY_USER}
      where v.account_id = $1 and v.page_id = $3 and v.id = $4 and ${IS_PAGE_SEEN}`,
    values: [accountId, userId, pageId, versionId],
  });
  return rows[0] ?? null;
}

/** Whether it is a version of that page. */
export async function hasVersion(
  tx: ClientBase,
  accountId: string,
  pageId: string,
  versionId: string,
): Promise<boolean> {
  const { rowCount } = await tx.query(
    "select from workspace.page_versions where account_id = $1 and page_id = $2 and id = $3",
    [accountId, pageId, versionId],
  );
  return rowCount === 1;
}
