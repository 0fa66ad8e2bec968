import type { ClientBase, Pool } from "pg";
import { notErased } from "../base/database/account-rows.ts";
import { timeText } from "../base/database/time-text.ts";
import { type CappedPage, cappedTotal, cutPage, LOOKED_AT_MAX } from "../base/model/list-page.ts";
import type { NoticeKind } from "../base/model/notices.ts";
import type { NoticeContent, StoredNotice } from "./notice-kinds.ts";

export type NewNotice = NoticeContent & {
  readonly accountId: string;
  /** What it is about, within its kind: it is told once. */
  readonly subject: string;
};

/** False: it was told before, or the account is erased. */
export async function addNotice(database: ClientBase | Pool, notice: NewNotice): Promise<boolean> {
  const { rowCount } = await database.query({
    name: "add_notice",
    text: `insert into sealpost.notices (account_id, kind, subject, details)
      select $1::uuid, $2, $3, $4::json where ${notErased("$1")}
      on conflict (account_id, kind, subject) do nothing`,
    values: [notice.accountId, notice.kind, notice.subject, JSON.stringify(notice.details)],
  });
  return rowCount === 1;
}

/**
 * Notices of rotated secrets that nobody was told of, the first to expire first. The end of a rotation's overlap is
 * told a day before, and of a short overlap when half of it is over.
 */
export async function findExpiringSecrets(
  database: ClientBase | Pool,
  rowsMax: number,
): Promise<readonly NewNotice[]> {
  const { rows } = await database.query<NewNotice>({
    name: "find_expiring_secrets",
    text: `select old.account_id as "accountId", 'secret.expiring' as kind, old.id as subject, json_build_object(
        'rotated_at', ${timeText("current.created_at")}, 'expires_at', ${timeText("old.expires_at")}) as details
      from sealpost.signing_secrets as old
      join sealpost.signing_secrets as current
        on current.account_id = old.account_id and current.expires_at is null
      where old.expires_at > now()
        and old.expires_at - now() <= least(interval '1 day', (old.expires_at - current.created_at) / 2)
        and not exists (
          select from sealpost.notices as n
          where n.account_id = old.account_id and n.kind = 'secret.expiring' and n.subject = old.id::text)
      order by old.expires_at
      limit $1`,
    values: [rowsMax],
  });
  return rows;
}

/** The account's notices, newest first. @param kind null: all @param belowId null: from the newest */
export async function listNotices(
  pool: Pool,
  accountId: string,
  kind: NoticeKind | null,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<StoredNotice>> {
  const { rows } = await pool.query<{ counted: number; items: StoredNotice[] }>({
    name: "list_notices",
    text: `
      with page as (
        select id, kind, details, batch from sealpost.notices
        where account_id = $1 and ($2::text is null or kind = $2) and ($3::uuid is null or id < $3)
        order by id desc
        limit $4
      )
      select count(*)::integer as counted, (
        select coalesce(json_agg(json_build_object('id', id,
          'created_at', ${timeText("sealpost.uuid_v7_time(id)")}, 'kind', kind, 'details', details, 'mails', coalesce((
            select json_agg(json_build_object('address', m.address, 'status', m.status,
              'ended_at', ${timeText("m.ended_at")}) order by m.address)
            from sealpost.notice_mails as m where m.batch = page.batch
          ), '[]')) order by id desc), '[]')
        from page
      ) as items
      from (
        select from sealpost.notices where account_id = $1 and ($2::text is null or kind = $2)
        limit ${LOOKED_AT_MAX}
      ) as found`,
    values: [accountId, kind, belowId, limit + 1],
  });
  const { counted, items } = rows[0]!;
  return { ...cutPage(items, limit, ({ id }) => id), ...cappedTotal(counted) };
}
