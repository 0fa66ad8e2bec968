import type { ClientBase, Pool } from "pg";
import { type SealedFor, seal, unseal } from "./sealing.ts";

/** For people, wherever it is found out. */
export const WRONG_SECRETS_KEY =
  "SECRETS_KEY is not the key that this database's secrets are encrypted with. Use the original key; " +
  "in development, with SECRETS_KEY unset, it is the file secrets-key in STATE_DIR.";

const CANARY = { accountId: "settings", id: "secrets_canary" } as const satisfies SealedFor;

/** What only the right key opens, in base64. */
export type Sealed = SealedFor & { readonly text: string };

/**
 * SQL for it, as JSON: the canary, or else the newest secret of all, as in a database of version 1.0. Null: nothing is
 * sealed yet. No error where the canary's migration is not applied yet.
 */
export const SEALED = `coalesce(
  (select json_build_object('accountId', '${CANARY.accountId}', 'id', '${CANARY.id}', 'text', canary.text)
    from (select to_jsonb(s) ->> '${CANARY.id}' as text from sealpost.settings as s) as canary
    where canary.text is not null),
  (select json_build_object('accountId', account_id, 'id', id, 'text', encode(sealed, 'base64'))
    from sealpost.signing_secrets order by id desc limit 1))`;

/** Any key is right while nothing is sealed. */
export function isOpenedBy(sealed: Sealed | null, secretsKey: Uint8Array): boolean {
  if (sealed === null) return true;
  try {
    unseal(Buffer.from(sealed.text, "base64"), secretsKey, sealed);
    return true;
  } catch {
    return false;
  }
}

/** Whether secrets of this database are sealed with this key, or there are none yet. */
export async function isSecretsKey(database: ClientBase | Pool, secretsKey: Uint8Array): Promise<boolean> {
  return isOpenedBy(await readSealed(database), secretsKey);
}

/**
 * The same, and seals the canary where it is missing: with `isFirst` even where nothing is sealed yet, before something
 * is. Of two with different keys one waits for the other's transaction, and is not right then.
 */
export async function keepSecretsKey(
  database: ClientBase | Pool,
  secretsKey: Uint8Array,
  { isFirst }: { readonly isFirst: boolean },
): Promise<boolean> {
  const sealed = await readSealed(database);
  if (!isOpenedBy(sealed, secretsKey)) return false;
  if (sealed?.id === CANARY.id || (sealed === null && !isFirst)) return true;
  await database.query("update sealpost.settings set secrets_canary = $1 where secrets_canary is null", [
    seal("canary", secretsKey, CANARY).toString("base64"),
  ]);
  return await isSecretsKey(database, secretsKey);
}

async function readSealed(database: ClientBase | Pool): Promise<Sealed | null> {
  const { rows } = await database.query<{ sealed: Sealed | null }>(`select ${SEALED} as sealed`);
  return rows[0]!.sealed;
}
