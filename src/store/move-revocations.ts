import type { Pool } from "pg";

/** When keys were revoked, by their ids, as PostgreSQL writes it. */
export type Revocations = ReadonlyMap<string, string>;

export async function readRevocations(pool: Pool, accountId: string): Promise<Revocations> {
  const { rows } = await pool.query<{ id: string; at: string }>(
    "select id, revoked_at::text as at from sealpost.api_keys where account_id = $1 and revoked_at is not null",
    [accountId],
  );
  return new Map(rows.map(({ id, at }) => [id, at]));
}

/** Revokes here, too, what was revoked in the other database. */
export async function addRevocations(pool: Pool, accountId: string, revocations: Revocations): Promise<void> {
  if (revocations.size === 0) return;
  await pool.query(
    `update sealpost.api_keys as k set revoked_at = r.at
     from unnest($2::uuid[], $3::timestamptz[]) as r (id, at)
     where k.account_id = $1 and k.id = r.id and k.revoked_at is null`,
    [accountId, [...revocations.keys()], [...revocations.values()]],
  );
}
