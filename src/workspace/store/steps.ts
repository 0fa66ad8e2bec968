import type { ClientBase, Pool } from "pg";
import type { Definition } from "../model/definition.ts";
import type { RunStatus } from "../model/workflows.ts";
import { accountsBehind } from "./lists.ts";
import { rowOf } from "./statements.ts";

/** A node run whose next step is one process's, until its lease ends. */
export type ClaimedStep = {
  readonly accountId: string;
  readonly runId: string;
  /** The node run. */
  readonly sequence: number;
  readonly leaseToken: string;
  /** 1 and how often this step has failed, or was cut. */
  readonly attempt: number;
};

/** Steps that are made ready at a time. */
const READY_PER_STATEMENT = 500;
/** Of each account, where more are due than that. */
const READY_SHARE = 25;

/** An account's id below all others. */
const BEFORE_ALL = "'00000000-0000-0000-0000-000000000000'::uuid";
const DUE = "not n.is_ready and n.next_at <= now()";

/**
 * Waits that are over, retries that are due, and steps that were cut may be taken again: the oldest, and where not all
 * that are due have room, a share of each account first, by turns.
 */
export async function makeStepsReady(pool: Pool): Promise<void> {
  await pool.query({
    name: "ready_steps",
    text: `
      with recursive oldest as materialized (
        select account_id, run_id, sequence, next_at from workspace.node_runs as n
        where ${DUE} order by next_at limit ${READY_PER_STATEMENT}
      ), ${accountsBehind(BEFORE_ALL, "workspace.node_runs", "not is_ready and next_at is not null")}, due as (
        select * from oldest
        union
        select share.* from accounts cross join lateral (
          select account_id, run_id, sequence, next_at from workspace.node_runs as n
          where n.account_id = accounts.account_id and ${DUE} order by next_at limit ${READY_SHARE}
        ) as share
        where (select count(*) from oldest) = ${READY_PER_STATEMENT}
      ), turns as (
        select *, row_number() over (partition by account_id order by next_at) as turn from due
      ), next as materialized (
        select account_id, run_id, sequence from turns
        order by least(turn, ${READY_SHARE + 1}), next_at limit ${READY_PER_STATEMENT}
      ), taken as (
        select account_id, run_id, sequence from next
        join workspace.node_runs as n using (account_id, run_id, sequence)
        where ${DUE} for no key update of n skip locked
      )
      update workspace.node_runs as n set is_ready = true
      from taken where (n.account_id, n.run_id, n.sequence) = (taken.account_id, taken.run_id, taken.sequence)`,
  });
}

/**
 * The step that waits longest of the next account behind this one that has any: accounts take turns, however many steps
 * each has. One that nobody records is taken again after `leaseMs`. Null: no account behind this one has any.
 */
export const claimStep = rowOf<ClaimedStep, string, [leaseMs: number]>(
  // As many accounts are looked at as it takes to find one whose steps are not all being claimed by others.
  `with recursive ${accountsBehind("$1::uuid", "workspace.node_runs", "is_ready")}, taken as (
     select step.* from accounts cross join lateral (
       select account_id, run_id, sequence from workspace.node_runs as n
       where n.is_ready and n.account_id = accounts.account_id
       order by n.next_at limit 1 for no key update skip locked
     ) as step
     limit 1
   )
   update workspace.node_runs as n
   set is_ready = false, next_at = now() + $2::float8 * interval '1 millisecond',
     attempt = n.attempt + (n.lease_token is not null)::integer, lease_token = gen_random_uuid()
   from taken where (n.account_id, n.run_id, n.sequence) = (taken.account_id, taken.run_id, taken.sequence)
   returning n.account_id as "accountId", n.run_id as "runId", n.sequence, n.lease_token as "leaseToken", n.attempt`,
  "claim_step",
);

const OF_STEP = "account_id = $1 and run_id = $2 and sequence = $3 and lease_token = $4";

function keyOf({ accountId, runId, sequence, leaseToken }: ClaimedStep): unknown[] {
  return [accountId, runId, sequence, leaseToken];
}

/** False: the step is somebody else's, or its run has ended. */
export async function renewLease(pool: Pool, step: ClaimedStep, leaseMs: number): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: "renew_lease",
    text: `
      update workspace.node_runs set is_ready = false, next_at = now() + $5::float8 * interval '1 millisecond'
      where ${OF_STEP}`,
    values: [...keyOf(step), leaseMs],
  });
  return rowCount === 1;
}

/** Gives a step back that was not taken to its end: it is not this step's fault. */
export async function giveBackStep(pool: Pool, step: ClaimedStep): Promise<void> {
  await pool.query(
    `update workspace.node_runs set is_ready = true, next_at = now(), lease_token = null where ${OF_STEP}`,
    keyOf(step),
  );
}

/** With what it is about. */
export type Step = ClaimedStep & {
  readonly workflowId: string;
  readonly spaceId: string;
  readonly definition: Definition;
  /** What the run was started with. */
  readonly input: Readonly<Record<string, unknown>>;
  readonly webhookUrl: string | null;
  readonly traceparent: string | null;
  readonly nodeId: string;
  readonly nodeRunId: string;
  readonly nodeStatus: RunStatus;
  /** What the step before this one left; null: this is the first. */
  readonly position: unknown;
  /** The database's times; the start is null until the first step begins. */
  readonly startedAt: Date | null;
  readonly now: Date;
};

/** Null: the step is somebody else's, or its run has ended. */
export async function readStep(database: Pool | ClientBase, claimed: ClaimedStep): Promise<Step | null> {
  const { rows } = await database.query<Omit<Step, keyof ClaimedStep>>({
    name: "read_step",
    text: `
      select r.workflow_id as "workflowId", r.space_id as "spaceId", v.definition, r.input,
        r.webhook_url as "webhookUrl", r.traceparent, n.node_id as "nodeId", n.id as "nodeRunId",
        n.status as "nodeStatus", n.position, n.started_at as "startedAt", now()
      from workspace.node_runs as n
      join workspace.runs as r on r.account_id = n.account_id and r.id = n.run_id
      join workspace.workflow_versions as v
        on v.account_id = r.account_id and v.workflow_id = r.workflow_id and v.version = r.version
      where n.account_id = $1 and n.run_id = $2 and n.sequence = $3 and n.lease_token = $4`,
    values: keyOf(claimed),
  });
  return rows[0] === undefined ? null : { ...claimed, ...rows[0] };
}

/** Where a step has brought its node run. */
export type NodeChange = {
  /** Null: it stays. */
  readonly status: RunStatus | null;
  /** Absent: it stays, too. */
  readonly position?: unknown;
  /** Of the next step; absent: its first. */
  readonly attempt?: number;
  /** Handed on by this step; absent: nothing. */
  readonly items?: number;
  readonly errorItems?: number;
  /** Why it has failed; absent: it has not. */
  readonly error?: { readonly code: string; readonly message: string };
  /** The analysis that ends its wait sooner; absent, or null: there is none. */
  readonly awaitedAnalysisId?: string | null;
  /** When the next step may be taken: so many milliseconds from now, or at a time; both absent: there is none. */
  readonly inMs?: number;
  readonly until?: Date;
};

/**
 * The node run begins, or goes on after a wait. Its run is locked. Returns when it has begun; null: the step is
 * somebody else's.
 */
export async function startNodeRun(tx: ClientBase, step: ClaimedStep): Promise<Date | null> {
  const { rows } = await tx.query<{ started_at: Date }>({
    name: "start_node_run",
    text: `
      update workspace.node_runs
      set status = 'ACTIVE', started_at = coalesce(started_at, clock_timestamp()), wake_at = null,
        awaited_analysis_id = null
      where ${OF_STEP} returning started_at`,
    values: keyOf(step),
  });
  return rows[0]?.started_at ?? null;
}

/** All that a node run has handed on so far, and how much of it is errors. */
export type HandedOn = { readonly items: number; readonly errors: number };

/** The step has ended, and the lease with it. Its run is locked. Null: the step is somebody else's. */
export async function changeNodeRun(
  tx: ClientBase,
  step: Step,
  { status, attempt = 1, items = 0, errorItems = 0, error, ...change }: NodeChange,
): Promise<HandedOn | null> {
  const { position = step.position, awaitedAnalysisId = null, inMs = null, until = null } = change;
  const { rows } = await tx.query<HandedOn>({
    name: "change_node_run",
    text: `
      update workspace.node_runs
      set status = coalesce($5, status), position = $6, attempt = $7, item_count = item_count + $8,
        error_item_count = error_item_count + $9, error_code = $10, error_message = $11,
        next_at = coalesce($12::timestamptz, now() + $13::float8 * interval '1 millisecond'),
        wake_at = case when $5 is null then wake_at when $5 = 'WAITING' then $12::timestamptz end,
        completed_at = case when $12::timestamptz is null and $13::float8 is null then clock_timestamp() end,
        awaited_analysis_id = $14, is_ready = $13::float8 is not distinct from 0, lease_token = null
      where ${OF_STEP} returning item_count as items, error_item_count as errors`,
    values: [
      ...keyOf(step),
      ...[status, position === null ? null : JSON.stringify(position), attempt, items, errorItems],
      ...[error?.code ?? null, error?.message ?? null],
      ...[until, inMs, awaitedAnalysisId],
    ],
  });
  return rows[0] ?? null;
}

/** Seconds that the oldest of up to a thousand steps has been ready that nobody has taken yet; 0: there is none. */
export async function readOldestReadyStep(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ seconds: number }>(
    `select coalesce(extract(epoch from now() - min(next_at)), 0)::float8 as seconds
     from (select next_at from workspace.node_runs where is_ready limit 1000) as ready`,
  );
  return rows[0]!.seconds;
}
