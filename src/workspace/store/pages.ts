import type { ClientBase, Pool } from "pg";
import type { CappedPage, ListPage } from "../../base/model/list-page.ts";
import type { Page, PageVersion, PageVersionWithText, PageWithText } from "../model/pages.ts";
import type { SpaceRole } from "../model/roles.ts";
import { isBelow, readListPage, timeText } from "./lists.ts";
import type { SpaceUser } from "./spaces.ts";
import { holdMember, IS_MEMBER, isMember, joinMember, personJson } from "./spaces.ts";

const VERSION = `v.id, v.page_id, v.number, v.title, v.revision, ${personJson("u")} as published_by,
  ${timeText("v.published_at")} as published_at`;

const BY_USER = "join sealpost.users as u on u.account_id = v.account_id and u.id = v.published_by";

/** What a renderer has made of a version's text. */
export type RenderedText = { readonly html: string; readonly renderer: number };

/** Publishes what is being written, of which this is the HTML. The page is locked. */
export async function insertVersion(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  pageId: string,
  { html, renderer }: RenderedText,
): Promise<PageVersion> {
  const { rows } = await tx.query<PageVersion>(
    `with v as (
       insert into workspace.page_versions
         (account_id, page_id, number, title, markdown, html, renderer, revision, published_by)
       select account_id, id, numbers.next, title, markdown, $4, $5, revision, $3
       from workspace.pages, lateral (
         select coalesce(max(number), 0) + 1 as next from workspace.page_versions
         where account_id = $1 and page_id = $2
       ) as numbers
       where account_id = $1 and id = $2
       returning *
     )
     select ${VERSION} from v ${BY_USER}`,
    [accountId, pageId, userId, html, renderer],
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
): Promise<ListPage<PageVersion, number> | null> {
  return await readListPage<PageVersion, number>(database, {
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

/** Null: the page has no such version, or whoever asks is not a member of its space. */
export async function findVersion(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  pageId: string,
  versionId: string,
): Promise<PageVersionWithText | null> {
  const { rows } = await database.query<PageVersionWithText>({
    name: "find_page_version",
    text: `
      select ${VERSION}, v.markdown
      from workspace.page_versions as v ${BY_USER}
      where v.account_id = $1 and v.page_id = $3 and v.id = $4 and ${IS_PAGE_SEEN}`,
    values: [accountId, userId, pageId, versionId],
  });
  return rows[0] ?? null;
}

const PAGE = `p.id, p.space_id, p.title, p.revision, v.current as current_version,
  coalesce(v.differs, true) as draft_differs, ${personJson("u")} as created_by,
  ${timeText("p.created_at")} as created_at, ${timeText("p.updated_at")} as updated_at`;

const WITH_VERSION = `join sealpost.users as u on u.account_id = p.account_id and u.id = p.created_by
  left join lateral (
    select json_build_object('id', v.id, 'number', v.number, 'published_at', ${timeText("v.published_at")}) as current,
      v.revision <> p.revision and (v.title, v.markdown) is distinct from (p.title, p.markdown) as differs
    from workspace.page_versions as v where v.account_id = p.account_id and v.page_id = p.id
    order by v.number desc limit 1
  ) as v on true`;

/** With its text, and what the one who asks is in its space. */
export type WrittenPage = PageWithText & { readonly role: SpaceRole };

/** Null: there is no such page, or the user is not a member of its space. */
export async function findPage(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  pageId: string,
): Promise<WrittenPage | null> {
  const { rows } = await database.query<WrittenPage>({
    name: "find_page",
    text: `
      select ${PAGE}, p.markdown, m.role
      from workspace.pages as p ${WITH_VERSION}
      ${joinMember("p")}
      where p.account_id = $1 and p.id = $3`,
    values: [accountId, userId, pageId],
  });
  return rows[0] ?? null;
}

/** The same, locked until the transaction ends: whoever saves or publishes takes turns, and sees what was before. */
export async function lockPage(tx: ClientBase, user: SpaceUser, pageId: string): Promise<WrittenPage | null> {
  await holdMember(tx, user, "page_id", pageId);
  await tx.query(
    `select from workspace.pages as locked
     where account_id = $1 and id = $3 and ${isMember("locked.space_id")} for no key update`,
    [user.accountId, user.userId, pageId],
  );
  return await findPage(tx, user, pageId);
}

/**
 * The pages of a space, newest first. Null: there is no such space, or whoever asks is not a member.
 * @param belowId null: from the newest
 */
export async function listPages(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  spaceId: string,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<Page> | null> {
  return await readListPage<Page>(database, {
    isSeen: IS_MEMBER,
    total: { upToMax: "workspace.pages where account_id = $1 and space_id = $3" },
    rows: `
      select ${PAGE} from workspace.pages as p ${WITH_VERSION}
      where p.account_id = $1 and p.space_id = $3 and ${isBelow("p.id", "$4")}`,
    order: ["id", "desc"],
    values: [accountId, userId, spaceId, belowId],
    limit,
  });
}

/** What is being written. */
export type Draft = { readonly title: string; readonly markdown: string };

/** Returns its id. The user may write in the space. */
export async function insertPage(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  spaceId: string,
  { title, markdown }: Draft,
): Promise<string> {
  const { rows } = await tx.query<{ id: string }>(
    `insert into workspace.pages (account_id, space_id, title, markdown, created_by)
     values ($1, $2, $3, $4, $5) returning id`,
    [accountId, spaceId, title, markdown, userId],
  );
  return rows[0]!.id;
}

/** The page is locked, and has the revision that the draft is based on. */
export async function saveDraft(
  tx: ClientBase,
  accountId: string,
  pageId: string,
  { title, markdown }: Draft,
): Promise<void> {
  await tx.query(
    `update workspace.pages set title = $3, markdown = $4, revision = revision + 1, updated_at = now()
     where account_id = $1 and id = $2`,
    [accountId, pageId, title, markdown],
  );
}

/** Whether the user $2 of the account $1 is a member of the space of the page $3. */
export const IS_PAGE_SEEN = `
exists (select from workspace.pages as p
  ${joinMember("p")}
  where p.account_id = $1 and p.id = $3)`;
