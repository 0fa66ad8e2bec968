import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { newId } from "../base/database/partitions.ts";
import { requireSecretsKey, seal, unseal } from "../base/database/sealing.ts";
import { inTransaction } from "../base/database/transaction.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";

const SECRET_BYTES = 32;

/** Of an account, the current one included: so many of the newest are kept, and shown in the log. */
export const SECRETS_KEPT_MAX = 20;

/** A secret as its owner sees it: `whsec_` and the base64 of 32 random bytes. All of that text is the HMAC key. */
export type SigningSecret = {
  readonly id: string;
  readonly secret: string;
  readonly createdAt: Date;
  /** Null: the current one. Otherwise until when it still signs, second, beside the current one. */
  readonly expiresAt: Date | null;
};

/** Makes the account's first secret. Throws when it has one already, or others were sealed with another key. */
export async function createSigningSecret(
  client: ClientBase | Pool,
  accountId: string,
  secretsKey: SecretsKey,
): Promise<SigningSecret> {
  await requireSecretsKey(client, secretsKey);
  const secret = `whsec_${randomBytes(SECRET_BYTES).toString("base64")}`;
  const id = await newId(client);
  const inserted = await client.query<{ created_at: Date }>(
    "insert into sealpost.signing_secrets (id, account_id, sealed) values ($1, $2, $3) returning created_at",
    [id, accountId, seal(secret, secretsKey, { accountId, id })],
  );
  return { id, secret, createdAt: inserted.rows[0]!.created_at, expiresAt: null };
}

/** The valid secrets, the current first; at most two. */
export async function findSigningSecrets(
  client: ClientBase | Pool,
  accountId: string,
  secretsKey: SecretsKey,
): Promise<readonly SigningSecret[]> {
  const { rows } = await client.query<Omit<SigningSecret, "secret"> & { readonly sealed: Buffer }>({
    name: "find_signing_secrets",
    text: `select id, sealed, created_at as "createdAt", expires_at as "expiresAt" from sealpost.signing_secrets
           where account_id = $1 and (expires_at is null or expires_at > now())
           order by id desc limit 2`,
    values: [accountId],
  });
  return rows.map(({ sealed, ...row }) => ({
    ...row,
    secret: unseal(sealed, secretsKey, { accountId, id: row.id }),
  }));
}

/** When the secret was last rotated, ms since the epoch; null: never. The first is as old as its account. */
export async function findLastRotation(
  database: ClientBase | Pool,
  accountId: string,
): Promise<number | null> {
  const { rows } = await database.query<{ rotated_at: Date }>({
    name: "find_last_rotation",
    text: `select s.created_at as rotated_at
           from sealpost.signing_secrets as s join sealpost.accounts as a on a.id = s.account_id
           where s.account_id = $1 and s.expires_at is null and s.created_at > a.created_at`,
    values: [accountId],
  });
  return rows[0]?.rotated_at.getTime() ?? null;
}

export type Rotation = {
  /** How long the secret before the new one signs beside it; 0: not at all. */
  readonly overlapSeconds: number;
  /**
   * Whether to end the overlap of a rotation before: receivers that still have the oldest secret reject everything from
   * then on. Where this is not asked for, such a rotation is refused.
   */
  readonly endsPrevious: boolean;
};

/** Makes a new current secret, in its own or the client's transaction. `rotation_in_progress`: nothing was done. */
export async function rotateSigningSecret(
  database: ClientBase | Pool,
  accountId: string,
  { overlapSeconds, endsPrevious }: Rotation,
  secretsKey: SecretsKey,
): Promise<SigningSecret | "rotation_in_progress"> {
  return await inTransaction(database, async (client) => {
    // Two concurrent rotations would both retire the same current secret: they take turns.
    await client.query("select from sealpost.accounts where id = $1 for update", [accountId]);
    const { rowCount: overlapping } = await client.query(
      "select from sealpost.signing_secrets where account_id = $1 and expires_at > now()",
      [accountId],
    );
    if (overlapping !== 0 && !endsPrevious) return "rotation_in_progress";
    await client.query(
      `update sealpost.signing_secrets
       set expires_at = now() + case when expires_at is null then $2 else 0 end * interval '1 second'
       where account_id = $1 and (expires_at is null or expires_at > now())`,
      [accountId, overlapSeconds],
    );
    // Whoever claims a delivery reads past those that have expired.
    await client.query(
      `delete from sealpost.signing_secrets
       where id in (
         select id from sealpost.signing_secrets where account_id = $1
         order by id desc offset ${SECRETS_KEPT_MAX - 1})`,
      [accountId],
    );
    return await createSigningSecret(client, accountId, secretsKey);
  });
}
