import type { Pool } from "pg";
import type { Overflow } from "./lane.ts";

/** Frees what a claim under this token leased and nobody posted; what is known of an earlier attempt stays. */
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

export type Promotion = {
  readonly woken: number;
  /** Null: nothing was looked at, because too many wake-ups wait. */
  readonly looked: number | null;
  readonly isFull: boolean;
};

const fromParameter = (n: number) => `coalesce(to_timestamp($${n}::float8 / 1000), '-infinity')`;

/**
 * Wakes what is due and not leased; see sql/0010_delivery.sql. `at` null: the database's clock. Looked at is from the
 * `wake_at` of rows `fromMs` (ms since the epoch; null: the first) and the `run_at` of jobs `jobsFrom` on.
 */
export async function promoteDue(
  pool: Pool,
  at: Date | null,
  fromMs: number | null = null,
  jobsFrom = "-infinity",
): Promise<Promotion> {
  const { rows } = await pool.query<{ looked: number | null; woken: number }>({
    name: "promote",
    text: `select looked, woken
      from sealpost.promote(coalesce($1::timestamptz, now()), $2, $3, $4, ${fromParameter(5)}, $6::timestamptz)`,
    values: [at, ROWS_PER_STEP_MAX, LANE_PER_STEP_MAX, WAITING_JOBS_MAX, fromMs, jobsFrom],
  });
  const { looked, woken } = rows[0]!;
  return { looked, woken, isFull: looked === ROWS_PER_STEP_MAX };
}

/** What there is for the leader to do. */
export type Lead = {
  /** False: another one leads. */
  readonly leads: boolean;
  readonly isDue: boolean;
  /** Bulk replays are running, or something is held. */
  readonly isPaced: boolean;
  /** The database's clock. */
  readonly atMs: number;
};

/**
 * `holder` is the leader from now for `leaseMs`, unless another one is; asked again before it ends, it stays that.
 * @param wakeFromMs ms since the epoch; null: everything is looked at
 */
export async function lead(
  pool: Pool,
  holder: string,
  leaseMs: number,
  wakeFromMs: number | null = null,
): Promise<Lead> {
  const { rows } = await pool.query<Lead>({
    name: "lead",
    text: `select leads, is_due as "isDue", is_paced as "isPaced", extract(epoch from at)::float8 * 1000 as "atMs"
      from sealpost.lead($1, $2::float8 * interval '1 millisecond', ${fromParameter(3)})`,
    values: [holder, leaseMs, wakeFromMs],
  });
  return rows[0]!;
}

/** How often everything is looked at, for rows whose transaction took long; seldom while somebody holds a snapshot. */
const ALL_EVERY_MS = 15_000;
const ALL_SHARE_MAX = 0.01;
/** What our own transactions, and a claim beyond the row's wake_at, may take, with much to spare. */
const LATE_MS = 30_000;

/**
 * Promotes from where anything may still be due: all that was due before has been woken. A row keeps the wake_at that
 * it had when it was leased, so one whose lease runs out is older than the others by as much.
 */
export function createPromoting(
  pool: Pool,
  options: {
    readonly leaseMs: number;
    readonly jobsFrom: () => string;
    readonly onClock: (atMs: number) => void;
  },
) {
  const lateMs = options.leaseMs + LATE_MS;
  let fromMs: number | null = null;
  let allAgainAtMs = Number.NEGATIVE_INFINITY;
  /** Looking at everything took so long that it failed: nobody would lead if that were tried each time. */
  let hasFailed = false;
  let looked: { readonly fromMs: number | null; readonly atMs: number } = { fromMs, atMs: 0 };

  function done(): void {
    fromMs = looked.atMs - lateMs;
  }

  return {
    lead: async (holder: string, leaseMs: number): Promise<Lead> => {
      const startedMs = performance.now();
      const isAll = startedMs >= allAgainAtMs || (fromMs === null && !hasFailed);
      const asked = isAll ? null : (fromMs ?? Number.POSITIVE_INFINITY);
      if (isAll) hasFailed = true;
      const found = await lead(pool, holder, leaseMs, asked).finally(() => {
        const tookMs = performance.now() - startedMs;
        if (isAll) allAgainAtMs = startedMs + Math.max(ALL_EVERY_MS, tookMs / ALL_SHARE_MAX);
      });
      if (isAll) hasFailed = false;
      options.onClock(found.atMs);
      looked = { fromMs: asked, atMs: found.atMs };
      if (!found.leads) fromMs = null;
      else if (!found.isDue) done();
      return found;
    },
    promote: async (): Promise<Promotion> => {
      const promotion = await promoteDue(pool, null, looked.fromMs, options.jobsFrom());
      if (promotion.looked !== null && !promotion.isFull) done();
      return promotion;
    },
  };
}

/** A proof is looked for again for so long: it may be committed after those that are noted later. */
const PROOF_LATE_MS = 15_000;
/** What is woken comes within so many seconds: then the leader looks again. */
const WOKEN_WITHIN_SECONDS = 5;
/** Of the time, what is spent on it: hundreds of thousands of rows may be put off. */
const WAKE_PROVEN_SHARE = 0.2;

/** Wakes what was put off for receivers that were proven since the last call, or in the last five minutes. */
export function createWakingProven(pool: Pool): () => Promise<void> {
  let sinceMs: number | null = null;
  let notBeforeMs = Number.NEGATIVE_INFINITY;
  return async () => {
    const startedMs = performance.now();
    if (startedMs < notBeforeMs) return;
    const { rows } = await pool
      .query<{ isAll: boolean; atMs: number }>({
        name: "wake_proven",
        text: `select is_all as "isAll", extract(epoch from now())::float8 * 1000 as "atMs"
          from sealpost.wake_proven(
            greatest(to_timestamp($1::float8 / 1000), now() - interval '5 minutes'), $2, $3, now())`,
        values: [sinceMs, LANE_PER_STEP_MAX, WOKEN_WITHIN_SECONDS],
      })
      .finally(() => {
        const endedMs = performance.now();
        notBeforeMs = endedMs + (endedMs - startedMs) * (1 / WAKE_PROVEN_SHARE - 1);
      });
    const { isAll, atMs } = rows[0]!;
    if (isAll) sinceMs = atMs - PROOF_LATE_MS;
  };
}

/** In one step, of all lanes together. */
const TAKEN_BACK_MAX = 2_000;

export type TakenBack = {
  readonly deliveryIds: readonly string[];
  /** Where more may follow; null: that was all. */
  readonly nextFromId: string | null;
};

/** Deliveries that are due and that no dispatcher has at hand, of each lane from an id on: sql/0010_delivery.sql. */
export async function takeBackOverflow(pool: Pool, overflows: readonly Overflow[]): Promise<TakenBack[]> {
  const each = Math.ceil(TAKEN_BACK_MAX / overflows.length);
  const { rows } = await pool.query<{ number: number; ids: string[]; next_id: string | null }>({
    name: "take_let_go",
    text: "select number::integer, ids, next_id from sealpost.take_let_go($1, $2, $3, $4, now())",
    values: [
      overflows.map(({ accountId }) => accountId),
      overflows.map(({ lane }) => lane),
      overflows.map(({ fromId }) => fromId),
      overflows.map(({ room }) => Math.min(room, each)),
    ],
  });
  const byNumber = new Map(
    rows.map(({ number, ids, next_id }) => [number, { deliveryIds: ids, nextFromId: next_id }]),
  );
  // What is missing is paused.
  return overflows.map((_, index) => byNumber.get(index + 1) ?? { deliveryIds: [], nextFromId: null });
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
