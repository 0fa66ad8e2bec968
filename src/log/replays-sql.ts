import type { ClientBase, Pool, QueryConfig } from "pg";
import { REPLAYS_SHARE, refuseBeyondStorage } from "../base/database/storage.ts";
import { timeText } from "../base/database/time-text.ts";
import { ANSWER_MARGIN_MS } from "../base/database/timed-client.ts";
import type { Actor } from "../base/model/audit.ts";
import { cutPage, type ListPage } from "../base/model/list-page.ts";
import { type Held, hasRoomFor, type Reader } from "../base/model/reader.ts";
import { type ReplayOutcome, RUNS_PER_HOUR_MAX, RUNS_PER_HOUR_OF_USER_MAX } from "../base/model/statuses.ts";
import { sightOf, sightOfDelivery, sightOfReplay } from "../delivery/visibility-sql.ts";
import type { AccountName } from "./accounts-schema.ts";
import type { DeliveryFilter } from "./delivery-filter-api.ts";
import type { DeliveryReplay } from "./delivery-schema.ts";
import { countReplayable, REPLAY_DELIVERIES_MAX, replayable } from "./replay-set-sql.ts";
import { COUNTED_AT_ONCE_MAX, type Replay } from "./replays-schema.ts";

/**
 * Writing the set down is the longest statement that the API has (a second for 100,000, several when the database is
 * busy). Whoever asked may have heard "not now" by then, and finds the replay under the same Idempotency-Key.
 */
const FIX_SET_MS = 20_000;

/** Starts the next run of one delivery that the reader sees; see sql/0011_log.sql. */
export async function replayDelivery(
  database: Pool | ClientBase,
  reader: Reader,
  deliveryId: string,
  analysisRetentionMs: number,
): Promise<ReplayOutcome> {
  await refuseBeyondStorage(database, reader.accountId, reader.spaceIds && REPLAYS_SHARE, null);
  const seen = sightOfDelivery(reader, "$1", "$2", 5);
  const runsMax = reader.spaceIds === null ? RUNS_PER_HOUR_MAX : RUNS_PER_HOUR_OF_USER_MAX;
  const { rows } = await database.query<{ outcome: ReplayOutcome }>({
    name: `replay_delivery${seen.name}`,
    // What is not seen is not there: the function is called for the one row, or for none.
    text: `select replayed.outcome from (select where true${seen.and}) as one
      cross join lateral sealpost.replay_delivery(
        $1, $2, $3::float8 * interval '1 millisecond', now(), $4) as replayed`,
    values: [reader.accountId, deliveryId, analysisRetentionMs, runsMax, ...seen.values],
  });
  return rows[0]?.outcome ?? "not_found";
}

/** As the API answers, with the filter as it was asked for. */
export type StoredReplay = Omit<Replay, "filter"> & {
  readonly filter: DeliveryFilter;
  /** The user whose key made it; null: no user's. */
  readonly ofUser: string | null;
};

/**
 * What support staff are called is for staff to see, and a key that acts for a user is not told who made others'
 * replays and why.
 */
export function toldOf(
  { ofUser, created_by, note }: Pick<StoredReplay, "ofUser" | "created_by" | "note">,
  { isStaff, userId }: { readonly isStaff: boolean; readonly userId: string | null },
): Pick<Replay, "created_by" | "note"> {
  if (userId !== null && ofUser !== userId) return { note: null, created_by: null };
  const isHidden = created_by?.staff === true && !isStaff;
  return { note, created_by: isHidden ? { ...created_by, name: null, viewer: null } : created_by };
}

export type ReplayLimits = {
  /** Replays of one account that still have deliveries to start. */
  readonly runningMax: number;
  /** Deliveries that wait in those. */
  readonly waitingMax: number;
};

export type NewReplay = {
  readonly filter: DeliveryFilter;
  readonly ratePerSecond: number;
  /** What the dry run counted; null: it does not matter. */
  readonly expectedMatched: number | null;
  readonly note: string | null;
  readonly createdBy: Actor;
  readonly analysisRetentionMs: number;
  readonly limits: ReplayLimits;
};

/** How far the set may be from what was expected: deliveries arrive, fail and expire all the time. */
const CHANGE_MAX = 0.01;

/** Fixes the set and begins, unless that is refused; then nothing was done. */
export async function createReplay(
  client: ClientBase,
  reader: Reader,
  asNew: NewReplay,
): Promise<StoredReplay | "too_many_deliveries" | "too_many_replays" | "replay_changed"> {
  const { accountId } = reader;
  const { filter, analysisRetentionMs, expectedMatched, createdBy } = asNew;
  // Counted apart: it is an index's work, where writing so many items down only to take them back is not.
  const count = await countReplayable(client, reader, filter, analysisRetentionMs);
  if (count > REPLAY_DELIVERIES_MAX) return "too_many_deliveries";
  if (expectedMatched !== null && Math.abs(count - expectedMatched) > CHANGE_MAX * expectedMatched) {
    return "replay_changed";
  }
  if (!(await hasRoomForReplay(client, accountId, count, asNew))) return "too_many_replays";
  const bulk = { items: count, keyId: createdBy.keyId };
  await refuseBeyondStorage(client, accountId, reader.spaceIds && REPLAYS_SHARE, bulk);
  const values: unknown[] = [
    accountId,
    JSON.stringify(filter),
    asNew.ratePerSecond,
    asNew.note,
    createdBy.kind,
    createdBy.keyId,
    createdBy.session?.viewer ?? null,
    await findNamedSpaces(client, reader, filter),
  ];
  const set = replayable(values, reader, filter, analysisRetentionMs);
  await client.query(`set local statement_timeout = ${FIX_SET_MS}`);
  const { rows } = await client.query<{ id: string }>({
    text: `with set as materialized (
        ${set.text} limit ${REPLAY_DELIVERIES_MAX}
      ), replay as (
        insert into sealpost.replays
          (account_id, filter, rate_per_second, note, created_by, created_by_key_id, created_by_viewer, created_at,
           paced_at, matched, status, ended_at, count_at, space_ids)
        select $1::uuid, $2::json, $3::integer, $4::text, $5::text, $6::uuid, $7::text, now(), now(), count(*),
          case when count(*) = 0 then 'done' else 'running' end, case when count(*) = 0 then now() end,
          case when count(*) > 0 then now() end,
          array(select space_id from set where space_id is not null union select unnest($8::uuid[]))
        from set
        returning id
      ), items as (
        insert into sealpost.replay_items (replay_id, position, delivery_id)
        select replay.id, row_number() over (order by set.id), set.id from set cross join replay
      )
      select id from replay`,
    values,
    query_timeout: FIX_SET_MS + ANSWER_MARGIN_MS,
  } as QueryConfig);
  return (await findReplay(client, reader, rows[0]!.id))!;
}

/** Of the analysis and the replay that a filter names: it is shown with the new replay, even where nothing matched. */
async function findNamedSpaces(
  client: ClientBase,
  reader: Reader,
  { analysis_id = null, replay_id = null }: DeliveryFilter,
): Promise<readonly string[]> {
  if (analysis_id === null && replay_id === null) return [];
  const delivery = sightOf(reader, "d", 4);
  const replay = sightOfReplay(reader, "r", 4);
  const { rows } = await client.query<{ id: string }>(
    `select d.space_id as id
     from sealpost.analyses as a join sealpost.deliveries as d on d.account_id = $1 and d.id = a.delivery_id
     where a.account_id = $1 and a.id = $2::text and d.space_id is not null${delivery.and}
     union
     select unnest(r.space_ids) from sealpost.replays as r
     where r.account_id = $1 and r.id = $3::uuid${replay.and}`,
    [reader.accountId, analysis_id, replay_id, ...delivery.values],
  );
  return rows.map(({ id }) => id);
}

/** Locks the account's row, so that two replays made at the same moment do not both take the last place. */
async function hasRoomForReplay(
  client: ClientBase,
  accountId: string,
  count: number,
  { createdBy, limits: { runningMax, waitingMax } }: NewReplay,
): Promise<boolean> {
  await client.query("select from sealpost.accounts where id = $1 for no key update", [accountId]);
  const { rows } = await client.query<{ running: Held; waiting: Held }>(
    `select json_build_object('inAll', count(r.id), 'ofUser', case when asking.user_id is not null
         then count(r.id) filter (where k.user_id = asking.user_id) end) as running,
       json_build_object('inAll', coalesce(sum(w.n), 0), 'ofUser', case when asking.user_id is not null
         then coalesce(sum(w.n) filter (where k.user_id = asking.user_id), 0) end) as waiting
     from (select (select user_id from sealpost.api_keys where id = $2)) as asking (user_id)
     left join sealpost.replays as r on r.account_id = $1 and r.status = 'running'
     left join sealpost.api_keys as k on k.id = r.created_by_key_id
     cross join lateral (select r.matched - r.replayed - r.skipped) as w (n)
     group by asking.user_id`,
    [accountId, createdBy.keyId],
  );
  const { running, waiting } = rows[0]!;
  return hasRoomFor(1, running, runningMax) && hasRoomFor(count, waiting, waitingMax);
}

/**
 * As the API answers, of an actor, a key and a viewer. Null: neither a key nor staff. In a cell that an account has
 * moved to, the actor alone knows who was staff: their keys have not moved.
 */
const makerOf = (actor: string, keyId: string, viewer: string) => `
  case when ${keyId} is not null or ${actor} = 'staff' then (
    select json_build_object(
      'staff', coalesce(${actor} in ('staff', 'staff_key'), false) or k.id is not null and k.account_id is null,
      'key_id', ${keyId}, 'name', k.name, 'viewer', ${viewer})
    from (select) as one left join sealpost.api_keys k on k.id = ${keyId}
  ) end`;

/** Entries of the audit log that the replays of one delivery are looked for in. */
const ENTRIES_LOOKED_AT_MAX = 10_000;

/** The runs of a delivery that somebody asked for, the newest first: in bulk, or of this one, which is audited. */
export async function findReplaysOf(
  database: Pool,
  accountId: string,
  deliveryId: string,
): Promise<readonly (Omit<DeliveryReplay, "created_by"> & Pick<StoredReplay, "created_by" | "ofUser">)[]> {
  const { rows } = await database.query({
    name: "find_replays_of_delivery",
    text: `select run, ${timeText("at")} as requested_at, replay_id, note,
        ${makerOf("actor", "key_id", "viewer")} as created_by,
        (select user_id from sealpost.api_keys as k where k.id = key_id) as "ofUser"
      from (
        select i.run, r.created_at as at, r.id as replay_id, r.note, r.created_by as actor,
          r.created_by_key_id as key_id, r.created_by_viewer as viewer
        from sealpost.replay_items as i join sealpost.replays as r on r.id = i.replay_id
        where i.delivery_id = $2 and r.account_id = $1 and i.outcome = 'replayed'
        union all
        select (a.details->>'run')::integer, sealpost.uuid_v7_time(a.id), null, null, a.actor, a.key_id, a.viewer
        from (
          select * from sealpost.audit_log where account_id = $1 and id > $2
          order by id desc limit ${ENTRIES_LOOKED_AT_MAX}
        ) as a
        where a.operation_key = 'webhooks.deliveries.replay' and a.details->>'delivery_id' = $2::text
          and a.details->>'run' is not null
      ) as asked
      order by run desc`,
    values: [accountId, deliveryId],
  });
  return rows;
}

/**
 * As the API answers; `c` has how those that were started stand. What has ended is all there is once it is done, even
 * where another replay has begun a delivery anew. Nobody made what the command line did; version 1.0 wrote no actor,
 * and only where a key was.
 */
const COLUMNS = `r.id, r.status, r.filter, r.rate_per_second, r.matched, r.replayed, r.skipped, c.succeeded,
  case r.status when 'done' then 0 else r.replayed - c.succeeded - c.failed end as waiting,
  case r.status when 'done' then 0 else c.failing end as failing,
  case r.status when 'done' then '[]' else c.failing_causes end as failing_causes, c.failed, r.note,
  ${makerOf("r.created_by", "r.created_by_key_id", "r.created_by_viewer")} as created_by,
  (select user_id from sealpost.api_keys where id = r.created_by_key_id) as "ofUser",
  ${timeText("r.created_at")} as created_at, ${timeText("r.ended_at")} as ended_at`;
const COUNTED = "r.succeeded, r.failed, r.failing, r.failing_causes";
const AS_LAST_COUNTED = `cross join lateral (select ${COUNTED}) as c`;

/**
 * With its progress at this moment, but for how those of a large one stand: that is as it was when last counted, for
 * counting 100,000 takes most of a second. Null: the reader sees no replay of this id.
 */
export async function findReplay(
  database: Pool | ClientBase,
  reader: Reader,
  replayId: string,
): Promise<StoredReplay | null> {
  const seen = sightOfReplay(reader, "r", 3);
  const { rows } = await database.query<StoredReplay>({
    name: `find_replay${seen.name}`,
    text: `select ${COLUMNS}
      from sealpost.replays r cross join lateral (
        select * from sealpost.replay_standing(r.id, r.account_id)
        where r.replayed <= ${COUNTED_AT_ONCE_MAX}
        union all
        select ${COUNTED} where r.replayed > ${COUNTED_AT_ONCE_MAX}
      ) as c
      where r.account_id = $1 and r.id = $2${seen.and}`,
    values: [reader.accountId, replayId, ...seen.values],
  });
  return rows[0] ?? null;
}

/** Those that the reader sees, newest first, as last counted. `belowId` null: from the newest. */
export async function listReplays(
  database: Pool | ClientBase,
  reader: Reader,
  belowId: string | null,
  limit: number,
): Promise<ListPage<StoredReplay>> {
  const seen = sightOfReplay(reader, "r", 4);
  const { rows } = await database.query<{ total: number; items: StoredReplay[] }>({
    name: `list_replays${seen.name}`,
    text: `select
        (select count(*)::integer from sealpost.replays r where account_id = $1${seen.and}) as total,
        (select coalesce(json_agg(page), '[]') from (
          select ${COLUMNS} from sealpost.replays r ${AS_LAST_COUNTED}
          where account_id = $1 and ($2::uuid is null or id < $2)${seen.and} order by id desc limit $3
        ) as page) as items`,
    values: [reader.accountId, belowId, limit + 1, ...seen.values],
  });
  const { total, items } = rows[0]!;
  return { ...cutPage(items, limit, ({ id }) => id), total };
}

/**
 * Replays of all accounts that start deliveries, or wait for the last of them, the newest first. They are found among
 * those that are still counted, as these all are: of the ended ones, only last week's with failures.
 */
export async function listRunningReplays(
  database: Pool,
  max: number,
): Promise<readonly (StoredReplay & { readonly account: AccountName })[]> {
  const { rows } = await database.query<StoredReplay & { readonly account: AccountName }>({
    name: "list_going_replays",
    text: `with going as materialized (
        select id from sealpost.replays where count_at is not null and status in ('running', 'delivering')
      ), newest as materialized (select id from going order by id desc limit $1)
      select ${COLUMNS}, json_build_object('id', a.id, 'name', a.name) as account
      from newest join sealpost.replays as r on r.id = newest.id ${AS_LAST_COUNTED}
      join sealpost.accounts as a on a.id = r.account_id and a.erased_at is null order by r.id desc`,
    values: [max],
  });
  return rows;
}

/** Stops a running replay, and drops what it has not replayed; an ended one is left as it is. Null: unknown. */
export async function cancelReplay(
  client: ClientBase | Pool,
  reader: Reader,
  replayId: string,
): Promise<StoredReplay | null> {
  const seen = sightOfReplay(reader, "r", 3);
  await client.query(cancelling(`id = $2${seen.and}`), [reader.accountId, replayId, ...seen.values]);
  return await findReplay(client, reader, replayId);
}

/** The same for all of a user's that have deliveries of a space which the user may not read any more. */
export async function cancelReplaysOf(
  client: ClientBase,
  { accountId, userId }: { readonly accountId: string; readonly userId: string },
  spaceId: string,
): Promise<void> {
  const isTheirs =
    "created_by_key_id in (select id from sealpost.api_keys where account_id = $1 and user_id = $2)";
  const which = `${isTheirs} and $3::uuid = any (space_ids)`;
  await client.query(cancelling(which), [accountId, userId, spaceId]);
}

function cancelling(which: string): string {
  return `with cancelled as (
      update sealpost.replays as r set status = 'cancelled', ended_at = now()
      where account_id = $1 and status = 'running' and ${which} returning id
    )
    delete from sealpost.replay_items as i using cancelled as c where i.replay_id = c.id and i.outcome is null`;
}
