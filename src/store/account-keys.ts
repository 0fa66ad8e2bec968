import type { ClientBase, Pool } from "pg";
import type { KeyClass } from "../model/api-keys.ts";
import { cutPage, type ListPage } from "../model/list-page.ts";
import { fromColumns, KEY, type KeyColumns, type KeyRow, type StoredApiKey } from "./api-keys.ts";

/**
 * Keys of one account that act for the same user, or for none, and are valid or were made within a day: nobody needs
 * more, somebody who makes and revokes keys in a loop fills no table, and no user takes the account's places.
 */
export const ACCOUNT_KEYS_MAX = 100;

/** Why the key of a caller may not do what it asked for; nothing was done. */
export type KeyRefusal =
  /** Revoked or expired since the request was let in. */
  | { readonly outcome: "caller_ended" }
  /** It would take scopes that the caller lacks, or a longer life than its own. */
  | { readonly outcome: "exceeds_caller"; readonly scopes: readonly string[]; readonly outlives: boolean };

type Caller = { readonly scopes: readonly string[]; readonly outlives: boolean };

/** The caller's key, and what it may be used for here: a session may have less than its key. */
export type CallingKey = {
  readonly keyId: string;
  readonly scopes: ReadonlySet<string>;
  /** The user that it acts for here; null: none. */
  readonly userId: string | null;
};

/**
 * The caller's key, which cannot be revoked before the transaction ends: whoever revokes it sees all that it has made.
 * The account is locked first, so that keys of one account that change each other take turns. Null: it has ended.
 */
async function lockCaller(
  client: ClientBase,
  accountId: string,
  { keyId, scopes: usable }: CallingKey,
  expiresInSeconds: number | null,
): Promise<Caller | null> {
  await client.query("select from sealpost.accounts where id = $1 for no key update", [accountId]);
  const { rows } = await client.query<Caller>(
    `select scopes, coalesce(now() + $2::float8 * interval '1 second' > expires_at, false) as outlives
     from sealpost.api_keys
     where id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
     for share`,
    [keyId, expiresInSeconds],
  );
  const [found] = rows;
  return found === undefined ? null : { ...found, scopes: found.scopes.filter((scope) => usable.has(scope)) };
}

export type NewAccountKey = {
  /** SHA-256 of the key's whole text. */
  readonly digest: Buffer;
  readonly class: KeyClass;
  readonly name: string;
  readonly scopes: readonly string[];
  /** From now; null: as long as the caller's key. */
  readonly expiresInSeconds: number | null;
};

/**
 * Makes a key of the account that can do no more, and for no longer, than the caller's, which may be a staff key. It
 * acts for the caller's user, or like it for none: nobody can choose in whose name a key acts.
 */
export async function createAccountKey(
  client: ClientBase,
  accountId: string,
  callingKey: CallingKey,
  key: NewAccountKey,
): Promise<
  { readonly outcome: "created"; readonly key: StoredApiKey } | { outcome: "too_many" } | KeyRefusal
> {
  const caller = await lockCaller(client, accountId, callingKey, key.expiresInSeconds);
  if (caller === null) return { outcome: "caller_ended" };
  const scopes = missingScopes(key.scopes, caller);
  if (scopes.length > 0 || caller.outlives) {
    return { outcome: "exceeds_caller", scopes, outlives: caller.outlives };
  }
  const { rows } = await client.query<{ n: number }>(
    `select count(*)::integer as n from sealpost.api_keys
     where account_id = $1 and user_id is not distinct from $2 and (created_at > now() - interval '1 day'
       or revoked_at is null and (expires_at is null or expires_at > now()))`,
    [accountId, callingKey.userId],
  );
  if (rows[0]!.n >= ACCOUNT_KEYS_MAX) return { outcome: "too_many" };
  const inserted = await client.query<KeyRow>(
    `insert into sealpost.api_keys (account_id, digest, class, name, scopes, expires_at, user_id)
     select $1, $2, $3, $4, $5, coalesce(now() + $6::float8 * interval '1 second', caller.expires_at), $8
     from sealpost.api_keys as caller where caller.id = $7
     returning ${KEY}`,
    [
      accountId,
      key.digest,
      key.class,
      key.name,
      key.scopes,
      key.expiresInSeconds,
      callingKey.keyId,
      callingKey.userId,
    ],
  );
  return { outcome: "created", key: fromColumns(inserted.rows[0]!.key) };
}

/**
 * Revokes a key of the account, the caller's own too, unless it can do more than the caller's. For a caller that acts
 * for a user there are no keys but that user's.
 */
export async function revokeAccountKey(
  client: ClientBase,
  accountId: string,
  callingKey: CallingKey,
  keyId: string,
): Promise<{ readonly outcome: "revoked" } | { readonly outcome: "not_found" } | KeyRefusal> {
  const caller = await lockCaller(client, accountId, callingKey, null);
  if (caller === null) return { outcome: "caller_ended" };
  const { rows } = await client.query<{ scopes: string[] }>(
    "select scopes from sealpost.api_keys where account_id = $1 and id = $2 and ($3::uuid is null or user_id = $3)",
    [accountId, keyId, callingKey.userId],
  );
  const [found] = rows;
  if (found === undefined) return { outcome: "not_found" };
  const scopes = missingScopes(found.scopes, caller);
  if (scopes.length > 0) return { outcome: "exceeds_caller", scopes, outlives: false };
  await client.query("update sealpost.api_keys set revoked_at = coalesce(revoked_at, now()) where id = $1", [
    keyId,
  ]);
  return { outcome: "revoked" };
}

/**
 * Keys of the account, revoked and expired ones too, newest first.
 * @param userId of that user alone; null: of everybody @param belowId null: from the newest
 */
export async function listAccountKeys(
  database: Pool | ClientBase,
  accountId: string,
  userId: string | null,
  belowId: string | null,
  limit: number,
): Promise<ListPage<StoredApiKey>> {
  const { rows } = await database.query<{ key: KeyColumns | null; total: number }>(
    `select page.key, counted.total from
      (select count(*)::integer as total from sealpost.api_keys
        where account_id = $1 and ($4::uuid is null or user_id = $4)) as counted
      left join (
        select id, ${KEY} from sealpost.api_keys
        where account_id = $1 and ($4::uuid is null or user_id = $4) and ($2::uuid is null or id < $2)
        order by id desc limit $3
      ) as page on true
      order by page.id desc`,
    [accountId, belowId, limit + 1, userId],
  );
  const found = rows.flatMap(({ key }) => (key === null ? [] : [fromColumns(key)]));
  return { ...cutPage(found, limit, ({ id }) => id), total: rows[0]?.total ?? 0 };
}

function missingScopes(wanted: readonly string[], { scopes }: Caller): readonly string[] {
  return wanted.filter((scope) => !scopes.includes(scope));
}
