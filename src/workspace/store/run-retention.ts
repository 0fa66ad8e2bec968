import type { Pool } from "pg";

/** Rows that go in one statement, or one run's, which has as many items at most. */
const ITEMS_PER_STATEMENT = 20_000;
const RUNS_PER_STATEMENT = 100;

/**
 * Removes runs that ended longer ago than this, with all that they have handed on, the oldest first. False: there are
 * no more of them.
 */
export async function removeEndedRuns(pool: Pool, retentionMs: number): Promise<boolean> {
  const { rowCount } = await pool.query(
    `with old as (
       select account_id, id, sum(item_count) over (order by completed_at, account_id, id) - item_count as before
       from (
         select account_id, id, item_count, completed_at from workspace.runs
         where completed_at < now() - $1::float8 * interval '1 millisecond'
         order by completed_at limit ${RUNS_PER_STATEMENT} for no key update skip locked
       ) as oldest
     )
     delete from workspace.runs as r using old
     where r.account_id = old.account_id and r.id = old.id and old.before < ${ITEMS_PER_STATEMENT}`,
    [retentionMs],
  );
  return rowCount !== 0;
}
