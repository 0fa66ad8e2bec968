import type { ClientBase, Pool } from "pg";

/** Deliveries of all bulk replays that a step of the leader starts: 1,000 a second. */
export const REPLAY_STEP_MAX = 200;

/** One paced step of all running replays, at most `itemsMax` deliveries; how many had their turn. `at` null: now. */
export async function advanceReplays(
  database: Pool | ClientBase,
  analysisRetentionMs: number,
  at: Date | null,
  itemsMax = 1_000,
): Promise<number> {
  const { rows } = await database.query<{ taken: number }>({
    name: "advance_replays",
    text: `select sealpost.advance_replays(
      $1::float8 * interval '1 millisecond', coalesce($2::timestamptz, now()), $3) as taken`,
    values: [analysisRetentionMs, at, itemsMax],
  });
  // Apart: a count of 100,000 that takes too long must not take the step along, for it would the next one, too.
  await countReplays(database, at);
  return rows[0]!.taken;
}

/** Replays of one account that a step counts; those behind them come due at that pace by the second. */
const COUNTED_OF_ACCOUNT_MAX = 10;
/** Deliveries that a step counts, but for those of its last replay: a tenth of a second. */
const COUNTED_IN_STEP_MAX = 20_000;
/** What a replay costs however few it has: as many as 200 deliveries. */
const COST_OF_REPLAY = 200;
/** Of those whose turn it is, the first so many are looked at. */
const DUE_LOOKED_AT_MAX = 1_000;

/**
 * Counts replays for the list, and ends those that had nothing but that to wait for. Accounts take turns. What one has
 * due beyond its share is due later, in the same order: where it stayed first in the queue of all, an account with
 * thousands would be all that is looked at.
 *
 * The older or larger a replay, the more seldom it is counted: never sooner than a millisecond for each of its items,
 * some 200 times what counting takes, or one that is delivering would be done long before it said so. Their turns are
 * committed before, and the largest comes last: one that cannot be counted in time lets the others have theirs.
 */
async function countReplays(database: Pool | ClientBase, at: Date | null): Promise<void> {
  const { rows } = await database.query<{ id: string }>({
    name: "take_replays_to_count",
    text: `with due as (
        select id, account_id, replayed, count_at from sealpost.replays
        where count_at <= coalesce($1::timestamptz, now())
        order by count_at, id limit ${DUE_LOOKED_AT_MAX} for update skip locked
      ), queued as (
        select *, row_number() over (partition by account_id order by count_at, id) as nth from due
      ), turns as (
        select id, nth - ${COUNTED_OF_ACCOUNT_MAX} as behind, coalesce(sum(replayed + ${COST_OF_REPLAY}) over (
          order by nth, count_at, id rows between unbounded preceding and 1 preceding), 0) as cost_before
        from queued
      ), taken as (
        update sealpost.replays as r
        set count_at = now.at + case when behind > 0 then behind * interval '0.1 seconds' else greatest(
          interval '5 seconds',
          least((now.at - created_at) / 10, case when status = 'delivering' then interval '1 minute' end),
          replayed * interval '1 millisecond') end
        from turns, (select coalesce($1::timestamptz, now()) as at) as now
        where r.id = turns.id and (behind > 0 or cost_before < ${COUNTED_IN_STEP_MAX})
        returning r.id, r.replayed, behind
      )
      select id from taken where behind <= 0 order by replayed, id`,
    values: [at],
  });
  for (const { id } of rows) {
    await database.query({
      name: "store_count_of_replay",
      text: "select sealpost.store_count_of_replay($1, coalesce($2::timestamptz, now()))",
      values: [id, at],
    });
  }
}
