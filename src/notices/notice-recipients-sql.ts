import type { ClientBase, Pool } from "pg";
import { timeText } from "../base/database/time-text.ts";
import type { Recipient } from "./notice-kinds.ts";

const RECIPIENTS_MAX = 10;
/** Mails to addresses that have not agreed to any are few: nobody may have us write to strangers. */
const CONFIRMATIONS_OF_ACCOUNT_PER_DAY_MAX = 20;
/** By whichever account. */
const CONFIRMATIONS_TO_ADDRESS_PER_DAY_MAX = 5;
/** Adding an address again sends the mail again, but not sooner than this. */
const CONFIRMATION_AGAIN_MS = 600_000;

export type Added =
  | { readonly kind: "added"; readonly recipient: Recipient }
  | { readonly kind: "too_many_recipients" | "too_many_confirmations" };

const COLUMNS = `r.id, r.address, case when r.confirmed_at is null then 'unconfirmed' else 'confirmed' end as status, (
  select m.status from sealpost.notice_mails as m where m.recipient_id = r.id and m.batch is null
  order by m.id desc limit 1) as confirmation_mail,
  ${timeText("r.created_at")} as created_at, ${timeText("r.confirmed_at")} as confirmed_at`;

/**
 * Adds the address, unless it is there, and asks it to confirm, unless it has or was asked a moment ago. Locks the
 * account's row, so that two requests do not both take the last place, and one that all accounts have, so that many do
 * not write to one address at the same moment. `address`: as judgeMailAddress gives it.
 */
export async function addRecipient(client: ClientBase, accountId: string, address: string): Promise<Added> {
  await client.query("select from sealpost.accounts where id = $1 for no key update", [accountId]);
  await client.query("select from sealpost.notice_turn for update");
  const { rows } = await client.query<{
    known_id: string | null;
    needs_mail: boolean;
    recipients: number;
    of_account: number;
    to_address: number;
  }>(
    `select known.id as known_id,
       known.confirmed_at is null and not exists (
         select from sealpost.notice_mails as m where m.recipient_id = known.id and m.batch is null
           and m.id >= sealpost.uuid_v7_floor(now() - $3::float8 * interval '1 millisecond')) as needs_mail,
       (select count(*)::integer from sealpost.notice_recipients where account_id = $1) as recipients,
       count(*) filter (where m.account_id = $1)::integer as of_account,
       count(*) filter (where lower(m.address) = lower($2))::integer as to_address
     from (select) as one
     left join sealpost.notice_recipients as known on known.account_id = $1 and lower(known.address) = lower($2)
     left join sealpost.notice_mails as m on m.batch is null
       and m.id >= sealpost.uuid_v7_floor(now() - interval '1 day')
       and (m.account_id = $1 or lower(m.address) = lower($2))
     group by known.id, known.confirmed_at`,
    [accountId, address, CONFIRMATION_AGAIN_MS],
  );
  const { known_id, needs_mail, recipients, of_account, to_address } = rows[0]!;
  if (known_id === null && recipients >= RECIPIENTS_MAX) return { kind: "too_many_recipients" };
  if (needs_mail) {
    const isTooMany =
      of_account >= CONFIRMATIONS_OF_ACCOUNT_PER_DAY_MAX ||
      to_address >= CONFIRMATIONS_TO_ADDRESS_PER_DAY_MAX;
    if (isTooMany) return { kind: "too_many_confirmations" };
  }
  if (known_id === null) {
    await client.query("insert into sealpost.notice_recipients (account_id, address) values ($1, $2)", [
      accountId,
      address,
    ]);
  }
  // Its link is made when it is sent.
  if (needs_mail) {
    await client.query(
      `insert into sealpost.notice_mails (account_id, recipient_id, address)
       select account_id, id, $2 from sealpost.notice_recipients where account_id = $1 and lower(address) = lower($2)`,
      [accountId, address],
    );
  }
  const added = await client.query<Recipient>(
    `select ${COLUMNS} from sealpost.notice_recipients as r where account_id = $1 and lower(address) = lower($2)`,
    [accountId, address],
  );
  return { kind: "added", recipient: added.rows[0]! };
}

/** All of the account, newest first; there are few. */
export async function listRecipients(pool: Pool, accountId: string): Promise<Recipient[]> {
  const { rows } = await pool.query<Recipient>({
    name: "list_notice_recipients",
    text: `select ${COLUMNS} from sealpost.notice_recipients as r where account_id = $1 order by id desc`,
    values: [accountId],
  });
  return rows;
}

/** Mails to it that are not being sent yet are not sent. False: the account has no such recipient. */
export async function removeRecipient(client: ClientBase, accountId: string, id: string): Promise<boolean> {
  const { rowCount } = await client.query(
    "delete from sealpost.notice_recipients where account_id = $1 and id = $2",
    [accountId, id],
  );
  if (rowCount === 0) return false;
  await client.query(
    `update sealpost.notice_mails set status = 'failed', ended_at = now(), error = 'recipient removed'
     where recipient_id = $1 and status = 'waiting'`,
    [id],
  );
  return true;
}

/** What a link asks: whether this address is to get the notices of this account. */
export type Confirmation = {
  readonly address: string;
  readonly accountName: string;
  readonly isConfirmed: boolean;
};

/** Null: no link like this was sent, or it has expired, or its recipient was removed, or its account has moved. */
export async function findConfirmation(pool: Pool, tokenDigest: Buffer): Promise<Confirmation | null> {
  const { rows } = await pool.query<Confirmation>({
    name: "find_confirmation",
    text: `select r.address, a.name as "accountName", r.confirmed_at is not null as "isConfirmed"
      from sealpost.notice_recipients as r join sealpost.accounts as a on a.id = r.account_id
      where r.token_digest = $1 and r.token_expires_at > now() and a.moved_to is null and a.erased_at is null`,
    values: [tokenDigest],
  });
  return rows[0] ?? null;
}

/** Null as above. Confirming again changes nothing. */
export async function confirmRecipient(pool: Pool, tokenDigest: Buffer): Promise<Confirmation | null> {
  const { rows } = await pool.query<Confirmation>(
    `update sealpost.notice_recipients as r set confirmed_at = coalesce(r.confirmed_at, now())
     from sealpost.accounts as a
     where a.id = r.account_id and r.token_digest = $1 and r.token_expires_at > now() and a.moved_to is null
       and a.erased_at is null
     returning r.address, a.name as "accountName", true as "isConfirmed"`,
    [tokenDigest],
  );
  return rows[0] ?? null;
}
