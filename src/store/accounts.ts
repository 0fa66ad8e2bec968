import type { ClientBase, Pool } from "pg";
import { createSigningSecret } from "./signing-secrets.ts";
import { inTransaction } from "./transaction.ts";

export type CreatedAccount = { readonly accountId: string; readonly signingSecret: string };

/** Makes an account with its first signing secret. `name`: 1 to 200 characters, for people. */
export async function createAccount(
  database: ClientBase | Pool,
  name: string,
  secretsKey: Uint8Array,
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
  const { rowCount } = await database.query({
    name: "account_exists",
    text: "select from sealpost.accounts where id = $1",
    values: [accountId],
  });
  return rowCount === 1;
}

/** Null: there is no such account. */
export async function findAccountName(database: Pool, accountId: string): Promise<string | null> {
  const { rows } = await database.query<{ name: string }>({
    name: "find_account_name",
    text: "select name from sealpost.accounts where id = $1",
    values: [accountId],
  });
  return rows[0]?.name ?? null;
}

export type StoredAccount = {
  readonly id: string;
  readonly name: string;
  readonly createdAt: Date;
  /** The cell that it has moved to; null: it is here. */
  readonly movedTo: string | null;
};

const ACCOUNT = 'id, name, created_at as "createdAt", moved_to as "movedTo"';

/** The newest first. */
export async function listAccounts(database: ClientBase | Pool): Promise<readonly StoredAccount[]> {
  const { rows } = await database.query<StoredAccount>(
    `select ${ACCOUNT} from sealpost.accounts order by id desc`,
  );
  return rows;
}

/** False on a database that nobody has used yet. */
export async function hasAccounts(database: ClientBase | Pool): Promise<boolean> {
  const { rowCount } = await database.query("select from sealpost.accounts limit 1");
  return rowCount === 1;
}

/** The oldest; null: there is none. */
export async function findFirstAccount(database: ClientBase | Pool): Promise<StoredAccount | null> {
  const { rows } = await database.query<StoredAccount>(
    `select ${ACCOUNT} from sealpost.accounts order by id limit 1`,
  );
  return rows[0] ?? null;
}
