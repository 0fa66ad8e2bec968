import type { ClientBase } from "pg";

const ROWS_PER_STEP_MAX = 10_000;
/** Wake-ups that one lane gets in a step: about what its dispatchers remember of it. */
const LANE_PER_STEP_MAX = 1_000;
/** Jobs of 50 ids: nothing is promoted while 10,000 wake-ups wait. */
const WAITING_JOBS_MAX = 200;
const SWEPT_JOBS_MAX = 1_000;

export type Promotion = { readonly looked: number; readonly woken: number; readonly isFull: boolean };

/** Wakes what is due and has nobody at it; see sql/0006_promote.sql. `at` null: the database's clock. */
export async function promoteDue(client: ClientBase, at: Date | null): Promise<Promotion> {
  const { rows } = await client.query<{ looked: number; woken: number }>({
    name: "promote",
    text: "select looked, woken from sealpost.promote(coalesce($1::timestamptz, now()), $2, $3, $4)",
    values: [at, ROWS_PER_STEP_MAX, LANE_PER_STEP_MAX, WAITING_JOBS_MAX],
  });
  const { looked, woken } = rows[0]!;
  return { looked, woken, isFull: looked === ROWS_PER_STEP_MAX };
}

/** Deletes wake-ups that a dead worker has locked for over 5 minutes. Returns how many. */
export async function sweepStuckJobs(client: ClientBase): Promise<number> {
  const { rows } = await client.query<{ swept: number }>({
    name: "sweep_jobs",
    text: "select sealpost.sweep_jobs(now(), $1) as swept",
    values: [SWEPT_JOBS_MAX],
  });
  return rows[0]!.swept;
}

/** Any constant: the advisory lock whose holder is the leader (promoter, sweeper, partitions). */
const LEADER_LOCK = 7_365_706_001;

/** True when this session is the leader now; it stays so until the session ends. */
export async function tryToLead(client: ClientBase): Promise<boolean> {
  const { rows } = await client.query<{ leads: boolean }>({
    text: "select pg_try_advisory_lock($1::bigint) as leads",
    values: [LEADER_LOCK],
  });
  return rows[0]!.leads;
}
