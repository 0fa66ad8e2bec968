import type { ClientBase, Pool } from "pg";
import { createdAtMs } from "../base/database/partitions.ts";
import { timeText } from "../base/database/time-text.ts";
import { abortableDelay, type Backoff, createBackoff } from "../base/model/backoff.ts";
import { EVENTS_BEHIND_COUNTED_MAX } from "../base/model/events.ts";
import type { Reader } from "../base/model/reader.ts";
import type { DeliveryStatus } from "../base/model/statuses.ts";
import { sightOfDelivery } from "../delivery/visibility-sql.ts";
import type { Envelope } from "../delivery/webhook.ts";

/** Where in an account's feed: microseconds since the epoch, at which the event there was sequenced. */
export type FeedPosition = number;

/** Before all that is kept, whenever it is asked for. */
export const OLDEST: FeedPosition = 0;

/** Up to where events are no longer kept, as SQL. @param retentionMs SQL */
const keptFrom = (retentionMs: string) =>
  `((extract(epoch from now()) - ${retentionMs}::float8 / 1000) * 1000000)::bigint`;

/** Events that one step gives positions to, at most. */
const EVENTS_PER_STEP_MAX = 1_000;

export type SequencingStep = {
  /** Whether this process is the one that makes steps. */
  readonly leads: boolean;
  readonly sequenced: number;
  /** There is more than one step takes. */
  readonly isFull: boolean;
};

/**
 * Gives positions to what has committed since the last step, if `holder` has the lease or nobody has; the lease then
 * lasts for `leaseMs` from now. See sql/0012_feed.sql.
 */
export async function sequenceEvents(pool: Pool, holder: string, leaseMs: number): Promise<SequencingStep> {
  const { rows } = await pool.query<SequencingStep>({
    name: "sequence_events",
    text: `select leads, sequenced, is_full as "isFull"
      from sealpost.sequence_events($1, $2::float8 * interval '1 millisecond', $3)`,
    values: [holder, leaseMs, EVENTS_PER_STEP_MAX],
  });
  return rows[0]!;
}

const LAST_STEP = "select * from sealpost.feed_steps order by step desc limit 1";

/** Ends the lease of `holder`, if it has it: another process makes the next step. */
export async function endSequencingLease(pool: Pool, holder: string): Promise<void> {
  await pool.query(
    `insert into sealpost.feed_steps (step, holder, lease_until, position, serial, gaps, caught_up_at)
     select step + 1, holder, clock_timestamp(), position, serial, gaps, caught_up_at
     from (${LAST_STEP}) as last where holder = $1
     on conflict (step) do nothing`,
    [holder],
  );
}

/** Seconds since the feed last held all that had committed. */
export async function readFeedLag(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ lag: number }>({
    name: "feed_lag",
    text: `select greatest(extract(epoch from clock_timestamp() - caught_up_at), 0)::float8 as lag
      from (${LAST_STEP}) as last`,
  });
  return rows[0]!.lag;
}

/** What an account's feed holds beyond a place. Times in ms since the epoch, database time. */
export type FeedPlaces = {
  readonly places: readonly { readonly position: FeedPosition; readonly deliveryId: string }[];
  /** Where the look ended for whom much is to be passed over; null: at the last of the places, or at the end. */
  readonly lookedTo: FeedPosition | null;
  /** The newest position that the same look at the database knew; what comes later is beyond it. */
  readonly newest: FeedPosition;
  /** What is sequenced before this is no longer read. */
  readonly oldest: FeedPosition;
  readonly nowMs: number;
};

/** Places that one statement looks at for a user, who may see few of them. */
const PLACES_LOOKED_AT_MAX = 10_000;

/**
 * One statement, which touches no delivery unless a user reads: most readers are at the end, and have to ask often.
 *
 * @param after null: after the newest of all
 * @param retentionMs how long an event is read
 */
export async function findFeedPlaces(
  database: Pool | ClientBase,
  reader: Reader,
  after: FeedPosition | null,
  retentionMs: number,
  placesMax: number,
): Promise<FeedPlaces> {
  const seen = sightOfDelivery(reader, "$1", "placed.delivery_id", 5);
  const beyond = `select position, delivery_id from sealpost.feed
        where account_id = $1 and moved.is_deleted is not true
          and position > greatest($2::bigint, ${keptFrom("$4")})
        order by position`;
  const looked = `${beyond} limit ${PLACES_LOOKED_AT_MAX}`;
  const isPassingOver = seen.and !== "";
  const passingOver = `select * from (${looked}) as placed where true${seen.and} order by position`;
  const { rows } = await database.query<Omit<FeedPlaces, "oldest">>({
    name: `find_feed_places${seen.name}`,
    // The feed of an account that has moved ends here: what is newer is in the other cell's. While its places are
    // deleted here, and after, a reader stays where he is: they are all there.
    text: `select
        least(last.position, moved.feed_ends_at, case when moved.is_deleted then $2::bigint end)::float8 as newest,
        extract(epoch from clock_timestamp())::float8 * 1000 as "nowMs",
        coalesce(json_agg(json_build_object('position', found.position, 'deliveryId', found.delivery_id)
          order by found.position) filter (where found.position is not null), '[]') as places,
        ${isPassingOver ? `case when count(found.position) < $3 then (${lastOf(looked)})::float8 end` : "null"}
          as "lookedTo"
      from (${LAST_STEP}) as last
      left join (
        select feed_ends_at, step in ('deleting', 'deleted') as is_deleted
        from sealpost.moves where account_id = $1 and direction = 'out'
      ) as moved on true
      left join lateral (
        ${isPassingOver ? passingOver : beyond} limit $3
      ) as found on true
      group by last.position, moved.feed_ends_at, moved.is_deleted`,
    values: [reader.accountId, after ?? "9223372036854775807", placesMax, retentionMs, ...seen.values],
  });
  const found = rows[0]!;
  return { ...found, oldest: Math.max(0, Math.floor((found.nowMs - retentionMs) * 1_000)) };
}

const lastOf = (places: string) =>
  `select position from (${places}) as looked offset ${PLACES_LOOKED_AT_MAX - 1} limit 1`;

/** An event of the feed with all that its webhook is made of. */
export type FeedEvent = Envelope & { readonly status: DeliveryStatus };

/**
 * The first of these deliveries whose analyses have `bytesMax` bytes together, but at least one. Walked one by one, so
 * that no text is read that does not fit, but for the first one. A delivery whose analysis is no longer kept is null.
 */
export async function findFeedEvents(
  database: Pool | ClientBase,
  accountId: string,
  deliveryIds: readonly string[],
  bytesMax: number,
): Promise<readonly (FeedEvent | null)[]> {
  type Row = { [Name in Exclude<keyof FeedEvent, "createdAtMs">]: FeedEvent[Name] | null };
  const { rows } = await database.query<Row & { id: string }>({
    name: "find_feed_events",
    text: `with recursive walked as (
        select 0 as n, null::text as event, null::text as text, 0::bigint as bytes
        union all
        select walked.n + 1, body.event, body.text, walked.bytes + coalesce(octet_length(body.text), 0)
        from walked left join lateral (
          select b.event, coalesce(b.reference, b.analysis::text) as text from sealpost.bodies as b
          where b.delivery_id = ($2::uuid[])[walked.n + 1] and b.account_id = $1
        ) as body on true
        where walked.n < cardinality($2::uuid[]) and walked.bytes < $3::bigint
      )
      select ($2::uuid[])[n] as id, event, text as "analysisText", (
        select status from sealpost.deliveries where account_id = $1 and id = ($2::uuid[])[n]
      ) as status
      from walked where n = 1 or (n > 1 and bytes <= $3::bigint)
      order by n`,
    values: [accountId, deliveryIds, bytesMax],
  });
  return rows.map(({ id, event, status, analysisText }) => {
    if (event === null || analysisText === null || status === null) return null;
    return { id, event, createdAtMs: createdAtMs(id), status, analysisText };
  });
}

/** Names of an account. */
const CONSUMERS_MAX = 100;
/** For so long after it was seen readers of a name are told of another. */
const OTHER_TOLD = "interval '1 day'";

/** A reader whose place is kept here. */
export type Consumer = {
  readonly accountId: string;
  readonly name: string;
  /** With which it asks. */
  readonly keyId: string;
};

/** Null: nobody has read to a place under this name. `otherSeenAtMs`: within the last day, or null. */
export async function findConsumer(
  pool: Pool,
  { accountId, name }: Consumer,
): Promise<{ readonly position: FeedPosition; readonly otherSeenAtMs: number | null } | null> {
  const { rows } = await pool.query<{ position: number; otherSeenAtMs: number | null }>({
    name: "find_consumer",
    text: `select position::float8 as position, extract(epoch from case
        when other_seen_at > now() - ${OTHER_TOLD} then other_seen_at end)::float8 * 1000 as "otherSeenAtMs"
      from sealpost.feed_consumers where account_id = $1 and name = $2`,
    values: [accountId, name],
  });
  return rows[0] ?? null;
}

/**
 * Keeps that everything up to `to` is done, never less than before. There is a second reader of the name if somebody
 * has gone beyond `from`, where the page had begun that ends at `to`; or if another key had the name within a day.
 * False: the account has too many names. Two that are new at once may both take the last place: nothing hangs on it.
 */
export async function acknowledge(
  tx: ClientBase,
  { accountId, name, keyId }: Consumer,
  [to, from]: readonly [to: FeedPosition, from: FeedPosition],
): Promise<boolean> {
  const { rowCount } = await tx.query({
    name: "acknowledge",
    text: `insert into sealpost.feed_consumers as kept (account_id, name, position, updated_at, key_id)
      select $1::uuid, $2::text, least($3::bigint, last.position), now(), $5::uuid
      from (${LAST_STEP}) as last
      where exists (select from sealpost.feed_consumers where account_id = $1 and name = $2)
        or (select count(*) from sealpost.feed_consumers where account_id = $1) < ${CONSUMERS_MAX}
      on conflict (account_id, name) do update set
        position = greatest(kept.position, excluded.position), updated_at = now(), key_id = excluded.key_id,
        other_seen_at = case
          when kept.position > $4 or (kept.key_id <> excluded.key_id and kept.updated_at > now() - ${OTHER_TOLD})
          then now() else kept.other_seen_at end`,
    values: [accountId, name, to, from, keyId],
  });
  return rowCount === 1;
}

/** From one place to another there is nothing to read. Not while the account moves, or once it has. */
export async function passOver(
  pool: Pool,
  { accountId, name, keyId }: Consumer,
  from: FeedPosition,
  to: FeedPosition,
): Promise<void> {
  await pool.query(
    `update sealpost.feed_consumers set position = $4, updated_at = now(), key_id = $5
     where account_id = $1 and name = $2 and position = $3
       and exists (select from sealpost.accounts where id = $1 and moved_to is null)`,
    [accountId, name, from, to, keyId],
  );
}

export type KeptConsumer = {
  readonly name: string;
  readonly read_to: string;
  readonly updated_at: string;
  readonly events_behind: number;
  readonly behind_since: string | null;
  readonly expired: boolean;
  readonly other_seen_at: string | null;
};

/** By name. `retentionMs`: how long an event is read. Times as answers have them. */
export async function listConsumers(
  database: Pool,
  accountId: string,
  retentionMs: number,
): Promise<readonly KeptConsumer[]> {
  const momentOf = (position: string) => timeText(`to_timestamp(${position} / 1000000.0)`);
  const { rows } = await database.query<KeptConsumer>({
    name: "list_consumers",
    text: `select name, ${momentOf("kept.position")} as read_to, ${timeText("updated_at")} as updated_at,
        behind.events as events_behind, ${momentOf("behind.first")} as behind_since,
        kept.position > ${OLDEST} and kept.position < kept_from.position as expired,
        case when other_seen_at > now() - ${OTHER_TOLD} then ${timeText("other_seen_at")} end as other_seen_at
      from sealpost.feed_consumers as kept
      cross join (
        select ${keptFrom("$2")} as position
      ) as kept_from
      cross join lateral (
        select count(*)::integer as events, min(position) as first from (
          select position from sealpost.feed
          where account_id = $1 and position > greatest(kept.position, kept_from.position)
          order by position limit ${EVENTS_BEHIND_COUNTED_MAX}
        ) as placed
      ) as behind
      where kept.account_id = $1 order by name collate "C"`,
    values: [accountId, retentionMs],
  });
  return rows;
}

/** False: there was none. */
export async function removeConsumer(tx: ClientBase, accountId: string, name: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    "delete from sealpost.feed_consumers where account_id = $1 and name = $2",
    [accountId, name],
  );
  return rowCount === 1;
}

/** As sealpost.sequence_events names it, and as sealpost.announce_wakeups does. */
const CHANNEL = "sealpost_feed";
const PUBLISHED = "jobs:insert";
/** A network that has forgotten the connection says nothing, so the database is asked now and then. */
const ASKED_EVERY_MS = 10_000;
const RECONNECT_BACKOFF = { baseMs: 100, maxMs: 5_000 };

export type FeedNewsOptions = {
  /** One connection of it is kept for as long as this listens. */
  readonly pool: Pool;
  readonly onNews: (accountIds: readonly string[]) => void;
  /** Something was published, which may not be in anybody's feed yet. */
  readonly onPublished: () => void;
  /** Listening has begun, at the start or again: what was told meanwhile has been missed. */
  readonly onListening: () => void;
  readonly onError: (error: unknown) => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

export type FeedNews = { stop(): Promise<void> };

/** Listens for accounts whose feeds have grown, until stopped; connects again when it has to. */
export function listenToFeed(options: FeedNewsOptions): FeedNews {
  const stopping = new AbortController();
  const { signal } = stopping;
  const backoff = createBackoff(RECONNECT_BACKOFF, options.random);

  async function listenUntilStopped(): Promise<void> {
    while (!signal.aborted) {
      await listenOnce(signal, options, backoff).catch((error: unknown) => {
        if (!signal.aborted) options.onError(error);
      });
      await abortableDelay(backoff.nextMs(), signal);
    }
  }

  const listening = listenUntilStopped();
  return {
    stop: async () => {
      stopping.abort();
      await listening;
    },
  };
}

/** Until stopped, or until the connection fails: then it throws. */
async function listenOnce(signal: AbortSignal, options: FeedNewsOptions, backoff: Backoff): Promise<void> {
  const client = await options.pool.connect();
  const failed = new AbortController();
  const ended = AbortSignal.any([signal, failed.signal]);
  client.on("end", () => failed.abort());
  client.on("notification", ({ channel, payload = "" }) => {
    if (channel === CHANNEL) options.onNews(payload.split(" "));
    else options.onPublished();
  });
  try {
    await client.query(`listen ${CHANNEL}; listen "${PUBLISHED}"`);
    backoff.reset();
    options.onListening();
    while (!ended.aborted) {
      await abortableDelay(ASKED_EVERY_MS, ended);
      if (!ended.aborted) await client.query("select");
    }
    if (!signal.aborted) throw new Error("the connection that listens to the feed has ended");
  } finally {
    // Not to be used for anything else: it would go on listening.
    client.release(true);
  }
}
