import type { ClientBase, Pool } from "pg";
import { notErased } from "../../base/database/account-rows.ts";
import { timeText } from "../../base/database/time-text.ts";
import { LOOKED_AT_MAX } from "../../base/model/list-page.ts";
import type { LINK_CONSTANTS, LinkLimits, PageLink } from "../model/pages.ts";
import type { SpaceRole } from "../model/roles.ts";
import { isBelow, listOf } from "./lists.ts";
import { IS_PAGE_SEEN } from "./pages.ts";
import { joinMember, lockerOf, personJson } from "./spaces.ts";
import { change, rowOf, rowsOf, type SpaceUser } from "./statements.ts";

/** A link as its visitors meet it. */
export type OpenedLink = LinkLimits & {
  readonly accountId: string;
  readonly id: string;
  /** Null: none is asked for. */
  readonly passwordHash: string | null;
  readonly authVersion: number;
  readonly versionId: string;
};

/** By the digests of their tokens, in hex; those that there are. */
export async function openLinks(
  pool: Pool | ClientBase,
  tokenDigests: readonly string[],
): Promise<ReadonlyMap<string, OpenedLink>> {
  const { rows } = await pool.query<OpenedLink & { readonly digest: string }>({
    name: "open_page_links",
    // With the limit each is looked up, however many there are.
    text: `
      select link.*, asked.digest
      from unnest($1::text[]) as asked (digest) cross join lateral (
        select l.account_id as "accountId", l.id, l.status, coalesce(l.expires_at <= now(), false) as "isExpired",
          l.max_visits, l.visit_count::float8, l.password_hash as "passwordHash", l.auth_version as "authVersion",
          v.id as "versionId"
        from workspace.page_links as l ${SHOWN_VERSION}
        where l.token_digest = decode(asked.digest, 'hex') and ${notErased("l.account_id")} limit 1
      ) as link`,
    values: [tokenDigests],
  });
  return new Map(rows.map(({ digest, ...link }) => [digest, link]));
}

/**
 * Counts so many visits, as far as the link is still open, allows them, and asks for the password that was asked for.
 * Returns how many were counted; null: none.
 */
export const countVisits = rowOf<
  { readonly counted: number },
  string,
  [linkId: string, authVersion: number, visits: number]
>(
  `update workspace.page_links as l
   set visit_count = least(open.visit_count + $4, coalesce(open.max_visits, open.visit_count + $4)),
     last_visited_at = now()
   from (
     select visit_count, max_visits from workspace.page_links
     where account_id = $1 and id = $2 and auth_version = $3 and status = 'ACTIVE'
       and (expires_at is null or expires_at > now()) and (max_visits is null or visit_count < max_visits)
     for update
   ) as open
   where l.account_id = $1 and l.id = $2
   returning (l.visit_count - open.visit_count)::integer as counted`,
  "count_page_visits",
);

/** What a version shows. One of the last two is null. */
export type VersionText = {
  readonly title: string;
  /** Null: an older renderer has rendered it. */
  readonly html: string | null;
  readonly markdown: string | null;
};

/** `renderer`: the oldest whose HTML may be shown. */
export const readVersion = rowOf<VersionText, string, [versionId: string, renderer: number]>(
  `select title, case when renderer >= $3 then html end as html,
     case when renderer < $3 then markdown end as markdown
   from workspace.page_versions where account_id = $1 and id = $2`,
  "read_page_version",
);

/** Replaces what an older renderer has made of it. @throws what `storageRefusalOf` knows */
export const storeHtml = change<string, [versionId: string, html: string, renderer: number], Pool>(
  `update workspace.page_versions set html = $3, renderer = $4
   where account_id = $1 and id = $2 and renderer < $4`,
);

/** A link without what follows from the rest. */
export type StoredLink = Omit<PageLink, "state" | "access_mode" | keyof typeof LINK_CONSTANTS> &
  Pick<LinkLimits, "isExpired">;

/** Pages with links have versions. Each is found by its key or as the newest: a page may have thousands. */
const SHOWN_VERSION = `join workspace.page_versions as v
  on v.account_id = l.account_id and v.id = coalesce(l.pinned_version_id, (
    select newest.id from workspace.page_versions as newest
    where newest.account_id = l.account_id and newest.page_id = l.page_id
    order by newest.number desc limit 1
  ))`;

const LINK = `l.id, l.page_id, v.id as page_version_id, v.number as page_version_number,
  l.pinned_version_id is not null as pinned, l.label, l.status, l.auth_version,
  ${timeText("l.expires_at")} as expires_at, coalesce(l.expires_at <= now(), false) as "isExpired", l.max_visits,
  l.visit_count::float8, l.password_hash is not null as has_password,
  ${timeText("l.last_visited_at")} as last_visited_at, ${personJson("u")} as created_by,
  ${timeText("l.created_at")} as created_at, ${timeText("l.updated_at")} as updated_at`;

const LINKS = `workspace.page_links as l ${SHOWN_VERSION}
  join sealpost.users as u on u.account_id = l.account_id and u.id = l.created_by`;

/** With what the one who asks is in the space of its page. */
export type FoundLink = StoredLink & { readonly role: SpaceRole };

/** Null: there is no such link, or the user is not a member of its page's space. */
export const findLink = rowOf<FoundLink, SpaceUser, [linkId: string]>(
  `select ${LINK}, m.role
   from ${LINKS}
   join workspace.pages as p on p.account_id = l.account_id and p.id = l.page_id and p.bin_id is null
   ${joinMember("p")}
   where l.account_id = $1 and l.id = $3`,
  "find_page_link",
);

/** Changes of one link, and its visits, take turns. */
export const lockLink = lockerOf("link_id", findLink);

/** The links of a page, newest first. Null: there is no such page, or the user is not a member of its space. */
export const listLinks = listOf<StoredLink, [pageId: string]>({
  isSeen: IS_PAGE_SEEN,
  total: { upToMax: "workspace.page_links where account_id = $1 and page_id = $3" },
  rows: `
    select ${LINK} from ${LINKS}
    where l.account_id = $1 and l.page_id = $3 and ${isBelow("l.id", "$4")}`,
  order: ["id", "desc"],
});

/** `total`: how many there are of them all. */
type OpenLink = StoredLink & { readonly total: number };

/**
 * Links to pages of a space that a user has made and that still open, newest first. Nobody else may ever have seen
 * their URLs. No more than LOOKED_AT_MAX are looked at or counted, so that nobody can make so many that removing them
 * takes too long.
 */
export const listOpenLinksOf = rowsOf<OpenLink, SpaceUser, [spaceId: string, max: number]>(
  `with found as materialized (
     select l.id
     from workspace.page_links as l
     join workspace.pages as p on p.account_id = l.account_id and p.id = l.page_id
     where l.account_id = $1 and l.created_by = $2 and p.space_id = $3 and l.status = 'ACTIVE'
       and (l.expires_at is null or l.expires_at > now())
       and (l.max_visits is null or l.visit_count < l.max_visits)
     limit ${LOOKED_AT_MAX}
   )
   select ${LINK}, (select count(*)::integer from found) as total
   from ${LINKS}
   where l.account_id = $1 and l.id = any (array(select id from found order by id desc limit $4))
   order by l.id desc`,
);

/** What its maker chooses. Null, as absent for a new link: no limit, no password. */
type LinkSettings = {
  readonly [Name in "label" | "expires_at" | "max_visits"]?: PageLink[Name] | undefined;
} & { readonly password_hash: string | null | undefined };

type NewLink = LinkSettings & { readonly label: string };

/** It follows new versions; null: it would have expired already. The page has one, and the user may edit it. */
export const insertLink = rowOf<
  { id: string },
  SpaceUser,
  [pageId: string, tokenDigest: Uint8Array, link: NewLink]
>(
  `insert into workspace.page_links (account_id, created_by, page_id, token_digest, label, expires_at, max_visits,
     password_hash)
   select $1, $2, $3, $4, l.*
   from json_to_record($5) as l (label text, expires_at timestamptz, max_visits integer, password_hash text)
   where l.expires_at is null or l.expires_at > now() returning id`,
);

/** `pinned`: it follows new versions again. */
type LinkChanges = LinkSettings & {
  readonly status?: "REVOKED" | undefined;
  readonly pinned?: false | undefined;
};

/** Changes what is given; what is undefined stays. The link is locked. */
export const changeLink = change<string, [linkId: string, changes: LinkChanges]>(
  `update workspace.page_links set
     label = coalesce(given ->> 'label', label),
     expires_at = case when given ? 'expires_at' then (given ->> 'expires_at')::timestamptz else expires_at end,
     max_visits = case when given ? 'max_visits' then (given ->> 'max_visits')::integer else max_visits end,
     password_hash = case when given ? 'password_hash' then given ->> 'password_hash' else password_hash end,
     auth_version = auth_version + (given ? 'password_hash')::integer,
     pinned_version_id = case when given ? 'pinned' then null else pinned_version_id end,
     status = coalesce(given ->> 'status', status),
     updated_at = now()
   from (select $3::jsonb as given) as changes
   where account_id = $1 and id = $2`,
);

/** The link shows this version of its page from now on. It is locked. */
export const pinLink = change<string, [linkId: string, versionId: string]>(
  "update workspace.page_links set pinned_version_id = $3, updated_at = now() where account_id = $1 and id = $2",
);
