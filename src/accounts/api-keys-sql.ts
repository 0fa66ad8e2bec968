import type { ClientBase, Pool } from "pg";
import { timeText } from "../base/database/time-text.ts";
import { type KeyClass, USERS_SCOPE } from "../base/model/api-keys.ts";
import { cutPage, type ListPage } from "../base/model/list-page.ts";
import type { ApiKey as ValidApiKey } from "../http/api-keys.ts";
import type { Caller } from "../http/operation.ts";
import type { ApiKey } from "./accounts-schema.ts";
import { disableUser, type StoredUser } from "./accounts-sql.ts";

const SHOWN = `id, name, class, scopes, user_id, ${timeText("created_at")} as created_at,
  ${timeText("expires_at")} as expires_at, ${timeText("revoked_at")} as revoked_at,
  ${timeText("last_used_at")} as last_used_at`;

export type NewApiKey = {
  /** Null: a staff key. */
  readonly accountId: string | null;
  /** A user of the account; absent: it acts for none. */
  readonly userId?: string | null;
  /** SHA-256 of the key's whole text. */
  readonly digest: Buffer;
  readonly class: KeyClass;
  readonly name: string | null;
  readonly scopes: readonly string[];
  /** From now; null: it does not expire, or as the key that makes it. */
  readonly expiresInSeconds: number | null;
};

// Selecting from accounts, so that an unknown one is no row and not an error; a staff key has none to look for.
const INSERT = `
insert into sealpost.api_keys (account_id, digest, class, name, scopes, expires_at, user_id)
select $1, $2, $3, $4, $5, coalesce(
  now() + $6::float8 * interval '1 second', (select expires_at from sealpost.api_keys where id = $8::uuid)), $7
where ($1::uuid is null or exists (select from sealpost.accounts where id = $1 and erased_at is null))
  and ($7::uuid is null or exists (
    select from sealpost.users where account_id = $1 and id = $7 and disabled_at is null for share))
returning ${SHOWN}`;

/**
 * Null for an unknown account, or an unknown or disabled user.
 * @param makerId the key that makes it; null: the command line
 */
export async function insertApiKey(
  database: Pool | ClientBase,
  key: NewApiKey,
  makerId: string | null = null,
): Promise<ApiKey | null> {
  const { accountId, digest, name, scopes, expiresInSeconds, userId = null } = key;
  const values = [accountId, digest, key.class, name, scopes, expiresInSeconds, userId, makerId];
  return (await database.query<ApiKey>(INSERT, values)).rows[0] ?? null;
}

/** What a request is let in by. */
export type FoundApiKey = ValidApiKey & { readonly lastUsedAt: Date | null };

type Times = "expiresAt" | "revokedAt" | "lastUsedAt";
type FoundRow = {
  readonly key: Omit<FoundApiKey, "scopes" | Times> & { readonly scopes: readonly string[] } & {
    readonly [Time in Times]: number | null;
  };
};

/** Finds a key, revoked and expired ones included, by the SHA-256 of its whole text; null when there is none. */
export async function findApiKey(database: Pool | ClientBase, digest: Buffer): Promise<FoundApiKey | null> {
  // Every request asks for it: as one JSON value, because the driver takes longer over the columns than all else takes.
  const { rows } = await database.query<FoundRow>({
    name: "find_api_key",
    text: `select json_build_object('id', id, 'accountId', account_id, 'userId', user_id, 'scopes', scopes,
        'expiresAt', extract(epoch from expires_at) * 1000, 'revokedAt', extract(epoch from revoked_at) * 1000,
        'lastUsedAt', extract(epoch from last_used_at) * 1000) as key
      from sealpost.api_keys where digest = $1`,
    values: [digest],
  });
  if (rows[0] === undefined) return null;
  const { scopes, expiresAt, revokedAt, lastUsedAt, ...key } = rows[0].key;
  return {
    ...key,
    scopes: new Set(scopes),
    expiresAt: dateOrNull(expiresAt),
    revokedAt: dateOrNull(revokedAt),
    lastUsedAt: dateOrNull(lastUsedAt),
  };
}

function dateOrNull(ms: number | null): Date | null {
  return ms === null ? null : new Date(ms);
}

/** Whether a key is good now: a transaction that began long after its request asks again. */
export async function isApiKeyValid(tx: ClientBase, id: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    `select from sealpost.api_keys
     where id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())`,
    [id],
  );
  return rowCount === 1;
}

/** Notes that a key was used now, at most once a minute. */
export async function noteApiKeyUse(database: Pool | ClientBase, id: string): Promise<void> {
  await database.query({
    name: "note_api_key_use",
    text: `update sealpost.api_keys set last_used_at = now()
      where id = $1 and (last_used_at is null or last_used_at < now() - interval '1 minute')`,
    values: [id],
  });
}

/** A key as the command line lists it; account_id null: a staff key. */
export type ListedApiKey = ApiKey & {
  readonly account_id: string | null;
  /** Its digest, in hex. */
  readonly sha256: string;
  /** The cell that its account has moved to; null: it is here. */
  readonly moved_to: string | null;
};

/** The newest first. @param accountId null: of all accounts and staff */
export async function listApiKeys(
  database: Pool | ClientBase,
  accountId: string | null,
): Promise<ListedApiKey[]> {
  const { rows } = await database.query<ListedApiKey>(
    `select ${SHOWN}, account_id, encode(digest, 'hex') as sha256,
       (select moved_to from sealpost.accounts where accounts.id = api_keys.account_id) as moved_to
     from sealpost.api_keys
     where $1::uuid is null or account_id = $1
     order by id desc`,
    [accountId],
  );
  return rows;
}

/** Whose key it is, and when it was revoked, now or earlier: the first time stays. Null for an unknown key. */
export async function revokeApiKey(
  database: Pool | ClientBase,
  id: string,
): Promise<{ readonly accountId: string | null; readonly revokedAt: Date } | null> {
  const text = `
    update sealpost.api_keys set revoked_at = coalesce(revoked_at, now()) where id = $1
    returning account_id as "accountId", revoked_at as "revokedAt"`;
  const { rows } = await database.query<{ accountId: string | null; revokedAt: Date }>(text, [id]);
  return rows[0] ?? null;
}

/** Of one user, or of none, that are valid or made within a day: nobody needs more, and no loop fills the table. */
export const ACCOUNT_KEYS_MAX = 100;

/** Why the key of a caller may not do what it asked for; nothing was done. */
export type KeyRefusal =
  /** Revoked or expired since the request was let in. */
  | { readonly outcome: "caller_ended" }
  /** No such key, or none that the caller may see. */
  | { readonly outcome: "not_found" }
  /** No such user, or a disabled one. */
  | { readonly outcome: "unknown_user" }
  /** The account, or the user, has as many as it may. */
  | { readonly outcome: "too_many" }
  /** It would take scopes that the caller lacks, or a longer life than its own. */
  | { readonly outcome: "exceeds_caller"; readonly scopes: readonly string[]; readonly outlives: boolean };

type LockedKey = { readonly scopes: readonly string[]; readonly outlives: boolean };

/** The caller's key, and what it may be used for here: a session may have less than its key. */
type CallingKey = Pick<Caller, "keyId" | "scopes" | "userId">;

/**
 * The caller's key, which cannot be revoked before the transaction ends: whoever revokes it sees all that it has made.
 * The account is locked first, so that keys of one account that change each other take turns. Null: it has ended.
 */
async function lockCaller(
  client: ClientBase,
  accountId: string,
  { keyId, scopes: usable }: CallingKey,
  expiresInSeconds: number | null,
): Promise<LockedKey | null> {
  await client.query("select from sealpost.accounts where id = $1 for no key update", [accountId]);
  const { rows } = await client.query<LockedKey>(
    `select scopes, coalesce(now() + $2::float8 * interval '1 second' > expires_at, false) as outlives
     from sealpost.api_keys
     where id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
     for share`,
    [keyId, expiresInSeconds],
  );
  const [found] = rows;
  return found ? { ...found, scopes: found.scopes.filter((scope) => usable.has(scope)) } : null;
}

/**
 * Makes a key that can do no more, and for no longer, than the caller's. It acts for the same user as that; for another
 * user only where the caller's acts for none and has the scope for it.
 */
export async function createAccountKey(
  client: ClientBase,
  accountId: string,
  callingKey: CallingKey,
  key: Omit<NewApiKey, "accountId">,
): Promise<{ readonly outcome: "created"; readonly key: ApiKey } | KeyRefusal> {
  const caller = await lockCaller(client, accountId, callingKey, key.expiresInSeconds);
  if (caller === null) return { outcome: "caller_ended" };
  const { keyId } = callingKey;
  const userId = callingKey.userId ?? key.userId ?? null;
  const forOther = userId === callingKey.userId ? [] : [USERS_SCOPE];
  const scopes = missingScopes([...key.scopes, ...forOther], caller);
  if (scopes.length > 0 || caller.outlives) {
    return { outcome: "exceeds_caller", scopes, outlives: caller.outlives };
  }
  const { rows } = await client.query<{ n: number }>(
    `select count(*)::integer as n from sealpost.api_keys
     where account_id = $1 and user_id is not distinct from $2 and (created_at > now() - interval '1 day'
       or revoked_at is null and (expires_at is null or expires_at > now()))`,
    [accountId, userId],
  );
  if (rows[0]!.n >= ACCOUNT_KEYS_MAX) return { outcome: "too_many" };
  const made = await insertApiKey(client, { ...key, accountId, userId }, keyId);
  return made === null ? { outcome: "unknown_user" } : { outcome: "created", key: made };
}

/** The caller's own, too, but none that can do more; a caller that acts for a user finds that user's keys only. */
export async function revokeAccountKey(
  client: ClientBase,
  accountId: string,
  callingKey: CallingKey,
  keyId: string,
): Promise<{ readonly outcome: "revoked" } | KeyRefusal> {
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
  await revokeApiKey(client, keyId);
  return { outcome: "revoked" };
}

/** Revoked and expired ones too, newest first; `userId`: of that user alone; `belowId` null: from the newest. */
export async function listAccountKeys(
  database: Pool | ClientBase,
  accountId: string,
  userId: string | null,
  belowId: string | null,
  limit: number,
): Promise<ListPage<ApiKey>> {
  const { rows } = await database.query<{ total: number; items: ApiKey[] }>(
    `select count(*)::integer as total, (
       select coalesce(json_agg(page), '[]') from (
         select ${SHOWN} from sealpost.api_keys
         where account_id = $1 and ($4::uuid is null or user_id = $4) and ($2::uuid is null or id < $2)
         order by id desc limit $3
       ) as page
     ) as items
     from sealpost.api_keys where account_id = $1 and ($4::uuid is null or user_id = $4)`,
    [accountId, belowId, limit + 1, userId],
  );
  const { total, items } = rows[0]!;
  return { ...cutPage(items, limit, ({ id }) => id), total };
}

/** Revokes its keys, none of which can do more than the caller's; a caller that acts for a user finds none. */
export async function disableAccountUser(
  client: ClientBase,
  accountId: string,
  callingKey: CallingKey,
  userId: string,
): Promise<{ readonly outcome: "disabled"; readonly user: StoredUser } | KeyRefusal> {
  const caller = await lockCaller(client, accountId, callingKey, null);
  if (caller === null) return { outcome: "caller_ended" };
  const { rows } = await client.query<{ scopes: string[] }>(
    `select array(
       select distinct unnest(k.scopes) from sealpost.api_keys as k where k.user_id = u.id and k.revoked_at is null
     ) as scopes
     from sealpost.users as u where u.account_id = $1 and u.id = $2`,
    [accountId, userId],
  );
  const [found] = rows;
  if (found === undefined) return { outcome: "not_found" };
  const scopes = missingScopes(found.scopes, caller);
  if (scopes.length > 0) return { outcome: "exceeds_caller", scopes, outlives: false };
  return { outcome: "disabled", user: (await disableUser(client, userId))! };
}

function missingScopes(wanted: readonly string[], { scopes }: LockedKey): readonly string[] {
  return wanted.filter((scope) => !scopes.includes(scope));
}
