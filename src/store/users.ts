import type { ClientBase, Pool } from "pg";

/** A person of an account, for whom keys can act. */
export type StoredUser = {
  readonly id: string;
  readonly accountId: string;
  /** Who it is at the account's identity provider: unique within the account. */
  readonly idpUserId: string;
  readonly email: string;
  /** For people. */
  readonly name: string;
  /** A picture; null: none. */
  readonly imageUrl: string | null;
  readonly createdAt: Date;
};

export type NewUser = Omit<StoredUser, "id" | "createdAt">;

const USER = `id, account_id as "accountId", idp_user_id as "idpUserId", email, name, image_url as "imageUrl",
  created_at as "createdAt"`;

// Selecting from accounts, so that an unknown one is no row and not an error.
const INSERT = `
insert into sealpost.users (account_id, idp_user_id, email, name, image_url)
select id, $2, $3, $4, $5 from sealpost.accounts where id = $1
on conflict (account_id, idp_user_id) do nothing
returning ${USER}`;

/** Null: there is no such account, or it has a user of that `idpUserId` already. */
export async function insertUser(database: Pool | ClientBase, user: NewUser): Promise<StoredUser | null> {
  const { accountId, idpUserId, email, name, imageUrl } = user;
  const { rows } = await database.query<StoredUser>(INSERT, [accountId, idpUserId, email, name, imageUrl]);
  return rows[0] ?? null;
}

/** Null: there is none. */
export async function findUser(database: Pool | ClientBase, id: string): Promise<StoredUser | null> {
  const { rows } = await database.query<StoredUser>(`select ${USER} from sealpost.users where id = $1`, [id]);
  return rows[0] ?? null;
}

/** The newest first. @param accountId null: of all accounts */
export async function listUsers(
  database: Pool | ClientBase,
  accountId: string | null,
): Promise<readonly StoredUser[]> {
  const { rows } = await database.query<StoredUser>(
    `select ${USER} from sealpost.users where $1::uuid is null or account_id = $1 order by id desc`,
    [accountId],
  );
  return rows;
}
