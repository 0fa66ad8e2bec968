import type { Pool } from "pg";
import type { LaneKey } from "./lane.ts";

/** Of one account; more receivers than that are tried like new ones after a restart. */
const LANES_PER_ACCOUNT_MAX = 10_000;
/** A receiver that has not answered for so long is tried like a new one. */
const REMEMBERED_DAYS = 30;
const FORGOTTEN_PER_STEP = 10_000;

/** Those of the lanes whose receiver has answered at some time. */
export async function findAnsweredLanes(pool: Pool, lanes: readonly LaneKey[]): Promise<readonly LaneKey[]> {
  const { rows } = await pool.query<LaneKey>({
    name: "find_answered_lanes",
    text: `select a.account_id as "accountId", a.lane
      from unnest($1::uuid[], $2::bigint[]) as asked (account_id, lane)
      join sealpost.answered_lanes as a
        on a.account_id = any (array[asked.account_id]) and a.lane = any (array[asked.lane])`,
    values: arraysOf(lanes),
  });
  return rows;
}

/** Remembers that these receivers have answered. Written in one order by everybody, so that nobody deadlocks. */
export async function rememberAnsweredLanes(pool: Pool, lanes: readonly LaneKey[]): Promise<void> {
  await pool.query({
    name: "remember_answered_lanes",
    text: `insert into sealpost.answered_lanes (account_id, lane)
      select distinct account_id, lane from unnest($1::uuid[], $2::bigint[]) as answered (account_id, lane)
      order by account_id, lane
      on conflict (account_id, lane) do update set answered_at = excluded.answered_at
      where answered_lanes.answered_at < excluded.answered_at - interval '1 day'`,
    values: arraysOf(lanes),
  });
}

/** Returns how many were forgotten: those of long ago, and an account's oldest beyond what is kept of one. */
export async function forgetAnsweredLanes(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ forgotten: number }>(
    "select sealpost.forget_answered_lanes($1 * interval '1 day', $2, $3) as forgotten",
    [REMEMBERED_DAYS, LANES_PER_ACCOUNT_MAX, FORGOTTEN_PER_STEP],
  );
  return rows[0]!.forgotten;
}

function arraysOf(lanes: readonly LaneKey[]): [string[], string[]] {
  return [lanes.map(({ accountId }) => accountId), lanes.map(({ lane }) => lane)];
}
