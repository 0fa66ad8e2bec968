import type { ClientBase, Pool } from "pg";
import { notErased } from "../../base/database/account-rows.ts";
import { DAY_MS } from "../../base/model/time.ts";
import { accountsBehind } from "./lists.ts";
import { rowsOf } from "./statements.ts";

/** How long whoever reserves a key may take to bring it to a document. */
export const RESERVED_MS = DAY_MS;
/**
 * How long an object is kept at least that no document has any more: whoever has just read its key finds it, and a
 * put that was given up has ended.
 */
export const KEPT_MS = 300_000;
/** Who removes objects has this long; then somebody else does, too. */
const REMOVED_WITHIN_MS = 300_000;

/** `userId`: in whose share of what the account stores they are; null: in nobody's. */
type KeysOwner = { readonly accountId: string; readonly userId: string | null };

/**
 * Before anything is stored under these keys. `bytes`: of each, which count towards the account's documents, and the
 * space's; 0 for copies, whose documents count already. Returns those that are reserved: none once the account is
 * erased, as its erasure may have looked through them already.
 */
export const reserveKeys = rowsOf<
  { readonly storageKey: string },
  KeysOwner,
  [keys: readonly string[], bytes: number, spaceId: string | null]
>(
  `insert into workspace.loose_objects (account_id, user_id, storage_key, bytes, space_id, is_reserved, remove_at)
   select $1, $2, key, $4, $5, true, now() + ${RESERVED_MS} * interval '1 millisecond'
   from unnest($3::text[]) as key where ${notErased("$1")}
   returning storage_key as "storageKey"`,
);

/** Of these keys those that documents can be given in this transaction: the others were released. */
export const takeReserved = rowsOf<
  { readonly storageKey: string },
  string,
  [keys: readonly string[]],
  ClientBase
>(
  `delete from workspace.loose_objects
   where account_id = $1 and storage_key = any ($2::text[]) and is_reserved returning storage_key as "storageKey"`,
);

export type ReleasedKeys = {
  readonly keys: readonly string[];
  /** Of each that was not reserved, in their order; absent: they were. */
  readonly bytes?: readonly number[];
  /** Absent: for as long as readers may need it. */
  readonly keptMs?: number;
};

/**
 * Nobody brings these keys to a document any more; what is there is removed when its time is over. An erased account's
 * were released by its erasure.
 */
export async function releaseKeys(
  database: Pool | ClientBase,
  { accountId, userId }: KeysOwner,
  { keys, bytes = keys.map(() => 0), keptMs = 0 }: ReleasedKeys,
): Promise<void> {
  await database.query(
    `insert into workspace.loose_objects (account_id, storage_key, is_reserved, remove_at, bytes, user_id)
     select $1, key, false, now() + $3::float8 * interval '1 millisecond', bytes, $5
     from unnest($2::text[], $4::bigint[]) as released (key, bytes) where ${notErased("$1")}
     on conflict (account_id, storage_key) do update set is_reserved = false, remove_at = excluded.remove_at`,
    [accountId, keys, Math.max(keptMs, KEPT_MS), bytes, userId],
  );
}

type LooseObject = {
  readonly accountId: string;
  readonly storageKey: string;
  /** Somebody may still store something there, too late for it to count. */
  readonly wasReserved: boolean;
};

/** The next accounts behind this one that have some whose time is over. */
const readAccountsWithLoose = rowsOf<{ readonly accountId: string }, string, [countMax: number]>(
  `with recursive ${accountsBehind("$1::uuid", "workspace.loose_objects")}
   select accounts.account_id as "accountId" from accounts cross join lateral (
     select from workspace.loose_objects as l
     where l.account_id = accounts.account_id and l.remove_at <= now() limit 1
   ) as due
   limit $2`,
  "loose_accounts",
);

const claimOfAccount = rowsOf<LooseObject, string, [countMax: number]>(
  `with due as (
     select account_id, storage_key, is_reserved from workspace.loose_objects
     where account_id = $1 and remove_at <= now() order by remove_at limit $2 for update skip locked
   )
   update workspace.loose_objects as l
   set is_reserved = false, remove_at = now() + ${REMOVED_WITHIN_MS} * interval '1 millisecond'
   from due where l.account_id = due.account_id and l.storage_key = due.storage_key
   returning l.account_id as "accountId", l.storage_key as "storageKey", due.is_reserved as "wasReserved"`,
  "claim_loose",
);

/**
 * Those whose time is over, of the next accounts behind this one: accounts take turns, however much each has left
 * behind. From now on no document can be given their keys. Empty: no account behind this one has any. Each account's
 * are claimed by themselves, so that one whose counts are wrong stops nobody else's.
 * @throws what is wrong, once there is nothing but that
 */
export async function claimLoose(
  pool: Pool,
  afterAccountId: string,
  countMax: number,
): Promise<readonly LooseObject[]> {
  const claimed: LooseObject[] = [];
  const errors: unknown[] = [];
  for (const { accountId } of await readAccountsWithLoose(pool, afterAccountId, countMax)) {
    if (claimed.length === countMax) break;
    try {
      claimed.push(...(await claimOfAccount(pool, accountId, countMax - claimed.length)));
    } catch (error) {
      errors.push(error);
    }
  }
  if (claimed.length === 0 && errors.length > 0) throw errors[0];
  return claimed;
}

/** The object was removed. One that was reserved until now is looked at once more. */
export async function forgetLoose(
  pool: Pool,
  { accountId, storageKey, wasReserved }: LooseObject,
): Promise<void> {
  const again = `update workspace.loose_objects set remove_at = now() + ${RESERVED_MS} * interval '1 millisecond'`;
  const statement = wasReserved ? again : "delete from workspace.loose_objects";
  await pool.query(`${statement} where account_id = $1 and storage_key = $2`, [accountId, storageKey]);
}
