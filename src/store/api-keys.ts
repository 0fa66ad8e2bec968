import type { ClientBase, Pool } from "pg";
import type { KeyClass } from "../model/api-keys.ts";

/** A key as it is stored: everything but the key. */
export type StoredApiKey = {
  readonly id: string;
  /** Null: a staff key, good for every account. */
  readonly accountId: string | null;
  /** The user that it acts for; null: none. */
  readonly userId: string | null;
  readonly class: KeyClass;
  readonly name: string | null;
  readonly scopes: ReadonlySet<string>;
  readonly createdAt: Date;
  /** Null: it does not expire. */
  readonly expiresAt: Date | null;
  /** Null: it was not revoked. */
  readonly revokedAt: Date | null;
  /** To the minute; null: never. */
  readonly lastUsedAt: Date | null;
};

const milliseconds = (column: string) => `extract(epoch from ${column}) * 1000`;

// Every request asks for it: as one JSON value, because the driver takes longer over ten columns than all else takes.
// In the order of `KeyColumns`.
export const KEY = `json_build_array(id, account_id, class, name, scopes, ${milliseconds("created_at")},
  ${milliseconds("expires_at")}, ${milliseconds("revoked_at")}, ${milliseconds("last_used_at")}, user_id) as key`;

// Selecting from accounts, so that an unknown one is no row and not an error; a staff key has none to look for.
const INSERT = `
insert into sealpost.api_keys (account_id, digest, class, name, scopes, expires_at, user_id)
select $1, $2, $3, $4, $5, now() + $6::float8 * interval '1 second', $7
where $1::uuid is null or exists (select from sealpost.accounts where id = $1)
returning id`;

/** Returns the key's id; null for an unknown account. */
export async function insertApiKey(
  database: Pool | ClientBase,
  key: {
    readonly accountId: string | null;
    /** A user of the account; absent: it acts for none. */
    readonly userId?: string | null;
    /** SHA-256 of the key's whole text. */
    readonly digest: Buffer;
    readonly class: KeyClass;
    readonly name: string | null;
    readonly scopes: readonly string[];
    /** From now; null: it does not expire. */
    readonly expiresInSeconds: number | null;
  },
): Promise<string | null> {
  const { rows } = await database.query<{ id: string }>(INSERT, [
    key.accountId,
    key.digest,
    key.class,
    key.name,
    key.scopes,
    key.expiresInSeconds,
    key.userId ?? null,
  ]);
  return rows[0]?.id ?? null;
}

/** Finds a key, revoked and expired ones included, by the SHA-256 of its whole text; null when there is none. */
export async function findApiKey(database: Pool | ClientBase, digest: Buffer): Promise<StoredApiKey | null> {
  const { rows } = await database.query<KeyRow>({
    name: "find_api_key",
    text: `select ${KEY} from sealpost.api_keys where digest = $1`,
    values: [digest],
  });
  return rows[0] ? fromColumns(rows[0].key) : null;
}

/** Whether a key is good now: a transaction that began long after its request asks again. */
export async function isApiKeyGood(tx: ClientBase, id: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    `select from sealpost.api_keys
     where id = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())`,
    [id],
  );
  return rowCount === 1;
}

const NOTE_USE = `
update sealpost.api_keys set last_used_at = now()
where id = $1 and (last_used_at is null or last_used_at < now() - interval '1 minute')`;

/** Notes that a key was used now, at most once a minute. */
export async function noteApiKeyUse(database: Pool | ClientBase, id: string): Promise<void> {
  await database.query({ name: "note_api_key_use", text: NOTE_USE, values: [id] });
}

/** A key as it is listed: with its digest in hex, and the cell that its account has moved to (null: it is here). */
export type ListedApiKey = StoredApiKey & { readonly sha256: string; readonly movedTo: string | null };

/** The newest first. @param accountId null: of all accounts and staff */
export async function listApiKeys(
  database: Pool | ClientBase,
  accountId: string | null,
): Promise<ListedApiKey[]> {
  const text = `
    select ${KEY}, encode(digest, 'hex') as sha256,
      (select moved_to from sealpost.accounts where accounts.id = api_keys.account_id) as moved_to
    from sealpost.api_keys
    where $1::uuid is null or account_id = $1
    order by id desc`;
  type Row = KeyRow & { sha256: string; moved_to: string | null };
  const { rows } = await database.query<Row>(text, [accountId]);
  return rows.map(({ key, sha256, moved_to }) => ({ ...fromColumns(key), sha256, movedTo: moved_to }));
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

export type KeyRow = { key: KeyColumns };

export type KeyColumns = [
  id: string,
  accountId: string | null,
  keyClass: KeyClass,
  name: string | null,
  scopes: string[],
  createdAtMs: number,
  expiresAtMs: number | null,
  revokedAtMs: number | null,
  lastUsedAtMs: number | null,
  userId: string | null,
];

export function fromColumns(key: KeyColumns): StoredApiKey {
  return {
    id: key[0],
    accountId: key[1],
    class: key[2],
    name: key[3],
    scopes: new Set(key[4]),
    createdAt: new Date(key[5]),
    expiresAt: dateOrNull(key[6]),
    revokedAt: dateOrNull(key[7]),
    lastUsedAt: dateOrNull(key[8]),
    userId: key[9],
  };
}

function dateOrNull(ms: number | null): Date | null {
  return ms === null ? null : new Date(ms);
}
