import type { ClientBase, Pool } from "pg";
import { timeText } from "../base/database/time-text.ts";
import { inTransaction } from "../base/database/transaction.ts";
import type { ShownAccount } from "../base/model/console.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { createSigningSecret } from "../delivery/signing-secrets-sql.ts";
import type { User } from "./accounts-schema.ts";

export type CreatedAccount = { readonly accountId: string; readonly signingSecret: string };

/** Makes an account with its first signing secret. `name`: 1 to 200 characters, for people. */
export async function createAccount(
  database: ClientBase | Pool,
  name: string,
  secretsKey: SecretsKey,
): Promise<CreatedAccount> {
  return await inTransaction(database, async (client) => {
    const { rows } = await client.query<{ id: string }>(
      "insert into sealpost.accounts (name) values ($1) returning id",
      [name],
    );
    const accountId = rows[0]!.id;
    const { secret } = await createSigningSecret(client, accountId, secretsKey);
    return { accountId, signingSecret: secret };
  });
}

export async function accountExists(database: ClientBase | Pool, accountId: string): Promise<boolean> {
  return (await findShownAccount(database, accountId)) !== null;
}

/** Null: there is no such account, or it is erased. */
export async function findShownAccount(
  database: ClientBase | Pool,
  accountId: string,
): Promise<ShownAccount | null> {
  const { rows } = await database.query<ShownAccount>({
    name: "find_shown_account",
    text: `select a.name as "accountName", ${timeText("e.paused_at")} as "pausedAt"
      from sealpost.accounts as a left join sealpost.endpoints as e on e.account_id = a.id
      where a.id = $1 and a.erased_at is null`,
    values: [accountId],
  });
  return rows[0] ?? null;
}

export type StoredAccount = {
  readonly id: string;
  readonly name: string;
  readonly createdAt: Date;
  /** The cell that it has moved to; null: it is here. */
  readonly movedTo: string | null;
  /** Null: not erased. */
  readonly erasedAt: Date | null;
};

const ACCOUNT = 'id, name, created_at as "createdAt", moved_to as "movedTo", erased_at as "erasedAt"';

/** The newest first. */
export async function listAccounts(database: ClientBase | Pool): Promise<readonly StoredAccount[]> {
  const { rows } = await database.query<StoredAccount>(
    `select ${ACCOUNT} from sealpost.accounts order by id desc`,
  );
  return rows;
}

/** The oldest that is not erased; null: there is none. */
export async function findFirstAccount(database: ClientBase | Pool): Promise<StoredAccount | null> {
  const { rows } = await database.query<StoredAccount>(
    `select ${ACCOUNT} from sealpost.accounts where erased_at is null order by id limit 1`,
  );
  return rows[0] ?? null;
}

/** A person of an account, for whom keys can act. */
export type StoredUser = User & { readonly account_id: string };

export type NewUser = Pick<StoredUser, "account_id" | "idp_user_id" | "email" | "name" | "image_url">;

const USER = `id, account_id, idp_user_id, email, name, image_url, ${timeText("created_at")} as created_at,
  ${timeText("disabled_at")} as disabled_at`;

// Selecting from accounts, so that an unknown one is no row and not an error.
const INSERT = `
insert into sealpost.users (account_id, idp_user_id, email, name, image_url)
select id, $2, $3, $4, $5 from sealpost.accounts where id = $1 and erased_at is null
on conflict (account_id, idp_user_id) do update
set email = excluded.email, name = excluded.name, image_url = excluded.image_url, disabled_at = null
where users.disabled_at is not null
returning ${USER}`;

/** Enables one that is disabled. Null: there is no such account, or it has a user of that id already. */
export async function insertUser(database: Pool | ClientBase, user: NewUser): Promise<StoredUser | null> {
  const { account_id, idp_user_id, email, name, image_url } = user;
  const { rows } = await database.query<StoredUser>(INSERT, [
    account_id,
    idp_user_id,
    email,
    name,
    image_url,
  ]);
  return rows[0] ?? null;
}

/** Null: there is none. */
export async function findUser(database: Pool | ClientBase, id: string): Promise<StoredUser | null> {
  const { rows } = await database.query<StoredUser>(`select ${USER} from sealpost.users where id = $1`, [id]);
  return rows[0] ?? null;
}

/**
 * The newest first, those disabled too.
 * @param accountId null: of all accounts
 * @param belowId null: from the newest
 * @param limit null: all
 */
export async function listUsers(
  database: Pool | ClientBase,
  accountId: string | null,
  belowId: string | null = null,
  limit: number | null = null,
): Promise<readonly StoredUser[]> {
  const { rows } = await database.query<StoredUser>(
    `select ${USER} from sealpost.users
     where ($1::uuid is null or account_id = $1) and ($2::uuid is null or id < $2) order by id desc limit $3`,
    [accountId, belowId, limit],
  );
  return rows;
}

/** Those disabled too. */
export async function countUsers(database: Pool | ClientBase, accountId: string): Promise<number> {
  const text = "select count(*)::integer as n from sealpost.users where account_id = $1";
  return (await database.query<{ n: number }>(text, [accountId])).rows[0]!.n;
}

/** Revokes its keys, too. Disabled again, it keeps the first time. Null: there is none. */
export async function disableUser(tx: ClientBase, id: string): Promise<StoredUser | null> {
  const { rows } = await tx.query<StoredUser>(
    `update sealpost.users set disabled_at = coalesce(disabled_at, now()) where id = $1 returning ${USER}`,
    [id],
  );
  // A statement of its own: it sees the keys of whoever the first one has waited for.
  await tx.query(
    "update sealpost.api_keys set revoked_at = now() where user_id = $1 and revoked_at is null",
    [id],
  );
  return rows[0] ?? null;
}
