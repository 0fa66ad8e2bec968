import type { ClientBase, Pool } from "pg";
import { inTransaction, UNPRUNED } from "../../base/database/transaction.ts";
import type { Reader } from "../../base/model/reader.ts";
import { allows, type SpaceRole } from "../model/roles.ts";
import { dropItems } from "./node-runs.ts";
import { cancelRun, forgetInput, lockRun } from "./runs.ts";
import { type ClaimedStep, change, lockOf, rowOf, type SpaceUser } from "./statements.ts";
import { isInstalled } from "./storage.ts";

/** Of an account's feed, at a time: accounts take turns. */
const EVENTS_PER_READ = 1_000;
/** Planner methods that would read more than an index has to; the last as of UNPRUNED. */
const METHODS_OFF = ["seqscan", "bitmapscan", "sort", "partition_pruning"];

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

/**
 * Null: none of the account's node runs waits for an analysis. One that was ended by a version that knows of none has
 * kept its id. By its order the index alone is read.
 */
function firstAwaited(accountId: string): string {
  return `(
    select awaited_analysis_id from workspace.node_runs
    where account_id = ${accountId} and status = 'WAITING' and awaited_analysis_id is not null
    order by awaited_analysis_id limit 1
  )`;
}

/** Accounts whose feeds are to be read on. */
export async function findReaders(pool: Pool): Promise<readonly string[]> {
  const { rows } = await pool.query<{ account_id: string }>({
    name: "readers_with_news",
    // With an upper bound, so that partitions of days to come are not opened.
    text: `
      select account_id from workspace.feed_readers as reader
      where (
          select position from sealpost.feed
          where account_id = reader.account_id and position > reader.position
            and position <= (select position from sealpost.feed_steps order by step desc limit 1)
          order by position limit 1
        ) is not null
        or ${firstAwaited("reader.account_id")} is null`,
  });
  return rows.map((row) => row.account_id);
}

/** Whoever holds it is reading on, or has just begun to wait. What follows uses indexes, with any statistics. */
const lockReader = lockOf<{ readonly position: string }, string, []>(
  `select position, ${METHODS_OFF.map((method) => `set_config('enable_${method}', 'off', true)`).join(", ")}
   from workspace.feed_readers where account_id = $1 for update skip locked`,
  "lock_feed_reader",
);

/**
 * Whoever holds a node run, or has its lease, looks for the analysis itself before it waits again. The ids are an
 * array: in a join that was planned for few node runs, they were read again for each that waits.
 */
const wake = rowOf<{ readonly events: number }, string, [after: string]>(
  `with published as (
     select position, delivery_id from sealpost.feed
     where account_id = $1 and position > $2 order by position limit ${EVENTS_PER_READ}
   ), woken as (
     select account_id, run_id, sequence from workspace.node_runs
     where account_id = $1 and status = 'WAITING' and lease_token is null
       and awaited_analysis_id = any (array(
         select (select analysis_id from sealpost.deliveries where account_id = $1 and id = delivery_id limit 1)
         from published
       ))
     for no key update skip locked
   ), made_ready as (
     update workspace.node_runs as n set is_ready = true, next_at = now()
     from woken where (n.account_id, n.run_id, n.sequence) = (woken.account_id, woken.run_id, woken.sequence)
   )
   update workspace.feed_readers
   set position = greatest(position, (select max(position) from published))
   where account_id = $1 returning (select count(*) from published)::integer as events`,
  "wake_awaiting",
);

const endReading = change<string, []>(
  `delete from workspace.feed_readers where account_id = $1 and ${firstAwaited("$1")} is null`,
  "end_feed_reader",
);

/** Reads an account's feed on: who waits for what was published goes on. Returns whether there may be more to read. */
export async function wakeAwaiting(pool: Pool, accountId: string): Promise<boolean> {
  return await inTransaction(pool, async (tx) => {
    const reader = await lockReader(tx, accountId);
    if (reader === null) return false;
    const read = await wake(tx, accountId, reader.position);
    await endReading(tx, accountId);
    return read!.events === EVENTS_PER_READ;
  });
}

const UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
/** A run's own analysis, or one that it waits for. */
const ID_OF_RUN = new RegExp(`^(${UUID})(?::(${UUID}))?$`, "i");

/** SQL: from the node run `n` of the run `r` that waits for the analysis with this id, or has waited. */
const awaitingOf = (nodeRunId: string) => `
  from workspace.node_runs as n join workspace.workflow_versions as v
    on v.account_id = r.account_id and v.workflow_id = r.workflow_id and v.version = r.version
  where n.account_id = r.account_id and n.run_id = r.id and n.id = ${nodeRunId} and jsonb_path_exists(v.definition,
    '$.nodes[*] ? (@.id == $id && @.kind == "external_analysis")', jsonb_build_object('id', n.node_id))`;

/** SQL: the space of a run's own analysis, which is known longer than the run. */
const spaceOf = (accountId: string, runId: string) => `(
  select space_id from sealpost.deliveries where account_id = ${accountId} and id = (
    select delivery_id from sealpost.analyses where account_id = ${accountId} and id = ${runId}::text) limit 1)`;

/**
 * Publishes in one transaction with a look at which of these ids are not their users' to publish under; without one
 * where no run can be called so. A run's own id is no user's, and what a run waits for, and nothing else under its id,
 * is for those who may run workflows in its space, which they may then until the end of the transaction. Nobody knows a
 * run's id before it is seen here. @throws what is in the way, if a role is being changed for longer than `lockWaitMs`
 */
export async function guardPublishing<T>(
  pool: Pool,
  asked: readonly { accountId: string; userId: string | null; analysisId: string }[],
  lockWaitMs: number,
  publish: (database: Pool | ClientBase, refused: ReadonlySet<number>) => Promise<T>,
): Promise<T> {
  const looked = asked.flatMap(({ accountId, userId, analysisId }, index) => {
    const [, runId, nodeRunId] = ID_OF_RUN.exec(analysisId) ?? [];
    return userId === null || runId === undefined ? [] : [{ index, accountId, userId, runId, nodeRunId }];
  });
  if (looked.length === 0 || !(await isInstalled(pool))) return await publish(pool, new Set());
  const guard = async (tx: ClientBase) => {
    const { rows } = await tx.query<{ index: number; role: SpaceRole | null }>(
      `select asked.index, case when exists (select ${awaitingOf('asked."nodeRunId"')}) then (
         select role from workspace.space_members as m
         where m.account_id = asked."accountId" and m.user_id = asked."userId" and m.space_id = r.space_id
         for share) end as role
       from json_to_recordset($1)
         as asked (index integer, "accountId" uuid, "userId" uuid, "runId" uuid, "nodeRunId" uuid)
       cross join (select set_config('lock_timeout', $2, true)) as bounded
       left join lateral (
         select * from workspace.runs where account_id = asked."accountId" and id = asked."runId" limit 1
       ) as r on true
       where r.id is not null or ${spaceOf('asked."accountId"', 'asked."runId"')} is not null`,
      [JSON.stringify(looked), String(lockWaitMs)],
    );
    const refused = rows.filter(({ role }) => role === null || !allows(role, "run_workflows"));
    return await publish(tx, new Set(refused.map(({ index }) => index)));
  };
  return await inTransaction(pool, guard, UNPRUNED);
}

/**
 * Erases what the run has handed on whose analysis this is, or that was given it, what went wrong in words, and what it
 * was given if it has succeeded. What only has an id like one of these takes nothing along; but who asks by a run's own
 * id means the run, which keeps no input if it has published nothing. A run that goes on is cancelled, unless an
 * endpoint forgets: then, and where the user may not delete, it is null. After a restore, one that the id names would
 * work again with what was erased, perhaps at a node that it comes to under another id: it is cancelled, too, and keeps
 * no input. Returns what the run has made of it: its own analysis, which stays when the run is deleted for good, and
 * then goes on request alone; or of the run's own, if asked by it, itself and the analyses that the run was given: only
 * the run knows them. Those are not forgotten with it: each would have the other forgotten again, without end.
 */
export async function eraseFromRuns(
  tx: ClientBase,
  accountId: string,
  analysisId: string,
  by: { readonly userId: string | null } | "reapplying" | "forgetting",
): Promise<readonly string[] | null> {
  const [, runId, nodeRunId] = ID_OF_RUN.exec(analysisId) ?? [];
  // In capitals it is nobody's: what publishing refuses users is another analysis all the same.
  if (runId === undefined || analysisId !== analysisId.toLowerCase() || !(await isInstalled(tx))) return [];
  const run = await lockRun(tx, accountId, runId);
  const { spaceId, given, isOfRun } = (await findOfRun(tx, accountId, runId, nodeRunId))!;
  if (spaceId === null) return [];
  if (typeof by === "object" && by.userId !== null) {
    const role = await holdRole(tx, { accountId, userId: by.userId }, spaceId);
    if (role === null || !allows(role.role, "delete")) return null;
  }
  const isToCome = by === "reapplying" && run?.isUnfinished === true;
  const isNamed = run !== null && nodeRunId === undefined && by !== "forgetting";
  if (run === null ? by === "forgetting" : !isOfRun && !isToCome && !isNamed) return [];
  if (by === "forgetting" && run?.isUnfinished) return null;
  await cancelRun(tx, accountId, runId);
  await dropItems(tx, accountId, runId);
  await forgetErrors(tx, accountId, runId);
  await forgetInput(tx, accountId, runId, isToCome || (isNamed && !isOfRun));
  if (nodeRunId !== undefined) return [runId];
  return isNamed ? [runId, ...given] : [];
}

/** Whether a run that the reader sees has this id, whatever it has published. Waits for no lock. */
export async function seesRun(
  database: ClientBase | Pool,
  { accountId, spaceIds }: Reader,
  id: string,
): Promise<boolean> {
  if (ID_OF_RUN.exec(id.toLowerCase())?.[1] !== id || !(await isInstalled(database))) return false;
  const { rowCount } = await database.query(
    "select from workspace.runs where account_id = $1 and id = $2 and ($3::uuid[] is null or space_id = any ($3))",
    [accountId, id, spaceIds],
  );
  return rowCount === 1;
}

/** The ids of those that are a run's, or were given to one: only a run that is there has anything to forget. */
export async function idsOfRuns(
  database: ClientBase | Pool,
  those: readonly { readonly accountId: string; readonly analysisId: string }[],
): Promise<ReadonlySet<string>> {
  const asked = those.filter(({ analysisId }) => ID_OF_RUN.test(analysisId));
  if (asked.length === 0 || !(await isInstalled(database))) return new Set();
  const { rows } = await database.query<{ id: string }>(
    `select given.id from unnest($1::uuid[], $2::text[]) as given (account_id, id)
     join workspace.runs as r
       on r.account_id = any (array[given.account_id]) and r.id = any (array[left(given.id, 36)::uuid])`,
    [asked.map(({ accountId }) => accountId), asked.map(({ analysisId }) => analysisId)],
  );
  return new Set(rows.map(({ id }) => id));
}

type OfRun = {
  readonly spaceId: string | null;
  /** What the run was given, or may be given now, under this id; or whatever its nodes have waited for. */
  readonly given: readonly string[];
  readonly isOfRun: boolean;
};

/** Of a run that is deleted, its analysis knows the space. Null: nothing is, or was, a run of this id. */
const findOfRun = rowOf<OfRun, string, [runId: string, nodeRunId: string | undefined]>(
  `select coalesce(r.space_id, ${spaceOf("$1", "$2::uuid")}) as "spaceId", given,
     case when $3::uuid is null then r.delivery_id is not null else given <> '{}' end as "isOfRun"
   from (select) as one left join workspace.runs as r on r.account_id = $1 and r.id = $2
   cross join lateral (select array(
     select r.id || ':' || n.id ${awaitingOf("coalesce($3, n.id)")} and (
       $3 is null or n.completed_at is null or n.status = 'SUCCEEDED' or n.error_code = 'external_analysis_failed')
   ) as given) as of_run`,
);

const holdRole = lockOf<{ readonly role: SpaceRole }, SpaceUser, [spaceId: string]>(
  "select role from workspace.space_members where account_id = $1 and user_id = $2 and space_id = $3 for share",
);

/** Their codes stay. */
const forgetErrors = change<string, [runId: string]>(
  `with of_nodes as (
     update workspace.node_runs set error_message = null
     where account_id = $1 and run_id = $2 and error_message is not null
   )
   update workspace.runs set error_message = null, error_details = null where account_id = $1 and id = $2`,
);
