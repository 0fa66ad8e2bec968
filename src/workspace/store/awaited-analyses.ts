import type { ClientBase, Pool } from "pg";
import { inTransaction } from "../../store/transaction.ts";
import type { ClaimedStep } from "./steps.ts";

/** Of an account's feed, at a time. */
const EVENTS_PER_READ = 1_000;

/**
 * From now on the node run is woken by its analysis, and at once if that is there already. Its run is locked, and its
 * wait recorded.
 */
export async function awaitAnalysis(
  tx: ClientBase,
  { accountId, runId, sequence }: ClaimedStep,
  analysisId: string,
): Promise<void> {
  await tx.query(
    `insert into workspace.feed_readers (account_id, position)
     select $1, position from sealpost.feed_steps order by step desc limit 1
     on conflict (account_id) do update set account_id = excluded.account_id`,
    [accountId],
  );
  // A statement of its own, which sees all that the reader before it can have seen.
  await tx.query(
    `update workspace.node_runs set is_ready = true, next_at = now()
     where account_id = $1 and run_id = $2 and sequence = $3
       and exists (select from sealpost.analyses where account_id = $1 and id = $4)`,
    [accountId, runId, sequence, analysisId],
  );
}

/** Reads the feeds of accounts on: who waits for what was published goes on. */
export async function wakeAwaiting(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ account_id: string }>({
    name: "readers_with_news",
    text: `
      select account_id from workspace.feed_readers as reader
      where (
          select position from sealpost.feed
          where account_id = reader.account_id and position > reader.position order by position limit 1
        ) is not null
        or not exists (
          select from workspace.node_runs
          where account_id = reader.account_id and awaited_analysis_id is not null
        )`,
  });
  for (const { account_id } of rows) {
    while (await inTransaction(pool, (tx) => readOn(tx, account_id)));
  }
}

/** Returns whether there may be more to read. */
async function readOn(tx: ClientBase, accountId: string): Promise<boolean> {
  const { rows } = await tx.query<{ position: string }>({
    name: "lock_feed_reader",
    // Who has it is reading on, or has just begun to wait.
    text: "select position from workspace.feed_readers where account_id = $1 for update skip locked",
    values: [accountId],
  });
  const [reader] = rows;
  if (reader === undefined) return false;
  const read = await tx.query<{ events: number }>({
    name: "wake_awaiting",
    // Whoever holds a node run, or has its lease, looks for the analysis itself before it waits again.
    text: `
      with published as (
        select position, delivery_id from sealpost.feed
        where account_id = $1 and position > $2 order by position limit ${EVENTS_PER_READ}
      ), woken as (
        select n.account_id, n.run_id, n.sequence
        from published
        cross join lateral (
          select analysis_id from sealpost.deliveries where account_id = $1 and id = published.delivery_id limit 1
        ) as d
        join workspace.node_runs as n on n.account_id = $1 and n.awaited_analysis_id = d.analysis_id
        where n.lease_token is null for no key update of n skip locked
      ), made_ready as (
        update workspace.node_runs as n set is_ready = true, next_at = now()
        from woken where (n.account_id, n.run_id, n.sequence) = (woken.account_id, woken.run_id, woken.sequence)
      )
      update workspace.feed_readers
      set position = greatest(position, (select max(position) from published))
      where account_id = $1 returning (select count(*) from published)::integer as events`,
    values: [accountId, reader.position],
  });
  await tx.query({
    name: "end_feed_reader",
    text: `
      delete from workspace.feed_readers
      where account_id = $1 and not exists (
        select from workspace.node_runs where account_id = $1 and awaited_analysis_id is not null)`,
    values: [accountId],
  });
  return read.rows[0]!.events === EVENTS_PER_READ;
}
