import type { Pool } from "pg";

/** Counted by five minutes for so long, and by hours after that. */
const FINE_ACTIVITY_MS = 48 * 3_600_000;
/** How much time a step counts at most: at a thousand attempts a second it takes a second. */
const SPAN_PER_STEP_MS = 5 * 60_000;
const LATE_PER_STEP_MAX = 10_000;
const ACCOUNTS_FOLDED_PER_STEP_MAX = 1_000;

export type ActivityStep = {
  /** All that ended before is counted; null: another leader is at it. */
  readonly countedTo: Date | null;
  /** There is more to count. */
  readonly isBehind: boolean;
};

/**
 * Adds attempts that ended up to `lagMs` ago to the activity of their accounts: see sql/0030_activity.sql. The lag has
 * to be longer than writing an attempt may take, and 5 s.
 */
export async function countActivity(pool: Pool, lagMs: number): Promise<ActivityStep> {
  const { rows } = await pool.query<{ counted_to: Date | null; is_behind: boolean }>({
    name: "count_activity",
    text: `select counted_to, is_behind from sealpost.count_activity(
      $1::float8 * interval '1 millisecond', $2::float8 * interval '1 millisecond', $3)`,
    values: [lagMs, SPAN_PER_STEP_MS, LATE_PER_STEP_MAX],
  });
  const { counted_to, is_behind } = rows[0]!;
  return { countedTo: counted_to, isBehind: is_behind };
}

/** Makes hours of old five minutes, a step of them. Whether there was something to do. */
export async function foldActivity(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ folded: boolean }>({
    name: "fold_activity",
    text: "select sealpost.fold_activity($1::float8 * interval '1 millisecond', $2) as folded",
    values: [FINE_ACTIVITY_MS, ACCOUNTS_FOLDED_PER_STEP_MAX],
  });
  return rows[0]!.folded;
}

/** Forgets activity older than the retention, at most `rowsMax` rows. Returns how many. */
export async function forgetActivity(pool: Pool, retentionMs: number, rowsMax: number): Promise<number> {
  const { rowCount } = await pool.query(
    `delete from sealpost.activity where ctid = any (array(
       select ctid from sealpost.activity where bucket < now() - $1::float8 * interval '1 millisecond' limit $2))`,
    [retentionMs, rowsMax],
  );
  return rowCount ?? 0;
}
