import type { Pool } from "pg";
import { notErased } from "../base/database/account-rows.ts";
import { timeText } from "../base/database/time-text.ts";
import type { NoticeContent } from "./notice-kinds.ts";

/**
 * Makes mails of what nobody has collected yet: one for each confirmed recipient, account and kind, unless one of that
 * account and kind was made within `everyMs`; then it stays and is in the next. What is older than `untilMs` is not
 * mailed any more. Returns how many mails.
 */
export async function collectMails(
  pool: Pool,
  { everyMs, untilMs, groupsMax }: { everyMs: number; untilMs: number; groupsMax: number },
): Promise<number> {
  const { rows } = await pool.query<{ mails: number }>({
    name: "collect_notice_mails",
    text: `
      with waiting as (
        select n.account_id, n.kind
        -- Not of an account that is in another cell: there they are collected.
        from sealpost.notices as n join sealpost.accounts as a on a.id = n.account_id and a.moved_to is null
        where n.collected_at is null
        group by n.account_id, n.kind
      ), due as materialized (
        select waiting.*, gen_random_uuid() as batch
        from waiting
        where not exists (
          select from sealpost.notices as n
          where n.account_id = waiting.account_id and n.kind = waiting.kind and n.batch is not null
            and n.collected_at > now() - $1::float8 * interval '1 millisecond')
        limit $3
      ), asked as (
        select due.*, r.id as recipient_id, r.address
        from due join sealpost.notice_recipients as r on r.account_id = due.account_id and r.confirmed_at is not null
      ), collected as (
        update sealpost.notices as n
        set collected_at = now(),
          batch = case
            when n.id >= sealpost.uuid_v7_floor(now() - $2::float8 * interval '1 millisecond')
              and exists (select from asked where asked.batch = due.batch)
            then due.batch end
        from due
        where n.account_id = due.account_id and n.kind = due.kind and n.collected_at is null
        returning n.batch
      ), mails as (
        insert into sealpost.notice_mails (account_id, recipient_id, address, batch)
        select account_id, recipient_id, address, batch from asked
        where batch in (select batch from collected)
        returning 1
      )
      select count(*)::integer as mails from mails`,
    values: [everyMs, untilMs, groupsMax],
  });
  return rows[0]!.mails;
}

export type ToldNotice = NoticeContent & { readonly created_at: string };

/** A mail to send, ours until it is settled or its time is over. */
export type ClaimedMail = {
  readonly id: string;
  readonly claimToken: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly recipientId: string;
  readonly address: string;
  /** Earlier tries that were refused for certain. */
  readonly tries: number;
  /** What it tells, oldest first, at most `noticesMax`; null: it asks its recipient to confirm. */
  readonly notices: readonly ToldNotice[] | null;
  /** How many it would tell without that limit. */
  readonly noticesCount: number;
};

/** The one that has been due for longest; null: none is due. */
export async function claimMail(
  pool: Pool,
  claimMs: number,
  noticesMax: number,
): Promise<ClaimedMail | null> {
  const { rows } = await pool.query<ClaimedMail>({
    name: "claim_notice_mail",
    text: `
      with next as (
        select id from sealpost.notice_mails
        where status = 'waiting' and due_at <= now() and ${notErased("account_id")}
        order by due_at
        limit 1
        for update skip locked
      ), mine as (
        update sealpost.notice_mails as m
        set status = 'sending', claim_token = gen_random_uuid(),
          claimed_until = now() + $1::float8 * interval '1 millisecond'
        from next where m.id = next.id
        returning m.*
      )
      select mine.id, mine.claim_token as "claimToken", mine.account_id as "accountId", a.name as "accountName",
        mine.recipient_id as "recipientId", mine.address, mine.tries,
        (select count(*)::integer from sealpost.notices as n where n.batch = mine.batch) as "noticesCount",
        case when mine.batch is not null then coalesce((
          select json_agg(json_build_object('kind', n.kind, 'details', n.details,
            'created_at', ${timeText("sealpost.uuid_v7_time(n.id)")}) order by n.id)
          from (
            select * from sealpost.notices as n
            where n.account_id = mine.account_id and n.batch = mine.batch order by n.id limit $2
          ) as n
        ), '[]') end as notices
      from mine join sealpost.accounts as a on a.id = mine.account_id`,
    values: [claimMs, noticesMax],
  });
  return rows[0] ?? null;
}

/**
 * Stores the digest of the token that the mail's link holds, in place of an earlier one. False: the recipient was
 * removed, or has confirmed.
 */
export async function storeConfirmationToken(
  pool: Pool,
  recipientId: string,
  tokenDigest: Buffer,
  validMs: number,
): Promise<boolean> {
  const { rowCount } = await pool.query(
    `update sealpost.notice_recipients
     set token_digest = $2, token_expires_at = now() + $3::float8 * interval '1 millisecond'
     where id = $1 and confirmed_at is null`,
    [recipientId, tokenDigest, validMs],
  );
  return rowCount === 1;
}

export type MailEnding =
  | { readonly status: "sent" }
  | { readonly status: "perhaps_sent" | "failed"; readonly error: string }
  /** It has not left for certain: again later. A stop of our own is no try. */
  | {
      readonly status: "waiting";
      readonly error: string;
      readonly againInMs: number;
      readonly isTry: boolean;
    };

/** False: our time was over, and somebody has found that it was perhaps sent. */
export async function settleMail(pool: Pool, mail: ClaimedMail, ending: MailEnding): Promise<boolean> {
  const isWaiting = ending.status === "waiting";
  const { rowCount } = await pool.query(
    `update sealpost.notice_mails
     set status = $3, claim_token = null, claimed_until = null, error = $4,
       tries = tries + $5,
       due_at = case when $3 = 'waiting' then now() + $6::float8 * interval '1 millisecond' else due_at end,
       ended_at = case when $3 <> 'waiting' then now() end
     where id = $1 and claim_token = $2`,
    [
      mail.id,
      mail.claimToken,
      ending.status,
      ending.status === "sent" ? null : ending.error,
      isWaiting && !ending.isTry ? 0 : 1,
      isWaiting ? ending.againInMs : 0,
    ],
  );
  return rowCount === 1;
}

/** Mails whose sender has died are perhaps sent, and not sent again. Returns their ids. */
export async function giveUpCutMails(pool: Pool): Promise<readonly string[]> {
  const { rows } = await pool.query<{ id: string }>(
    `update sealpost.notice_mails
     set status = 'perhaps_sent', claim_token = null, claimed_until = null, ended_at = now(),
       error = 'the process that was sending it ended'
     where id in (
       select id from sealpost.notice_mails where status = 'sending' and claimed_until < now() for update skip locked)
     returning id`,
  );
  return rows.map(({ id }) => id);
}

/** True for the one process whose turn it is; the next turn is `everyMs` later. */
export async function takeNoticeTurn(pool: Pool, everyMs: number): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: "take_notice_turn",
    text: `update sealpost.notice_turn set next_at = now() + $1::float8 * interval '1 millisecond'
      where next_at <= now()`,
    values: [everyMs],
  });
  return rowCount === 1;
}
