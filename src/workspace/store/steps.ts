import type { Pool } from "pg";
import type { Definition } from "../model/definition.ts";
import type { RunStatus } from "../model/workflows.ts";
import { accountsBehind, BEFORE_ALL } from "./lists.ts";
import { type ClaimedStep, change, lockOf, rowOf, scalarOf } from "./statements.ts";

/** Steps that are made ready at a time. */
const READY_PER_STATEMENT = 500;
/** Of each account, where more are due than that. */
const READY_SHARE = 25;

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

/** A `ClaimedStep`. */
const CLAIMED = `n.account_id as "accountId", n.run_id as "runId", n.sequence, n.attempt,
  n.lease_token as "leaseToken"`;

/** Of as many accounts as it takes to find one whose steps are not all being claimed by others. */
const claimOf = (after: string, next: string) =>
  `with recursive ${accountsBehind(after, "workspace.node_runs", "is_ready")}, taken as (
     select step.* from (select account_id from accounts ${next}) as next cross join lateral (
       select account_id, run_id, sequence from workspace.node_runs as n
       where n.is_ready and n.account_id = next.account_id
       order by n.next_at limit 1 for no key update skip locked
     ) as step limit 1
   )
   update workspace.node_runs as n
   set is_ready = false, next_at = now() + $2::float8 * interval '1 millisecond',
     attempt = n.attempt + (n.lease_token is not null)::integer, lease_token = gen_random_uuid()
   from taken where (n.account_id, n.run_id, n.sequence) = (taken.account_id, taken.run_id, taken.sequence)
   returning ${CLAIMED}`;

/**
 * The step that waits longest of the next account behind this one that has any: accounts take turns, however many steps
 * each has. One that nobody records is taken again after `leaseMs`. Null: no other account behind this one has any.
 */
export const claimStep = rowOf<ClaimedStep, string, [leaseMs: number]>(claimOf("$1::uuid", ""), "claim_step");

type LightClaim = [leaseMs: number, leftOut: readonly string[], last: readonly string[]];

/** The same, of accounts that are not left out: by turns, but `last` ones behind all others, in this order. */
export const claimLightStep = rowOf<ClaimedStep, string, LightClaim>(
  claimOf(
    BEFORE_ALL,
    `where account_id <> all ($3::uuid[])
     order by coalesce(array_position($4::uuid[], account_id), 0), account_id <= $1, account_id`,
  ),
  "claim_light_step",
);

const OF_STEP = "n.account_id = $1 and n.run_id = $2 and n.sequence = $3 and n.lease_token = $4";

/** False: the step is somebody else's, or its run has ended. */
export const renewLease = change<ClaimedStep, [leaseMs: number], Pool>(
  `update workspace.node_runs as n set is_ready = false, next_at = now() + $5::float8 * interval '1 millisecond'
   where ${OF_STEP}`,
  "renew_lease",
);

/** Gives a step back that was not taken to its end: it is not this step's fault. */
export const giveBackStep = change<ClaimedStep, [], Pool>(
  `update workspace.node_runs as n set is_ready = true, next_at = now(), lease_token = null where ${OF_STEP}`,
);

/** With what it is about. */
export type Step = ClaimedStep & {
  readonly workflowId: string;
  readonly spaceId: string;
  readonly definition: Definition;
  /** What the run was started with. */
  readonly input: Readonly<Record<string, unknown>>;
  /** The node that it ends with; null: it is no test. */
  readonly testNodeId: string | null;
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
export const readStep = rowOf<Step, ClaimedStep, []>(
  `select ${CLAIMED}, r.workflow_id as "workflowId", r.space_id as "spaceId", v.definition, r.input,
     r.test_node_id as "testNodeId", r.webhook_url as "webhookUrl", r.traceparent, n.node_id as "nodeId",
     n.id as "nodeRunId", n.status as "nodeStatus", n.position, n.started_at as "startedAt", now()
   from workspace.node_runs as n
   join workspace.runs as r on r.account_id = n.account_id and r.id = n.run_id
   join workspace.workflow_versions as v
     on v.account_id = r.account_id and v.workflow_id = r.workflow_id and v.version = r.version
   where ${OF_STEP}`,
  "read_step",
);

/** Where a step has brought its node run. */
export type NodeChange = {
  /** Null: it stays. */
  readonly status: RunStatus | null;
  /** Absent, or null: it stays, too. */
  readonly position?: unknown;
  /** Of the next step; absent: its first. */
  readonly attempt?: number;
  /** Handed on by this step; absent: nothing. */
  readonly items?: number;
  readonly errorItems?: number;
  /** Why it has failed; absent: it has not. */
  readonly errorCode?: string;
  readonly errorMessage?: string;
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
export const startNodeRun = lockOf<{ readonly startedAt: Date }, ClaimedStep, []>(
  `update workspace.node_runs as n
   set status = 'ACTIVE', started_at = coalesce(started_at, clock_timestamp()), wake_at = null,
     awaited_analysis_id = null
   where ${OF_STEP} returning started_at as "startedAt"`,
  "start_node_run",
);

/** All that a node run has handed on so far, and how much of it is errors. */
export type HandedOn = { readonly items: number; readonly errors: number };

/** The step has ended, and the lease with it. Its run is locked. Null: the step is somebody else's. */
export const changeNodeRun = lockOf<HandedOn, ClaimedStep, [change: NodeChange]>(
  `update workspace.node_runs as n
   set status = coalesce(given.status, n.status), position = coalesce(given.position, n.position),
     attempt = coalesce(given.attempt, 1), item_count = item_count + coalesce(items, 0),
     error_item_count = error_item_count + coalesce("errorItems", 0), error_code = "errorCode",
     error_message = "errorMessage", next_at = coalesce(until, now() + "inMs" * interval '1 millisecond'),
     wake_at = case when given.status is null then wake_at when given.status = 'WAITING' then until end,
     completed_at = case when until is null and "inMs" is null then clock_timestamp() end,
     awaited_analysis_id = "awaitedAnalysisId", is_ready = "inMs" is not distinct from 0, lease_token = null
   from json_to_record($5) as given (status text, position json, attempt integer, items integer,
     "errorItems" integer, "errorCode" text, "errorMessage" text, "awaitedAnalysisId" text, "inMs" float8,
     until timestamptz)
   where ${OF_STEP} returning item_count as items, error_item_count as errors`,
  "change_node_run",
);

/** Seconds that the oldest of up to a thousand steps has been ready that nobody has taken yet; 0: there is none. */
export const readOldestReadyStep = scalarOf<number>(
  `select coalesce(extract(epoch from now() - min(next_at)), 0)::float8
   from (select next_at from workspace.node_runs where is_ready limit 1000) as ready`,
);
