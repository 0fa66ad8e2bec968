import type { Pool } from "pg";
import type { LinkStatus } from "../model/page-links.ts";
import { SHOWN_VERSION } from "./page-links.ts";

/** A link as its visitors meet it. */
export type OpenedLink = {
  readonly accountId: string;
  readonly id: string;
  readonly status: LinkStatus;
  readonly isExpired: boolean;
  readonly maxVisits: number | null;
  readonly visitCount: number;
  /** Null: none is asked for. */
  readonly passwordHash: string | null;
  readonly authVersion: number;
  readonly versionId: string;
  /** Of its text. */
  readonly versionBytes: number;
};

/** Null: there is no such link. */
export async function openLink(pool: Pool, tokenDigest: Uint8Array): Promise<OpenedLink | null> {
  const { rows } = await pool.query<OpenedLink>({
    name: "open_page_link",
    text: `
      select l.account_id as "accountId", l.id, l.status, coalesce(l.expires_at <= now(), false) as "isExpired",
        l.max_visits as "maxVisits", l.visit_count::float8 as "visitCount", l.password_hash as "passwordHash",
        l.auth_version as "authVersion", v.id as "versionId", octet_length(v.markdown) as "versionBytes"
      from workspace.page_links as l ${SHOWN_VERSION}
      where l.token_digest = $1`,
    values: [tokenDigest],
  });
  return rows[0] ?? null;
}

/** Counts a visit, if the link is still open and asks for the password that was asked for. */
export async function countVisit(pool: Pool, { accountId, id, authVersion }: OpenedLink): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: "count_page_visit",
    text: `
      update workspace.page_links set visit_count = visit_count + 1, last_visited_at = now()
      where account_id = $1 and id = $2 and auth_version = $3 and status = 'ACTIVE'
        and (expires_at is null or expires_at > now()) and (max_visits is null or visit_count < max_visits)`,
    values: [accountId, id, authVersion],
  });
  return rowCount === 1;
}

export type VersionText = { readonly title: string; readonly markdown: string };

/** What a version says, for ever. */
export async function readVersion(pool: Pool, accountId: string, versionId: string): Promise<VersionText> {
  const { rows } = await pool.query<VersionText>({
    name: "read_page_version",
    text: "select title, markdown from workspace.page_versions where account_id = $1 and id = $2",
    values: [accountId, versionId],
  });
  return rows[0]!;
}
