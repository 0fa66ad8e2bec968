import type { ClientBase, Pool } from "pg";
import pg from "pg";
import { timeText } from "../../base/database/time-text.ts";
import { LOOKED_AT_MAX } from "../../base/model/list-page.ts";
import { type Held, hasRoomFor } from "../../base/model/reader.ts";
import { type Publication, PublishRefusedError, publishAnalyses } from "../../publish/publish-call-sql.ts";
import type { Definition } from "../model/definition.ts";
import type { SpaceRole } from "../model/roles.ts";
import type { ListedWorkflowRun, RUN_CONSTANTS, WorkflowRun } from "../model/runs.ts";
import { type RunErrorCode, type RunStatus, UNFINISHED_RUNS_MAX } from "../model/workflows.ts";
import { isAbove, isBelow, listOf } from "./lists.ts";
import { cancelNodeRuns } from "./node-runs.ts";
import { insertRunEvents } from "./run-events.ts";
import { isMember, isRestorable, joinMember, userJson } from "./spaces.ts";
import { change, lockOf, rowOf, type SpaceUser, scalarOf } from "./statements.ts";
import { notRunnable } from "./triggers.ts";
import { isWorkflowSeen } from "./workflows.ts";

/** False: it had ended. Whoever is at a step of it cannot record it any more. */
export async function cancelRun(tx: ClientBase, accountId: string, runId: string): Promise<boolean> {
  const run = await lockRun(tx, accountId, runId);
  if (!run?.isUnfinished) return false;
  const cancelled = await cancelNodeRuns(tx, accountId, runId);
  await setRunStatus(tx, accountId, runId, "CANCELLED");
  await insertRunEvents(tx, accountId, runId, [...cancelled, { kind: "run.cancelled", nodeId: null }]);
  return true;
}

/** Rows that go in one statement, or one run's, which has as many items at most. */
const ITEMS_PER_STATEMENT = 20_000;
const RUNS_PER_STATEMENT = 100;

/**
 * Removes runs that ended longer ago than this, with all that they have handed on, the oldest first. False: there are
 * no more of them.
 */
export async function removeEndedRuns(pool: Pool, retentionMs: number): Promise<boolean> {
  const { rowCount } = await pool.query(
    `with old as (
       select account_id, id, sum(item_count) over (order by completed_at, account_id, id) - item_count as before
       from (
         select account_id, id, item_count, completed_at from workspace.runs
         where completed_at < now() - $1::float8 * interval '1 millisecond'
         order by completed_at limit ${RUNS_PER_STATEMENT} for no key update skip locked
       ) as oldest
     )
     delete from workspace.runs as r using old
     where r.account_id = old.account_id and r.id = old.id and old.before < ${ITEMS_PER_STATEMENT}`,
    [retentionMs],
  );
  return rowCount !== 0;
}

/** In place of an input, which is an object. */
export const FORGOTTEN_INPUT = "null";

/**
 * What a run that has succeeded was given, which may be what it has published, word for word. One that can be retried
 * keeps it, unless it is to go whatever became of it. The run is locked.
 */
export const forgetInput = change<string, [runId: string, isAny: boolean]>(
  `with gone as (
     select requested_by, octet_length(input::text) - ${FORGOTTEN_INPUT.length} as bytes from workspace.runs
     where account_id = $1 and id = $2 and ($3 or status = 'SUCCEEDED') and input::text <> '${FORGOTTEN_INPUT}'
   ), forgotten as (
     update workspace.runs set input = '${FORGOTTEN_INPUT}'
     where account_id = $1 and id = $2 and exists (select from gone)
   )
   select workspace.add_storage($1, requested_by, null, 'runs', -bytes, 0, -bytes) from gone`,
);

/** Why an analysis was not published. */
export type PublicationRefusal = { readonly code: string; readonly message: string };

/**
 * Publishes in the transaction; one that is refused leaves it as it was. Returns the delivery's id.
 * @param isLast whatever fails counts as a refusal: trying again did not help
 */
export async function publishInside(
  tx: ClientBase,
  { traceparent, ...publication }: Publication & { readonly traceparent: string | null },
  isLast: boolean,
): Promise<string | PublicationRefusal> {
  await tx.query("savepoint publication");
  try {
    const [deliveryId] = await publishAnalyses(tx, [publication], traceparent);
    await tx.query("release savepoint publication");
    return deliveryId!;
  } catch (error) {
    const isRefusal = error instanceof PublishRefusedError || (isLast && error instanceof pg.DatabaseError);
    if (!isRefusal) throw error;
    await tx.query("rollback to savepoint publication");
    return error instanceof PublishRefusedError
      ? { code: error.code, message: refusalText(error) }
      : { code: "database_error", message: "The database could not do it. Report it if it persists." };
  }
}

/**
 * What whoever requested the run is in its space, until the transaction ends. Null: no member any more, or the key that
 * it was requested with is no longer valid.
 */
export const holdRequesterRole = lockOf<{ readonly role: SpaceRole }, string, [runId: string]>(
  `select m.role from workspace.runs as r
   join workspace.space_members as m
     on m.account_id = r.account_id and m.space_id = r.space_id and m.user_id = r.requested_by
   join sealpost.api_keys as k on k.id = r.requested_key_id and k.revoked_at is null
     and (k.expires_at is null or k.expires_at > clock_timestamp())
   where r.account_id = $1 and r.id = $2 for share of m`,
  "hold_requester_role",
);

/** Publishing words its messages for batches; here there is only one. */
function refusalText({ message, remedy }: PublishRefusedError): string {
  const fault = message.replace(/^analysis at index 0: /, "");
  return fault.endsWith(remedy) ? fault : `${fault}. ${remedy}`;
}

/** A run as members of its space see it in a list. */
export type ListedRun = Omit<ListedWorkflowRun, keyof typeof RUN_CONSTANTS>;

/** With all but what its nodes say. */
export type FoundRun = ListedRun &
  Pick<WorkflowRun, "input" | "definition"> & {
    /** The member's. */
    readonly role: SpaceRole;
  };

/** What has started it, and in whose name. */
const BEGUN_BY = `r.trigger_id, r.webhook_id,
     case when r.trigger_id is not null then 'schedule' when r.webhook_id is not null then 'webhook'
       else 'manual' end as origin,
     case when r.trigger_id is not null then 'system' when r.webhook_id is not null then 'webhook'
       else 'api' end as actor_type`;

const LISTED = `r.id, r.workflow_id, w.name as workflow_name, r.space_id,
     json_build_object('id', v.id, 'version', v.version) as version, r.retry_of, r.test_node_id, r.status,
     r.error_code, r.error_message, coalesce(r.error_details, '{}') as error_details,
     r.node_run_count as activations_total, ${userJson("u")} as requested_by,
     ${timeText("r.created_at")} as created_at, ${timeText("r.started_at")} as started_at,
     ${timeText("r.completed_at")} as completed_at,
     case when r.status = 'WAITING' then (select ${timeText("min(n.wake_at)")} from workspace.node_runs as n
       where n.account_id = r.account_id and n.run_id = r.id) end as wake_at,
     r.webhook_url, r.delivery_id, split_part(r.traceparent, '-', 2) as trace_id, r.event_count as events_cursor,
     ${BEGUN_BY}`;
/** See `forgetInput`. */
const FOUND = `${LISTED}, case when r.input::text = '${FORGOTTEN_INPUT}' then '{}' else r.input end as input,
     v.definition`;

const FOUND_IN = `workspace.runs as r
   join workspace.workflows as w on w.account_id = r.account_id and w.id = r.workflow_id
   join workspace.workflow_versions as v
     on v.account_id = r.account_id and v.workflow_id = r.workflow_id and v.version = r.version
   join sealpost.users as u on u.account_id = r.account_id and u.id = r.requested_by`;

/** Null: there is no such run, or the user is not a member of its space. */
export const findRun = rowOf<FoundRun, SpaceUser, [runId: string]>(
  `select ${FOUND}, m.role from ${FOUND_IN} ${joinMember("r")} where r.account_id = $1 and r.id = $3`,
  "find_run",
);

/** The same for whoever reads all of the account: what runs publish, and so none before that. */
export const findPublished = rowOf<Omit<FoundRun, "role">, string, [runId: string]>(
  `select ${FOUND} from ${FOUND_IN} where r.account_id = $1 and r.id = $2 and r.delivery_id is not null`,
);

/** What is asked of a list of runs; null: nothing. `after` and `before`: ids that theirs are between. */
export type RunFilter = [
  statuses: readonly RunStatus[] | null,
  after: string | null,
  before: string | null,
  spaceId: string | null,
];

/**
 * Lists the runs in some places, newest first. Those that have ended are found by place, and by status if one may be
 * asked for, each a list of its own: a page is read from those whose newest are among the newest of all. The others are
 * few in an account.
 * @param place a column @param values how many the filter has @param places SQL: which, as `id`
 */
function runsIn<Filter extends readonly unknown[]>(
  place: "space_id" | "workflow_id",
  by: "any" | "status",
  { values, isSeen, places }: { readonly values: number; readonly isSeen: string; readonly places: string },
) {
  const [from, limit] = [`$${values + 3}`, `$${values + 4}`];
  const asked = `${isAbove("r.id", "$4")} and ${isBelow("r.id", "$5")}`;
  const onPage = `${asked} and ${isBelow("r.id", from)}`;
  const newest = (of: string, within: string, most: string | number) =>
    `(select r.id from workspace.runs as r
      where r.account_id = $1 and r.${place} = ${of}.id${by === "any" ? "" : ` and r.status = ${of}.status`}
        and r.completed_at is not null and ${within} order by r.id desc limit ${most})`;
  const statuses = `'{${by === "any" ? "ANY" : "SUCCEEDED,FAILED,CANCELLED"}}'::text[]`;
  return listOf<ListedRun, Filter>({
    name: `list_runs_of_${by}_by_${place}`,
    with: `
      places as materialized (${places}), unfinished as materialized (
        select r.id from (
          select * from workspace.runs where account_id = $1 and completed_at is null offset 0
        ) as r
        -- Not joined: that would be taken for a few places.
        where coalesce(r.${place} in (select id from places), false)
          and r.status = any (coalesce($3::text[], array[r.status])) and ${asked}
      ), lists as materialized (
        select one.*, first.id as newest from (
          select id, status from places, unnest(${statuses}) as status
          where status = any (coalesce($3::text[], array[status]))
        ) as one cross join lateral ${newest("one", asked, 1)} as first
      )`,
    isSeen,
    total: {
      upToMax: `(
        select id from unfinished
        union all
        select one.id from lists cross join lateral ${newest("lists", asked, LOOKED_AT_MAX)} as one
      ) as counted`,
    },
    rows: `
      select ${LISTED} from (
        select id from unfinished as r where ${onPage}
        union all
        select one.id from (
          select id, status from (
            select id, status, case when ${isBelow("newest", from)} then newest
              else ${newest("lists", onPage, 1)} end as next
            from lists offset 0
          ) as lists where next is not null order by next desc limit ${limit}
        ) as lists cross join lateral ${newest("lists", onPage, limit)} as one
        order by id desc limit ${limit}
      ) as page
      join (${FOUND_IN}) on r.account_id = $1 and r.id = page.id where true`,
    order: ["id", "desc"],
  });
}

const IS_SPACE_SEEN = `($6::uuid is null or ${isMember("$6")})`;

const listRunsIn = (by: "any" | "status") =>
  runsIn<RunFilter>("space_id", by, {
    values: 4,
    isSeen: IS_SPACE_SEEN,
    places: `select space_id as id from workspace.space_members
      where account_id = $1 and user_id = $2 and bin_id is null and space_id = coalesce($6, space_id)`,
  });
const [listAny, listByStatus] = [listRunsIn("any"), listRunsIn("status")];

/** Of all spaces that the user is a member of, or of one. Null: there is no such space, or the user is no member. */
export const listRuns: typeof listAny = (database, user, filter, ...page) =>
  (filter[0] === null ? listAny : listByStatus)(database, user, filter, ...page);

/** Of a workflow. Null: there is none, or the user is not a member of its space. */
export const listWorkflowRuns = runsIn<[...RunFilter, workflowId: string]>("workflow_id", "status", {
  values: 5,
  isSeen: `${IS_SPACE_SEEN} and ${isWorkflowSeen("$7")}`,
  places: `select id from workspace.workflows
    where account_id = $1 and id = $7 and space_id = coalesce($6, space_id)`,
});

/** A workflow and the version of it that is to be run. */
export type RunnableWorkflow = {
  readonly spaceId: string;
  /** Null: nothing is published. */
  readonly currentVersion: number | null;
  /** Null: there is no such version. */
  readonly definition: Definition | null;
  /** The problem of running it now; null: there is none. */
  readonly refusal: "workflow_deleted" | "workflow_archived" | "workflow_disabled" | null;
  /** Of whoever asks. */
  readonly role: SpaceRole;
};

/**
 * Nobody deletes it, archives it or switches it off until the transaction ends. Null: there is no such workflow, or the
 * user is not a member of its space. `version`: null, the current one.
 */
export const lockRunnable = lockOf<RunnableWorkflow, SpaceUser, [workflowId: string, version: number | null]>(
  `select w.space_id as "spaceId", w.current_version as "currentVersion", v.definition, m.role,
     case ${notRunnable("m.bin_id")} end as refusal
   from workspace.workflows as w
   join workspace.space_members as m on m.account_id = w.account_id and m.space_id = w.space_id and m.user_id = $2
   left join workspace.workflow_versions as v on v.account_id = w.account_id and v.workflow_id = w.id
     and v.version = coalesce($4::integer, w.current_version)
   where w.account_id = $1 and w.id = $3
     and (coalesce(w.bin_id, m.bin_id) is null or ${isRestorable("coalesce(w.bin_id, m.bin_id)")})
   for share of w`,
);

/** Of so many more, how many the user may have. Until the transaction ends, nobody else of the account is told. */
export async function roomForRuns(
  tx: ClientBase,
  { accountId, userId }: SpaceUser,
  wanted: number,
): Promise<number> {
  await tx.query("select from workspace.workspaces where account_id = $1 for no key update", [accountId]);
  const { rows } = await tx.query<Held>(
    `select count(*)::integer as "inAll", count(*) filter (where requested_by = $2)::integer as "ofUser" from (
       select requested_by from workspace.runs
       where account_id = $1 and completed_at is null limit ${UNFINISHED_RUNS_MAX}
     ) as unfinished`,
    [accountId, userId],
  );
  let room = 0;
  while (room < wanted && hasRoomFor(room + 1, rows[0]!, UNFINISHED_RUNS_MAX)) room++;
  return room;
}

export type LockedRun = {
  readonly status: RunStatus;
  readonly isUnfinished: boolean;
  readonly itemCount: number;
  readonly itemBytes: number;
  /** Of those, what its sources handed on. */
  readonly broughtBytes: number;
};

/**
 * What changes a run locks it first: until the transaction ends nobody else does, and its nodes end one after the
 * other. Null: there is no such run.
 */
export const lockRun = lockOf<LockedRun, string, [runId: string]>(
  `select status, completed_at is null as "isUnfinished", item_count as "itemCount", item_bytes::float8 as "itemBytes",
     brought_bytes::float8 as "broughtBytes"
   from workspace.runs where account_id = $1 and id = $2 for no key update`,
  "lock_run",
);

export type RunError = {
  readonly code: RunErrorCode;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>> | null;
};

/**
 * A run that is locked gets this status, and its times with it. They are the clock's, as all are in a run: a
 * transaction that waits for the lock may have begun before the one that has it.
 */
export const setRunStatus = change<string, [runId: string, status: RunStatus]>(
  `update workspace.runs set status = $3,
     started_at = case when $3 = 'ACTIVE' then coalesce(started_at, clock_timestamp()) else started_at end,
     completed_at = case when $3 in ('SUCCEEDED', 'FAILED', 'CANCELLED') then clock_timestamp() end
   where account_id = $1 and id = $2`,
  "set_run_status",
);

/** Of a run that is locked, and has ended. `deliveryId`: null, nothing was published; `error`: {}, it has succeeded. */
export const setRunEnd = change<
  string,
  [runId: string, deliveryId: string | null, error: RunError | Record<string, never>]
>(
  `update workspace.runs set delivery_id = $3, error_code = code, error_message = message, error_details = details
   from json_to_record($4) as error (code text, message text, details json)
   where account_id = $1 and id = $2`,
);

/** Whether anybody has one, ended or not, or will have one by a schedule. Dispatchers ask until there is one. */
export const hasRuns = scalarOf<boolean>(
  "select exists (select from workspace.runs) or exists (select from workspace.schedules)",
  "has_runs",
);
