import type { Pool } from "pg";

/**
 * Frees what a claim under this token leased and nobody posted, leaving no trace of an attempt. What is known of an
 * earlier one (lease_alone) stays.
 */
export async function freeLeases(
  pool: Pool,
  deliveryIds: readonly string[],
  leaseToken: string,
): Promise<void> {
  await pool.query({
    name: "free_leases",
    text: `update sealpost.open_deliveries
      set lease_token = null, lease_until = null, lease_number = null
      where delivery_id = any ($1::uuid[]) and lease_token = $2::uuid`,
    values: [`{${deliveryIds.join(",")}}`, leaseToken],
  });
}

const ROWS_PER_STEP_MAX = 10_000;
/** Wake-ups of one lane in a step: about what its dispatchers hold of it. */
const LANE_PER_STEP_MAX = 1_000;
/** Jobs of 50 ids: nothing is promoted while 10,000 wake-ups wait. */
const WAITING_JOBS_MAX = 200;
const SWEPT_JOBS_MAX = 1_000;

export type Promotion = { readonly looked: number; readonly woken: number; readonly isFull: boolean };

/** Wakes what is due and not leased; see sql/0010_delivery.sql. `at` null: the database's clock. */
export async function promoteDue(pool: Pool, at: Date | null): Promise<Promotion> {
  const { rows } = await pool.query<{ looked: number; woken: number }>({
    name: "promote",
    text: "select looked, woken from sealpost.promote(coalesce($1::timestamptz, now()), $2, $3, $4)",
    values: [at, ROWS_PER_STEP_MAX, LANE_PER_STEP_MAX, WAITING_JOBS_MAX],
  });
  const { looked, woken } = rows[0]!;
  return { looked, woken, isFull: looked === ROWS_PER_STEP_MAX };
}

const TAKEN_BACK_MAX = 1_000;

export type OverflowedDeliveries = {
  readonly accountId: string;
  readonly lane: string;
  readonly fromId: string;
  /** More are not taken. */
  readonly room: number;
};

export type TakenBack = {
  readonly deliveryIds: readonly string[];
  /** Where more may follow; null: that was all. */
  readonly nextFromId: string | null;
};

/** Deliveries of a lane, from an id on, that are due and that no dispatcher has at hand: sql/0010_delivery.sql. */
export async function takeBackOverflow(
  pool: Pool,
  { accountId, lane, fromId, room }: OverflowedDeliveries,
): Promise<TakenBack> {
  const { rows } = await pool.query<{ ids: string[]; next_id: string | null }>({
    name: "take_let_go",
    text: "select ids, next_id from sealpost.take_let_go($1, $2, $3, $4, now())",
    values: [accountId, lane, fromId, Math.min(room, TAKEN_BACK_MAX)],
  });
  const { ids, next_id } = rows[0]!;
  return { deliveryIds: ids, nextFromId: next_id };
}

const GIVEN_BACK_PER_STEP = 1_000;

/** Has the promoter's next step wake these again: the dispatcher that was to claim them has dropped them. */
export async function wakeSoon(pool: Pool, deliveryIds: readonly string[]): Promise<void> {
  for (let from = 0; from < deliveryIds.length; from += GIVEN_BACK_PER_STEP) {
    await pool.query({
      name: "wake_soon",
      text: `with mine as (
          select delivery_id from sealpost.open_deliveries
          where delivery_id = any ($1::uuid[]) and lease_token is null and wake_at > greatest(due_at, now())
          order by delivery_id
          for update skip locked
        )
        update sealpost.open_deliveries as o set wake_at = greatest(o.due_at, now())
        from mine where o.delivery_id = mine.delivery_id`,
      values: [deliveryIds.slice(from, from + GIVEN_BACK_PER_STEP)],
    });
  }
}

/** Deletes wake-ups that a dead worker has locked for over 5 minutes. Returns how many. */
export async function sweepStuckJobs(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ swept: number }>({
    name: "sweep_jobs",
    text: "select sealpost.sweep_jobs(now(), $1) as swept",
    values: [SWEPT_JOBS_MAX],
  });
  return rows[0]!.swept;
}

const LEAD = `
insert into sealpost.leader as l (holder, until) values ($1, now() + $2::float8 * interval '1 millisecond')
on conflict (only_row) do update set holder = excluded.holder, until = excluded.until
where l.holder = excluded.holder or l.until < now()
returning true as leads`;

/** True when `holder` is the leader from now for `leaseMs`; asked again before it ends, it stays the leader. */
export async function lead(pool: Pool, holder: string, leaseMs: number): Promise<boolean> {
  const { rowCount } = await pool.query({ name: "lead", text: LEAD, values: [holder, leaseMs] });
  return rowCount === 1;
}
