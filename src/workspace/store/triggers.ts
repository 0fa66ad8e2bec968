import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { notErased } from "../../base/database/account-rows.ts";
import { newId } from "../../base/database/partitions.ts";
import { seal, unseal } from "../../base/database/sealing.ts";
import { timeText } from "../../base/database/time-text.ts";
import type { SecretsKey } from "../../base/model/secrets-key.ts";
import type { HOOK_AUTH_MODES } from "../model/node-kinds.ts";
import { allows, SPACE_ROLES } from "../model/roles.ts";
import { TRIGGER_ERRORS, type TriggerError } from "../model/triggers.ts";
import { accountsBehind, BEFORE_ALL } from "./lists.ts";
import { change, type Database, lockOf, rowOf, rowsOf, type SpaceUser, scalarOf } from "./statements.ts";

const MAY_RUN = SPACE_ROLES.filter((role) => allows(role, "run_workflows")).map((role) => `'${role}'`);

/** Of a `case`: why nobody can run the workflow `w` now. @param spaceBinId SQL: its space's `bin_id` */
export const notRunnable = (spaceBinId: string) => `
  when coalesce(w.bin_id, ${spaceBinId}) is not null then 'workflow_deleted'
  when w.status = 'ARCHIVED' then 'workflow_archived' when not w.enabled then 'workflow_disabled'`;

/** A `TriggerError`: why no run of the workflow `w`, whose current version is `v`, begins by itself. Null: it may. */
const REFUSAL = `case ${notRunnable(`(
    select sp.bin_id from workspace.spaces as sp where sp.account_id = w.account_id and sp.id = w.space_id)`)}
  when not exists (select from workspace.space_members as m
    join sealpost.users as u on u.account_id = m.account_id and u.id = m.user_id and u.disabled_at is null
    where m.account_id = w.account_id and m.space_id = w.space_id and m.user_id = v.created_by
      and m.role in (${MAY_RUN})) then 'access_denied' end`;

const HOOK_NODE = `jsonb_path_query_first(v.definition, '$.nodes[*] ? (@.kind == "hook_trigger")')`;

const MESSAGES = Object.entries(TRIGGER_ERRORS).map(([code, message]) => `when '${code}' then '${message}'`);

const listOf = (object: string, from: string) =>
  `coalesce((select json_agg(json_build_object(${object})) from ${from}), '[]')`;

/** Of a workflow in a list: its `triggers` and its `webhooks`, each with at most one. */
export const TRIGGERS = `${listOf(
  `'id', t.id, 'node_id', t.node_id, 'kind', 'schedule', 'active', refusal is null and t.next_at is not null,
   'next_fire_at', ${timeText("t.next_at")}, 'last_fired_at', ${timeText("t.last_fired_at")},
   'last_error_code', code, 'last_error_message', case code ${MESSAGES.join(" ")} end`,
  `workspace.schedules as t, lateral (select ${REFUSAL} as refusal) as now,
   lateral (select coalesce(refusal, t.error_code) as code) as last
   where t.account_id = w.account_id and t.workflow_id = w.id`,
)} as triggers, ${listOf(
  `'id', t.id, 'node_id', node ->> 'id', 'url', null, 'auth_mode', node #>> '{parameters,auth_mode}',
   'methods', array['POST'], 'active', refusal is null and t.id is not null, 'provider_key', null,
   'integration_mode', null, 'events', array[]::text[], 'has_signing_secret', t.id is not null,
   'subscription_state', null, 'subscription_count', 0, 'last_error_code', refusal, 'subscription_synced_at', null`,
  `${HOOK_NODE} as node cross join lateral (select ${REFUSAL} as refusal) as now left join workspace.hooks as t
   on t.account_id = w.account_id and t.workflow_id = w.id and t.ends_at is null where node is not null`,
)} as webhooks`;

/** What a trigger runs: the current version of a workflow, in the name of whoever published that. */
type Triggered = {
  readonly workflowId: string;
  readonly spaceId: string;
  readonly version: number;
  readonly userId: string;
  readonly nodeId: string;
  /** Null: nothing is in the way. */
  readonly refusal: TriggerError | null;
};

/** What is absent is null. */
export type NewRun = Omit<Triggered, "refusal"> & {
  /** The requester's, of a run that was asked for. */
  readonly keyId?: string;
  /** The schedule or the hook that begins it. */
  readonly triggerId?: string;
  readonly webhookId?: string;
  /** Null: there may be any number for it. */
  readonly begunFor?: string | null;
  readonly retryOf?: string | null;
  readonly testNodeId?: string | null;
  readonly webhookUrl?: string | null;
  readonly traceparent: string | null;
};

export type BegunRun = { readonly id: string; readonly isNew: boolean; readonly input: string };

/**
 * Runs that begin at their triggers, none of two for the same, or those that were begun for the same before. `id` null:
 * it is beyond `room`. Runs of an account are begun one after the other, see `roomForRuns`.
 * @param runs JSON, a list of `NewRun & { input }`, each input as it is stored
 */
export const beginRuns = rowsOf<
  BegunRun | { readonly id: null },
  string,
  [runs: string, room: number],
  ClientBase
>(
  `with given as materialized (
     select * from rows from (json_to_recordset($2) as ("workflowId" uuid, "spaceId" uuid, version integer,
       "userId" uuid, "nodeId" text, "keyId" uuid, "triggerId" uuid, "webhookId" uuid, "begunFor" text,
       "retryOf" uuid, "testNodeId" text, "webhookUrl" text, traceparent text, input text)) with ordinality
   ), known as (
     select given.ordinality, r.id, r.input::text as input from given join workspace.runs as r
     on r.account_id = $1 and r.workflow_id = given."workflowId" and r.begun_for = given."begunFor"
   ), fresh as materialized (
     select sealpost.uuid_v7(now()) as id, given.* from given
     where ordinality not in (select ordinality from known) order by ordinality limit $3
   ), run as (
     insert into workspace.runs (account_id, id, workflow_id, space_id, version, requested_by, requested_key_id,
       trigger_id, webhook_id, begun_for, retry_of, test_node_id, webhook_url, traceparent, input, node_run_count,
       event_count)
     select $1, id, "workflowId", "spaceId", version, "userId", "keyId", "triggerId", "webhookId", "begunFor",
       "retryOf", "testNodeId", "webhookUrl", traceparent, input::json, 1, 1
     from fresh
   ), node as (
     insert into workspace.node_runs (account_id, run_id, sequence, node_id, input_count)
     select $1, id, 1, "nodeId", 0 from fresh
   ), event as (
     insert into workspace.run_events (account_id, run_id, sequence, kind) select $1, id, 1, 'run.created' from fresh
   )
   select coalesce(fresh.id, known.id) as id, fresh.id is not null as "isNew",
     coalesce(fresh.input, known.input) as input
   from given left join fresh using (ordinality) left join known using (ordinality) order by given.ordinality`,
  "begin_runs",
);

export const readNow = scalarOf<Date>("select now()");

type Scheduled = [nodeId: string, cron: string, timeZone: string, catchUpSeconds: number];

/** From now on the workflow is run at these times. It is locked. */
export const setSchedule = change<string, [workflowId: string, ...Scheduled, nextAt: Date | null]>(
  `insert into workspace.schedules as s (account_id, workflow_id, node_id, cron, time_zone, catch_up_seconds, next_at)
   values ($1, $2, $3, $4, $5, $6, $7)
   on conflict (account_id, workflow_id) do update set node_id = excluded.node_id, cron = excluded.cron,
     time_zone = excluded.time_zone, catch_up_seconds = excluded.catch_up_seconds, next_at = excluded.next_at,
     done_until = greatest(s.done_until, excluded.done_until), error_code = null`,
);

export const removeSchedule = change<string, [workflowId: string]>(
  "delete from workspace.schedules where account_id = $1 and workflow_id = $2",
);

/** Schedules that are looked at for whose they are. */
const DUE_LOOKED_AT = 500;
/** Of an account, in one transaction. */
const DUE_PER_TURN = 50;

/** The accounts, none erased, that have schedules that are due, in order. @param now null: the database's time */
export async function findDueAccounts(pool: Pool, now: Date | null): Promise<readonly string[]> {
  const IS_DUE = "next_at <= coalesce($1::timestamptz, now())";
  const { rows } = await pool.query<{ id: string }>({
    name: "find_due_accounts",
    text: `
      with recursive oldest as materialized (
        select account_id from workspace.schedules where ${IS_DUE} order by next_at limit ${DUE_LOOKED_AT}
      ), ${accountsBehind(BEFORE_ALL, "workspace.schedules")}
      select account_id as id from (
        select account_id from oldest
        union
        select account_id from accounts where (select count(*) from oldest) = ${DUE_LOOKED_AT}
          and exists (select from workspace.schedules as s where s.account_id = accounts.account_id and ${IS_DUE})
      ) as due
      where ${notErased("due.account_id")} order by id`,
    values: [now],
  });
  return rows.map(({ id }) => id);
}

export type DueSchedule = Triggered & {
  readonly id: string;
  readonly cron: string;
  readonly timeZone: string;
  readonly catchUpSeconds: number;
  readonly doneUntil: Date;
  readonly now: Date;
};

/** Some of an account's that are due. Until the transaction ends nobody else has them, nor changes their workflows. */
export const lockDue = rowsOf<DueSchedule, string, [now: Date | null], ClientBase>(
  `with due as materialized (
     select * from workspace.schedules where account_id = $1 and next_at <= coalesce($2::timestamptz, now())
     order by next_at limit ${DUE_PER_TURN} for no key update skip locked
   )
   select due.id, due.workflow_id as "workflowId", due.node_id as "nodeId", due.cron, due.time_zone as "timeZone",
     due.catch_up_seconds as "catchUpSeconds", due.done_until as "doneUntil",
     coalesce($2::timestamptz, now()) as now, w.space_id as "spaceId", v.version, v.created_by as "userId",
     ${REFUSAL} as refusal
   from due
   join workspace.workflows as w on w.account_id = $1 and w.id = due.workflow_id
   join workspace.workflow_versions as v
     on v.account_id = $1 and v.workflow_id = w.id and v.version = w.current_version
   for share of w skip locked`,
  "lock_due",
);

/** Of a schedule that is locked. @param error null: it has started its run, if it was due */
export const settleSchedule = change<
  string,
  [workflowId: string, doneUntil: Date, nextAt: Date | null, firedAt: Date | null, error: TriggerError | null]
>(
  `update workspace.schedules set done_until = greatest(done_until, $3), next_at = $4,
     last_fired_at = coalesce($5, last_fired_at),
     error_code = case when $5::timestamptz is null then coalesce($6, error_code) end
   where account_id = $1 and workflow_id = $2`,
  "settle_schedule",
);

/** A key that works, and what its requests are signed with. */
export type Hook = {
  readonly id: string;
  readonly accountId: string;
  readonly workflowId: string;
  readonly sealedSecret: Buffer;
};

/** Null: there is no such key, or it works no more, as its account does. */
export async function findHook(database: Database, digest: Buffer): Promise<Hook | null> {
  const { rows } = await database.query<Hook>({
    name: "find_hook",
    text: `select id, account_id as "accountId", workflow_id as "workflowId", sealed_secret as "sealedSecret"
           from workspace.hooks
           where key_digest = $1 and (ends_at is null or ends_at > now()) and ${notErased("account_id")}`,
    values: [digest],
  });
  return rows[0] ?? null;
}

/** Nobody changes the workflow until the transaction ends. Null: its current version does not begin at a hook. */
export const lockHooked = lockOf<
  Triggered & { readonly authMode: (typeof HOOK_AUTH_MODES)[number] },
  string,
  [workflowId: string]
>(
  `select w.id as "workflowId", w.space_id as "spaceId", v.version, v.created_by as "userId", node ->> 'id' as "nodeId",
     node #>> '{parameters,auth_mode}' as "authMode", ${REFUSAL} as refusal
   from workspace.workflows as w
   join workspace.workflow_versions as v
     on v.account_id = w.account_id and v.workflow_id = w.id and v.version = w.current_version
   cross join lateral ${HOOK_NODE} as node
   where w.account_id = $1 and w.id = $2 and node is not null for share of w`,
  "lock_hooked",
);

const insertHook = rowOf<
  { readonly created_at: string; readonly previous_ends_at: string | null },
  SpaceUser,
  [workflowId: string, id: string, digest: Buffer, sealed: Buffer, overlapSeconds: number],
  ClientBase
>(
  `with gone as (
     delete from workspace.hooks where account_id = $1 and workflow_id = $3
       and (ends_at is not null or $7::integer = 0)
   ), kept as (
     update workspace.hooks set ends_at = now() + $7::integer * interval '1 second'
     where account_id = $1 and workflow_id = $3 and ends_at is null and $7::integer > 0 returning ends_at
   )
   insert into workspace.hooks (account_id, created_by, workflow_id, id, key_digest, sealed_secret)
   values ($1, $2, $3, $4, $5, $6)
   returning ${timeText("created_at")} as created_at, (select ${timeText("ends_at")} from kept) as previous_ends_at`,
);

/**
 * Makes the hook's next key. The one before it works for another `overlapSeconds`, and none before that. The workflow
 * is locked.
 */
export async function rotateHook(
  tx: ClientBase,
  user: SpaceUser,
  workflowId: string,
  { digest, overlapSeconds }: { readonly digest: Buffer; readonly overlapSeconds: number },
  secretsKey: SecretsKey,
) {
  const secret = `whsec_${randomBytes(32).toString("base64")}`;
  const id = await newId(tx);
  const sealed = seal(secret, secretsKey, { accountId: user.accountId, id });
  const made = (await insertHook(tx, user, workflowId, id, digest, sealed, overlapSeconds))!;
  return { id, workflow_id: workflowId, signing_secret: secret, ...made };
}

export function signingSecretOf({ accountId, id, sealedSecret }: Hook, secretsKey: SecretsKey): string {
  return unseal(sealedSecret, secretsKey, { accountId, id });
}

/** False: there is none. */
export const removeHook = change<string, [workflowId: string]>(
  "delete from workspace.hooks where account_id = $1 and workflow_id = $2",
);
