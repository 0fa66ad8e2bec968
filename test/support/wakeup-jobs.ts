import type { Pool } from "pg";

// The graphile-worker jobs that tests read or change. In src/, only base/database/graphile-worker.ts knows its private
// tables; its canary test fails if an upgrade changes them.

/** Every job in the queue, locked or not. */
export async function countJobs(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ n: number }>(
    "select count(*)::integer as n from graphile_worker._private_jobs",
  );
  return rows[0]!.n;
}

/** Takes all waiting wake-ups from the queue, as a dispatcher would. */
export async function takeWakeups(pool: Pool): Promise<{ ids: string[]; jobs: number }> {
  const { rows } = await pool.query<{ payload: { ids: string[] } }>(
    "delete from graphile_worker._private_jobs returning payload",
  );
  return { ids: rows.flatMap((row) => row.payload.ids), jobs: rows.length };
}

/** Locks them as a worker that took them that long ago. `jobIds` null: all jobs. */
export async function lockJobs(
  pool: Pool,
  ago = "0 seconds",
  jobIds: readonly string[] | null = null,
): Promise<void> {
  await pool.query(
    `update graphile_worker._private_jobs set locked_by = 'w', locked_at = now() - $1::interval
     where $2::bigint[] is null or id = any ($2)`,
    [ago, jobIds],
  );
}

/** The ids of all jobs, oldest first. */
export async function jobIds(pool: Pool): Promise<readonly string[]> {
  const { rows } = await pool.query<{ id: string }>(
    "select id from graphile_worker._private_jobs order by id",
  );
  return rows.map(({ id }) => id);
}

/** The payload of the newest job. */
export async function newestPayload(pool: Pool): Promise<unknown> {
  const { rows } = await pool.query<{ payload: unknown }>(
    "select payload from graphile_worker._private_jobs order by id desc limit 1",
  );
  return rows[0]?.payload;
}

/** Jobs of a task without a payload; as `deliver`, wake-ups for no delivery. */
export async function addJobs(pool: Pool, task: string, count = 1): Promise<void> {
  await pool.query("select graphile_worker.add_job($1) from generate_series(1, $2::integer)", [task, count]);
}
