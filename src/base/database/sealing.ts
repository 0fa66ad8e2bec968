import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { keysOf, type SecretsKey } from "../model/secrets-key.ts";

/**
 * How secrets lie in the database: AES-256-GCM under the configured key. The account and the row's id are authenticated
 * along, so that a sealed text copied to another row does not open.
 *
 * Layout: 1 byte version, 12 bytes nonce, the encrypted text, 16 bytes tag.
 */
const VERSION = 1;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export type SealedFor = { readonly accountId: string; readonly id: string };

export function seal(text: string, secretsKey: SecretsKey, owner: SealedFor): Buffer {
  const [key] = keysOf(secretsKey);
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(associated(owner));
  const encrypted = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([Buffer.of(VERSION), nonce, encrypted, cipher.getAuthTag()]);
}

/** Throws when none of the keys is the right one, or the text was sealed for somebody else. */
export function unseal(sealed: Uint8Array, secretsKey: SecretsKey, owner: SealedFor): string {
  let cause: unknown;
  for (const key of keysOf(secretsKey)) {
    try {
      return unsealWith(key, sealed, owner);
    } catch (error) {
      cause = error;
    }
  }
  throw new Error(
    `secret ${owner.id} cannot be decrypted: it was encrypted with another SECRETS_KEY, or was changed`,
    { cause },
  );
}

function unsealWith(key: Uint8Array, sealed: Uint8Array, owner: SealedFor): string {
  const text = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
  if (text[0] !== VERSION) throw new Error(`unknown version ${text[0]}`);
  const decipher = createDecipheriv("aes-256-gcm", key, text.subarray(1, 1 + NONCE_BYTES));
  decipher.setAAD(associated(owner));
  decipher.setAuthTag(text.subarray(text.length - TAG_BYTES));
  const encrypted = text.subarray(1 + NONCE_BYTES, text.length - TAG_BYTES);
  return Buffer.concat([decipher.update(encrypted), decipher.final()]).toString("utf8");
}

function associated(owner: SealedFor): Buffer {
  return Buffer.from(`${owner.accountId}/${owner.id}`);
}

/** For people, wherever it is found out. */
export const WRONG_SECRETS_KEY =
  "SECRETS_KEY is not the key that this database's secrets are encrypted with. Use the original key; " +
  "in development, with SECRETS_KEY unset, it is the file secrets-key in STATE_DIR. While it is rotated, both keys " +
  "must be those of all other processes, and the old one is SECRETS_KEY until all of them have both. Run `sealpost " +
  "secrets reseal` again: with both if the old one was SECRETS_KEY anywhere after it, with the present one alone if " +
  "an earlier rotation was not ended.";

/** Thrown before a secret is stored that the others' key would not open. */
export class SecretsKeyError extends Error {
  override readonly name = "SecretsKeyError";

  constructor() {
    super(WRONG_SECRETS_KEY);
  }
}

type SealedColumn = {
  /** Absent: sealpost. An area's may not be there. */
  readonly schema?: "workspace";
  readonly column: string;
  /** The primary key, each column with its type. */
  readonly key: Readonly<Record<string, string>>;
  /** Which of them name the text's owner, besides the account. */
  readonly owner: readonly string[];
  /** Only where this column is true. */
  readonly if?: string;
};

/** What is sealed besides the canary, by table: all of it is sealed anew with another key, or in another cell. */
export const SEALED_COLUMNS: Readonly<Record<string, SealedColumn>> = {
  signing_secrets: { column: "sealed", key: { id: "uuid" }, owner: ["id"] },
  endpoints: { column: "sealed_headers", key: { id: "uuid" }, owner: ["account_id"] },
  idempotency_keys: {
    column: "body",
    key: { account_id: "uuid", key_id: "uuid", idempotency_key: "text" },
    owner: ["key_id", "idempotency_key"],
    if: "is_sealed",
  },
  hooks: {
    schema: "workspace",
    column: "sealed_secret",
    key: { account_id: "uuid", id: "uuid" },
    owner: ["id"],
  },
};

const CANARY = { accountId: "settings", id: "secrets_canary" } as const satisfies SealedFor;
/** Sealed with the other of two keys. */
const NEXT_CANARY = { accountId: "settings", id: "secrets_canary_next" } as const satisfies SealedFor;

const CANARY_TEXT = "canary";
/** The canary's text once all else is sealed with its key: while it has this one, the rotation from it may end. */
const resealedFrom = (other: Uint8Array) => createHash("sha256").update(other).digest("base64");
/** The canary's text once somebody has begun to seal with the other key after that. */
const TURNED_TEXT = "turned";

/** In base64; the second is null without another key. */
function sealedCanaries(key: SecretsKey, other: Uint8Array | undefined, text: string) {
  const next = other === undefined ? null : seal(CANARY_TEXT, other, NEXT_CANARY).toString("base64");
  return [seal(text, key, CANARY).toString("base64"), next];
}

/** What only the right key opens, in base64. `next`: what only the other one of a rotation does; null: no other. */
export type Sealed = SealedFor & { readonly text: string; readonly next?: string | null };

/** SQL for it: the canary or, where 1.0 left no such column, the newest secret; null: nothing is sealed yet. */
export const SEALED = `coalesce(
  (select json_build_object(
      'accountId', '${CANARY.accountId}', 'id', '${CANARY.id}', 'text', canary.text, 'next', canary.next)
    from (
      select to_jsonb(s) ->> '${CANARY.id}' as text, to_jsonb(s) ->> '${NEXT_CANARY.id}' as next
      from sealpost.settings as s
    ) as canary
    where canary.text is not null),
  (select json_build_object('accountId', account_id, 'id', id, 'text', encode(sealed, 'base64'))
    from sealpost.signing_secrets order by id desc limit 1))`;

/**
 * Any key is right while nothing is sealed. Of two, either may be the canary's, and the other has to be `next`'s; where
 * there is none, no rotation has begun, or it is over: then nothing is sealed with the other one. One alone is not
 * while something may be, but to reseal: it may be all that is left.
 */
export function isOpenedBy(sealed: Sealed | null, secretsKey: SecretsKey, isResealing = false): boolean {
  if (sealed === null) return true;
  const keys = keysOf(secretsKey);
  const others = otherKeys(sealed, secretsKey);
  if (others.length === keys.length) return false;
  if (keys.length === 1 && !isResealing && textOf(sealed, secretsKey) === TURNED_TEXT) return false;
  return sealed.next == null
    ? sealed.id !== CANARY.id || !others.includes(keys[0])
    : opensAll(others, sealed.next);
}

function otherKeys(sealed: Sealed, secretsKey: SecretsKey): readonly Uint8Array[] {
  return keysOf(secretsKey).filter((key) => !opens(key, Buffer.from(sealed.text, "base64"), sealed));
}

/** Of the canary; null: it is something else. */
const textOf = (sealed: Sealed, secretsKey: SecretsKey) =>
  sealed.id === CANARY.id ? unseal(Buffer.from(sealed.text, "base64"), secretsKey, CANARY) : null;

const opensAll = (keys: readonly Uint8Array[], next: string) =>
  keys.every((key) => opens(key, Buffer.from(next, "base64"), NEXT_CANARY));

export function opens(secretsKey: SecretsKey, sealed: Uint8Array, owner: SealedFor): boolean {
  try {
    unseal(sealed, secretsKey, owner);
    return true;
  } catch {
    return false;
  }
}

/** Whether secrets of this database are sealed with this key, or there are none yet. */
export async function isSecretsKey(database: ClientBase | Pool, secretsKey: SecretsKey): Promise<boolean> {
  return isOpenedBy(await readSealed(database), secretsKey);
}

/**
 * The same, and seals the canary where it is missing; where nothing is sealed yet, only with `isStoring`. Of two with
 * different keys one waits for the other's transaction, and is not right then.
 */
export async function keepSecretsKey(
  database: ClientBase | Pool,
  secretsKey: SecretsKey,
  { isStoring, isResealing = false }: { readonly isStoring: boolean; readonly isResealing?: boolean },
): Promise<boolean> {
  const sealed = await readSealed(database);
  if (!isOpenedBy(sealed, secretsKey, isResealing)) return false;
  if (sealed === null && !isStoring) return true;
  const canaries = canariesAfterStart(sealed, secretsKey, isStoring);
  if (canaries === null) return true;
  await database.query(
    `update sealpost.settings set secrets_canary = $1, secrets_canary_next = $2
     where secrets_canary is not distinct from $3 and secrets_canary_next is not distinct from $4`,
    [...canaries, sealed?.id === CANARY.id ? sealed.text : null, sealed?.next ?? null],
  );
  return await isSecretsKey(database, secretsKey);
}

/**
 * What becomes of the canaries when somebody starts with the right key, or stores (`isStoring`); null: they stay.
 *
 * - Two keys begin a rotation. One from the same key that had been ended is as far as it was.
 * - Two of which the first is not the canary's turn it round: until all is resealed again, nobody has one alone.
 * - One key ends it, if all was resealed and nothing is stored: else it may be a process or command of before it.
 */
function canariesAfterStart(sealed: Sealed | null, secretsKey: SecretsKey, isStoring: boolean) {
  const keys = keysOf(secretsKey);
  const text = sealed && textOf(sealed, secretsKey);
  if (sealed === null || text === null) return sealedCanaries(keys[0], undefined, CANARY_TEXT);
  const [other] = otherKeys(sealed, secretsKey);
  const sealAnew = (said: string) => sealedCanaries(keys.find((key) => key !== other)!, other, said);
  const [hasBegun, isResealed] = [sealed.next != null, text !== CANARY_TEXT && text !== TURNED_TEXT];
  if (other === undefined) return hasBegun && isResealed && !isStoring ? sealAnew(text) : null;
  if (!hasBegun) return sealAnew(text === resealedFrom(other) ? text : CANARY_TEXT);
  return isResealed && keys[0] === other ? sealAnew(TURNED_TEXT) : null;
}

/**
 * From now on a process with none but the other key is refused: everything else is to be resealed before. One with both
 * in either order is not, until a process starts with the first alone. With one key alone a rotation ends at once.
 */
export async function resealCanary(database: ClientBase | Pool, secretsKey: SecretsKey): Promise<void> {
  const sealed = await readSealed(database);
  const [first, other] = keysOf(secretsKey);
  const text = sealed && textOf(sealed, secretsKey);
  if (text === null) return;
  const textAlone = text === TURNED_TEXT ? CANARY_TEXT : text;
  await database.query(
    "update sealpost.settings set secrets_canary = $1, secrets_canary_next = $2",
    sealedCanaries(first, other, other === undefined ? textAlone : resealedFrom(other)),
  );
}

/** Before a secret is stored: the database may have been away at the start. @throws SecretsKeyError for another key */
export async function requireSecretsKey(database: ClientBase | Pool, secretsKey: SecretsKey): Promise<void> {
  if (!(await keepSecretsKey(database, secretsKey, { isStoring: true }))) throw new SecretsKeyError();
}

async function readSealed(database: ClientBase | Pool): Promise<Sealed | null> {
  const { rows } = await database.query<{ sealed: Sealed | null }>(`select ${SEALED} as sealed`);
  return rows[0]!.sealed;
}
