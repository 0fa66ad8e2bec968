import type { ClientBase, Pool } from "pg";
import { type Held, hasRoomFor } from "../../model/user-share.ts";
import type { Definition } from "../model/definition.ts";
import type { SpaceRole } from "../model/roles.ts";
import { type RunErrorCode, type RunStatus, UNFINISHED_RUNS_MAX } from "../model/runs.ts";
import { joinMember } from "./members.ts";
import type { SpaceUser } from "./spaces.ts";
import { type StoredUser, userOfRow } from "./users.ts";

/** A run as a member of its space sees it. */
export type FoundRun = {
  readonly id: string;
  readonly accountId: string;
  readonly workflowId: string;
  readonly workflowName: string;
  readonly spaceId: string;
  readonly version: { readonly id: string; readonly version: number };
  readonly definition: Definition;
  readonly status: RunStatus;
  readonly input: Readonly<Record<string, unknown>>;
  readonly webhookUrl: string | null;
  readonly traceparent: string | null;
  readonly requestedBy: StoredUser;
  readonly errorCode: RunErrorCode | null;
  readonly errorMessage: string | null;
  readonly errorDetails: Readonly<Record<string, unknown>> | null;
  /** Of the webhook that told of its end; null: there is none. */
  readonly deliveryId: string | null;
  readonly eventCount: number;
  readonly createdAt: Date;
  readonly startedAt: Date | null;
  readonly completedAt: Date | null;
  /** The member's. */
  readonly role: SpaceRole;
};

/** Null: there is no such run, or the user is not a member of its space. */
export async function findRun(
  database: Pool | ClientBase,
  { accountId, userId }: SpaceUser,
  runId: string,
): Promise<FoundRun | null> {
  const { rows } = await database.query<FoundRun>({
    name: "find_run",
    text: `
      select r.id, r.account_id as "accountId", r.workflow_id as "workflowId", w.name as "workflowName",
        r.space_id as "spaceId", json_build_object('id', v.id, 'version', v.version) as version, v.definition,
        r.status, r.input, r.webhook_url as "webhookUrl", r.traceparent,
        ${userOfRow("u")} as "requestedBy",
        r.error_code as "errorCode", r.error_message as "errorMessage", r.error_details as "errorDetails",
        r.delivery_id as "deliveryId", r.event_count as "eventCount", r.created_at as "createdAt",
        r.started_at as "startedAt", r.completed_at as "completedAt", m.role
      from workspace.runs as r
      ${joinMember("r")}
      join workspace.workflows as w on w.account_id = r.account_id and w.id = r.workflow_id
      join workspace.workflow_versions as v
        on v.account_id = r.account_id and v.workflow_id = r.workflow_id and v.version = r.version
      join sealpost.users as u on u.account_id = r.account_id and u.id = r.requested_by
      where r.account_id = $1 and r.id = $3`,
    values: [accountId, userId, runId],
  });
  return rows[0] ?? null;
}

/** Whether there is such a run, and the user is a member of its space. */
export async function isRunSeen(
  pool: Pool,
  { accountId, userId }: SpaceUser,
  runId: string,
): Promise<boolean> {
  const { rows } = await pool.query<{ is_seen: boolean }>({
    name: "is_run_seen",
    text: `
      select exists (
        select from workspace.runs as r
        ${joinMember("r")}
        where r.account_id = $1 and r.id = $3
      ) as is_seen`,
    values: [accountId, userId, runId],
  });
  return rows[0]!.is_seen;
}

/** A workflow and the version of it that is to be run. */
export type RunnableWorkflow = {
  readonly spaceId: string;
  /** Null: nothing is published. */
  readonly currentVersion: number | null;
  /** Null: there is no such version. */
  readonly definition: Definition | null;
  /** Of whoever asks. */
  readonly role: SpaceRole;
};

/** Null: there is no such workflow, or the user is not a member of its space. @param version null: the current one */
export async function findRunnable(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  workflowId: string,
  version: number | null,
): Promise<RunnableWorkflow | null> {
  const { rows } = await tx.query<RunnableWorkflow>(
    `select w.space_id as "spaceId", w.current_version as "currentVersion", v.definition, m.role
     from workspace.workflows as w
     ${joinMember("w")}
     left join workspace.workflow_versions as v on v.account_id = w.account_id and v.workflow_id = w.id
       and v.version = coalesce($4::integer, w.current_version)
     where w.account_id = $1 and w.id = $3`,
    [accountId, userId, workflowId, version],
  );
  return rows[0] ?? null;
}

export type NewRun = {
  readonly spaceId: string;
  readonly workflowId: string;
  readonly version: number;
  readonly input: Readonly<Record<string, unknown>>;
  readonly webhookUrl: string | null;
  readonly traceparent: string | null;
};

/** Whether the user may have one more; until the transaction ends, nobody else of the account is told so. */
export async function hasRoomForRun(tx: ClientBase, { accountId, userId }: SpaceUser): Promise<boolean> {
  await tx.query("select from workspace.workspaces where account_id = $1 for no key update", [accountId]);
  const { rows } = await tx.query<Held>(
    `select count(*)::integer as "inAll", count(*) filter (where requested_by = $2)::integer as "ofUser" from (
       select requested_by from workspace.runs
       where account_id = $1 and completed_at is null limit ${UNFINISHED_RUNS_MAX}
     ) as unfinished`,
    [accountId, userId],
  );
  return hasRoomFor(1, rows[0]!, UNFINISHED_RUNS_MAX);
}

/** A run whose first node is the trigger. Returns its id. */
export async function insertRun(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  run: NewRun,
): Promise<string> {
  const { spaceId, workflowId, version, input, webhookUrl, traceparent } = run;
  const { rows } = await tx.query<{ id: string }>(
    `insert into workspace.runs (account_id, requested_by, space_id, workflow_id, version, input, webhook_url,
       traceparent)
     values ($1, $2, $3, $4, $5, $6, $7, $8) returning id`,
    [accountId, userId, spaceId, workflowId, version, JSON.stringify(input), webhookUrl, traceparent],
  );
  return rows[0]!.id;
}

export type LockedRun = {
  readonly status: RunStatus;
  readonly itemCount: number;
  readonly itemBytes: number;
  /** Of those, what its sources handed on. */
  readonly broughtBytes: number;
};

/**
 * What changes a run locks it first: until the transaction ends nobody else does, and its nodes end one after the
 * other. Null: there is no such run.
 */
export async function lockRun(tx: ClientBase, accountId: string, runId: string): Promise<LockedRun | null> {
  const { rows } = await tx.query<LockedRun>({
    name: "lock_run",
    text: `
      select status, item_count as "itemCount", item_bytes::float8 as "itemBytes",
        brought_bytes::float8 as "broughtBytes"
      from workspace.runs where account_id = $1 and id = $2 for no key update`,
    values: [accountId, runId],
  });
  return rows[0] ?? null;
}

export type RunError = {
  readonly code: RunErrorCode;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>> | null;
};

/**
 * A run that is locked gets this status, and its times with it. They are the clock's, as all are in a run: a
 * transaction that waits for the lock may have begun before the one that has it.
 */
export async function setRunStatus(
  tx: ClientBase,
  accountId: string,
  runId: string,
  status: RunStatus,
): Promise<void> {
  await tx.query({
    name: "set_run_status",
    text: `
      update workspace.runs set status = $3,
        started_at = case when $3 = 'ACTIVE' then coalesce(started_at, clock_timestamp()) else started_at end,
        completed_at = case when $3 in ('SUCCEEDED', 'FAILED', 'CANCELLED') then clock_timestamp() end
      where account_id = $1 and id = $2`,
    values: [accountId, runId, status],
  });
}

/** Of a run that is locked, and has ended. @param deliveryId null: nothing was published */
export async function setRunEnd(
  tx: ClientBase,
  accountId: string,
  runId: string,
  { error, deliveryId }: { readonly error: RunError | null; readonly deliveryId: string | null },
): Promise<void> {
  await tx.query(
    `update workspace.runs set error_code = $3, error_message = $4, error_details = $5, delivery_id = $6
     where account_id = $1 and id = $2`,
    [
      accountId,
      runId,
      error?.code ?? null,
      error?.message ?? null,
      error?.details == null ? null : JSON.stringify(error.details),
      deliveryId,
    ],
  );
}

/** What a step has handed on. */
export type HandedItems = { readonly count: number; readonly bytes: number; readonly broughtBytes: number };

/** Counts it, in a run that is locked. */
export async function addRunItems(
  tx: ClientBase,
  accountId: string,
  runId: string,
  { count, bytes, broughtBytes }: HandedItems,
): Promise<void> {
  await tx.query(
    `update workspace.runs
     set item_count = item_count + $3, item_bytes = item_bytes + $4, brought_bytes = brought_bytes + $5
     where account_id = $1 and id = $2`,
    [accountId, runId, count, bytes, broughtBytes],
  );
}

/** Whether anybody has one, ended or not. Dispatchers ask five times a second until there is one. */
export async function hasRuns(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ is_there: boolean }>({
    name: "has_runs",
    text: "select exists (select from workspace.runs) as is_there",
  });
  return rows[0]!.is_there;
}

/** How many go on, by their status. */
export async function countUnfinishedRuns(pool: Pool): Promise<ReadonlyMap<RunStatus, number>> {
  const { rows } = await pool.query<{ status: RunStatus; counted: number }>(
    "select status, count(*)::integer as counted from workspace.runs where completed_at is null group by status",
  );
  return new Map(rows.map(({ status, counted }) => [status, counted]));
}
