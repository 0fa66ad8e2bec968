import { timeText } from "../../base/database/time-text.ts";
import type { Page, PageVersion, PageVersionWithText, PageWithText } from "../model/pages.ts";
import type { SpaceRole } from "../model/roles.ts";
import { isBelow, listOf } from "./lists.ts";
import { IS_MEMBER, joinMember, lockerOf, personJson } from "./spaces.ts";
import { change, rowOf, type SpaceUser } from "./statements.ts";

/** Whether the user $2 of the account $1 is a member of the space of the page $3. */
export const IS_PAGE_SEEN = `
exists (select from workspace.pages as p
  ${joinMember("p")}
  where p.account_id = $1 and p.id = $3 and p.bin_id is null)`;

const VERSION = `v.id, v.page_id, v.number, v.title, v.revision, ${personJson("u")} as published_by,
  ${timeText("v.published_at")} as published_at`;

const BY_USER = "join sealpost.users as u on u.account_id = v.account_id and u.id = v.published_by";

/** Publishes what is being written, of which this is the HTML. The page is locked. */
export const insertVersion = rowOf<PageVersion, SpaceUser, [pageId: string, html: string, renderer: number]>(
  `with v as (
     insert into workspace.page_versions
       (account_id, page_id, number, title, markdown, html, renderer, revision, published_by)
     select account_id, id, numbers.next, title, markdown, $4, $5, revision, $2
     from workspace.pages, lateral (
       select coalesce(max(number), 0) + 1 as next from workspace.page_versions
       where account_id = $1 and page_id = $3
     ) as numbers
     where account_id = $1 and id = $3
     returning *
   )
   select ${VERSION} from v ${BY_USER}`,
);

/** The versions of a page, newest first. Null: there is no such page, or the user is not a member of its space. */
export const listVersions = listOf<PageVersion, [pageId: string], number>({
  isSeen: IS_PAGE_SEEN,
  total: {
    exactly:
      "select coalesce(max(number), 0) from workspace.page_versions where account_id = $1 and page_id = $3",
  },
  rows: `
    select ${VERSION} from workspace.page_versions as v ${BY_USER}
    where v.account_id = $1 and v.page_id = $3 and ($4::integer is null or v.number < $4)`,
  order: ["number", "desc"],
});

/** Null: the page has no such version, or the user is not a member of its space. */
export const findVersion = rowOf<PageVersionWithText, SpaceUser, [pageId: string, versionId: string]>(
  `select ${VERSION}, v.markdown
   from workspace.page_versions as v ${BY_USER}
   where v.account_id = $1 and v.page_id = $3 and v.id = $4 and ${IS_PAGE_SEEN}`,
  "find_page_version",
);

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
export const findPage = rowOf<WrittenPage, SpaceUser, [pageId: string]>(
  `select ${PAGE}, p.markdown, m.role
   from workspace.pages as p ${WITH_VERSION}
   ${joinMember("p")}
   where p.account_id = $1 and p.id = $3 and p.bin_id is null`,
  "find_page",
);

/** Whoever saves or publishes takes turns, and sees what was before. */
export const lockPage = lockerOf("page_id", findPage);

/** The pages of a space, newest first. Null: there is no such space, or the user is not a member. */
export const listPages = listOf<Page, [spaceId: string]>({
  isSeen: IS_MEMBER,
  total: { upToMax: "workspace.pages where account_id = $1 and space_id = $3 and bin_id is null" },
  rows: `
    select ${PAGE} from workspace.pages as p ${WITH_VERSION}
    where p.account_id = $1 and p.space_id = $3 and p.bin_id is null and ${isBelow("p.id", "$4")}`,
  order: ["id", "desc"],
});

/** The user may write in the space. */
export const insertPage = rowOf<
  { id: string },
  SpaceUser,
  [spaceId: string, title: string, markdown: string]
>(
  `insert into workspace.pages (account_id, created_by, space_id, title, markdown)
   values ($1, $2, $3, $4, $5) returning id`,
);

/** The page is locked, and has the revision that the draft is based on. */
export const saveDraft = change<string, [pageId: string, title: string, markdown: string]>(
  `update workspace.pages set title = $3, markdown = $4, revision = revision + 1, updated_at = now()
   where account_id = $1 and id = $2`,
);
