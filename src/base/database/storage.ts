import pg, { type ClientBase, type Pool } from "pg";
import {
  LOG_BYTES_PER_ANALYSIS,
  type Quota,
  STORAGE_FULL_STATE,
  type StorageLimits,
  type StorageRefusal,
  type StorageUse,
} from "../model/storage.ts";

/** Called after migrating: they hold from then on. */
export async function writeStorageLimits(database: Pool | ClientBase, limits: StorageLimits): Promise<void> {
  await database.query(
    `insert into sealpost.storage_limits as l (kind, bytes_max)
     select * from unnest($1::text[], $2::bigint[])
     on conflict (kind) do update set bytes_max = excluded.bytes_max
     where l.bytes_max is distinct from excluded.bytes_max`,
    [Object.keys(limits), Object.values(limits)],
  );
}

/** What an account may have, as far as it is told; null: any amount. From then on, whatever it has. */
export async function writeQuotas(
  database: Pool | ClientBase,
  accountId: string,
  quotas: Readonly<Partial<Record<Quota, number | null>>>,
): Promise<void> {
  await database.query(
    `with told as (
       select * from unnest($2::text[], $3::bigint[]) as told (quota, most)
     ), lifted as (
       delete from sealpost.quotas as q using told where account_id = $1 and q.quota = told.quota and told.most is null
     )
     insert into sealpost.quotas (account_id, quota, most)
     select id, quota, told.most from told join sealpost.accounts on id = $1 where told.most is not null
     on conflict (account_id, quota) do update set most = excluded.most`,
    [accountId, Object.keys(quotas), Object.values(quotas)],
  );
}

/** What an account would have stored beyond a limit; nothing of the transaction is. Null: the error is another one. */
export function storageRefusalOf(error: unknown): StorageRefusal | null {
  if (!(error instanceof pg.DatabaseError) || error.code !== STORAGE_FULL_STATE) return null;
  return JSON.parse(error.detail ?? "");
}

/** Whose share of `analyses` the attempts of replays count towards, all of an account's together. */
export const REPLAYS_SHARE = "00000000-0000-0000-0000-000000000000";

/**
 * Before a run or a replay. Of a kind, a share may be as much as is left for all others. `share`: of `analyses`, a
 * user's id or `REPLAYS_SHARE`; null: who asks acts for no user. `bulk`: a bulk replay, and the key whose user has a
 * share of `replays`. @throws what `storageRefusalOf` knows, if there is no room for it
 */
export async function refuseBeyondStorage(
  database: Pool | ClientBase,
  accountId: string,
  share: string | null,
  bulk: { readonly items: number; readonly keyId: string | null } | null,
): Promise<void> {
  await database.query(
    `select sealpost.refuse_storage(kind, bytes_max) from sealpost.storage_limits
     cross join (select 1024 + 256 * $3::bigint) as b (bytes)
     cross join (select (select user_id from sealpost.api_keys where id = $4)) as asking (user_id)
     where kind = 'replays' and sealpost.replay_bytes($1, null) + b.bytes
         + case when user_id is null then 0 else sealpost.replay_bytes($1, user_id) + b.bytes end > bytes_max
       or kind = 'analyses' and bytes_max is not null and sealpost.published_bytes($1, null, $5)
         + case when $2::uuid is null then 0 else sealpost.published_bytes($1, $2, $5) end >= bytes_max`,
    [accountId, share, bulk?.items, bulk?.keyId, LOG_BYTES_PER_ANALYSIS],
  );
}

const COUNTED_PER_STEP = 20_000;

/** Counts what was published, and attempts up to `lagMs` ago, and finds who is full. Whether there is more to count. */
export async function countPublished(pool: Pool, lagMs: number): Promise<boolean> {
  const { rows } = await pool.query<{ is_behind: boolean }>({
    name: "count_published",
    text: "select is_behind from sealpost.count_published($1, $2, $3::float8 * interval '1 millisecond')",
    values: [COUNTED_PER_STEP, LOG_BYTES_PER_ANALYSIS, lagMs],
  });
  return rows[0]!.is_behind;
}

/** What was counted of days that are gone. */
export async function forgetStorageCounts(pool: Pool): Promise<void> {
  await pool.query(
    `with today as (
       select (now() at time zone 'UTC')::date as day, log, audit from sealpost.days_kept()
     ), old as (
       delete from sealpost.published using today where published.day <= today.day - today.log
     )
     delete from sealpost.write_bytes using today where write_bytes.day <= today.day - today.audit`,
  );
}

/** What an account stores of all that belongs to no area but the webhooks. */
export async function readStorage(pool: Pool, accountId: string) {
  const { rows } = await pool.query<StorageUse & { readonly countedAt: Date }>({
    name: "read_storage",
    text: `with counted (kind, bytes) as (
        values
          ('analyses', sealpost.published_bytes($1, null, $2)),
          ('replays', sealpost.replay_bytes($1, null)),
          ('answers', sealpost.written_bytes($1, $1, 'answers')),
          ('audit', sealpost.written_bytes($1, $1, 'audit'))
      )
      select kind, counted.bytes::float8 as bytes, bytes_max::float8 as "bytesMax",
        (select counted_at from sealpost.published_state) as "countedAt"
      from counted left join sealpost.storage_limits using (kind) order by kind`,
    values: [accountId, LOG_BYTES_PER_ANALYSIS],
  });
  const uses: readonly StorageUse[] = rows.map(({ kind, bytes, bytesMax }) => ({ kind, bytes, bytesMax }));
  return { uses, analysesCountedAt: rows[0]!.countedAt };
}
