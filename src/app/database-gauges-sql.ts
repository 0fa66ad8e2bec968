import type { Pool } from "pg";
import { WAITING_WAKEUPS } from "../base/database/graphile-worker.ts";
import type { PartitionedTable } from "../base/database/partitions.ts";
import type { CapacityMetrics } from "../base/metrics/database-metrics.ts";
import type { QueueMetrics } from "../base/metrics/queue-metrics.ts";
import type { Tally } from "../base/metrics/registry.ts";
import { PARTITIONED_TABLES } from "../base/model/installation.ts";
import { provenForSeconds, restingBetweenTurns } from "../delivery/receivers-sql.ts";
import type { Sampled } from "./monitoring.ts";

/** At most so many due rows are read, which bounds what a scrape costs. */
const ROWS_LOOKED_AT_MAX = 20_000;
const WAKEUPS_COUNTED_MAX = 1_000;
/** A lane whose receiver has to prove itself has nothing in flight between its attempts, and is at work all along. */
const RESTING_FROM_S = 15;
const DAYS_LOOKED_AHEAD = 31;

/** Read as they are reported. */
const LEVELS = ["due", "held", "wakeupsWaiting", "replayDeliveriesWaiting"] as const;

/** The queue as the database sees it; `publishedEver`: since PostgreSQL's statistics began. */
type QueueLevels = Readonly<
  Record<
    (typeof LEVELS)[number] | "oldestDueIdleSeconds" | "oldestDueAtWorkSeconds" | "publishedEver",
    number
  >
>;

const URL_OF_OLDEST = "(select b.webhook_url from sealpost.bodies as b where b.delivery_id = oldest_id)";

/**
 * Publishing and promoting set wake_at to 15 s from then, so whatever is due or in flight has a wake_at that is past or
 * near, and its index leads to all of it. A lane flooded with a million deliveries has some further ahead, which are
 * not counted.
 */
const QUEUE = `
with bound as materialized (
  select coalesce(min(looked_from) filter (where until > now()), '-infinity') as looked_from from sealpost.leader
), looked_at as materialized (
  select account_id, delivery_id, lane, coalesce(lease_until > now(), false) as is_leased,
    coalesce(lease_until > now() or lease_started_at > now() - ${RESTING_FROM_S} * interval '1 s', false) as is_tried,
    extract(epoch from now() - due_at)::float8 as due_for
  from sealpost.open_deliveries
  -- Before the leader's bound are only the entries of what is gone, for as long as anybody holds a snapshot.
  where wake_at >= (select looked_from from bound) and wake_at <= now() + interval '30 seconds'
  order by wake_at
  limit ${ROWS_LOOKED_AT_MAX}
), counted as (
  select account_id, lane, bool_or(is_leased) as is_leased, bool_or(is_tried) as is_tried,
    count(*) filter (where not is_leased and due_for >= 0) as due,
    max(due_for) filter (where not is_leased) as oldest,
    (array_agg(delivery_id order by due_for desc) filter (where not is_leased))[1] as oldest_id
  from looked_at
  group by account_id, lane
), lanes as (
  select due,
    -- What waited for its receiver's proof is ours to serve from then on.
    least(oldest, proven_for) as oldest,
    is_leased or oldest > ${RESTING_FROM_S} and (
    -- One that has never answered also waits for others of its account that have not, and one that is not proven for
    -- the look-up of its name; of too many none may be seen.
    (bool_or(is_tried) over (partition by account_id) or (select count(*) = ${ROWS_LOOKED_AT_MAX} from looked_at))
    and (not exists (select from sealpost.answered_lanes as a
      where a.account_id = any (array[c.account_id]) and a.lane = any (array[c.lane]))
      or proven_for is null)
    or ${restingBetweenTurns("c.account_id", URL_OF_OLDEST)}) as is_at_work
  from counted as c left join lateral (
    select ${provenForSeconds("c.account_id", URL_OF_OLDEST)} as proven_for where oldest > ${RESTING_FROM_S} offset 0
  ) as p on true
)
select
  coalesce(sum(due), 0)::integer as due,
  (
    select count(*)::integer from (select from sealpost.held_deliveries limit ${ROWS_LOOKED_AT_MAX}) as held
  ) as held,
  greatest(max(oldest) filter (where not is_at_work), 0) as "oldestDueIdleSeconds",
  greatest(max(oldest) filter (where is_at_work), 0) as "oldestDueAtWorkSeconds",
  (
    select count(*)::integer from (
      ${WAITING_WAKEUPS} and run_at >= $1::timestamptz limit ${WAKEUPS_COUNTED_MAX}) as jobs
  ) as "wakeupsWaiting",
  (
    select coalesce(sum(matched - replayed - skipped), 0)::integer
    from sealpost.replays as r join sealpost.accounts as a on a.id = r.account_id and a.moved_to is null
    where r.status = 'running'
  ) as "replayDeliveriesWaiting",
  pg_stat_get_tuples_inserted('sealpost.analyses'::regclass)::float8 as "publishedEver"
from lanes`;

/** @param jobsFrom the `run_at` from which on wake-ups wait */
export async function readQueueLevels(pool: Pool, jobsFrom = "-infinity"): Promise<QueueLevels> {
  const { rows } = await pool.query<QueueLevels>({ name: "queue_levels", text: QUEUE, values: [jobsFrom] });
  return rows[0]!;
}

type PartitionLevels = {
  readonly table: PartitionedTable;
  /** Days after today that have a partition, without a gap; -1: today has none. */
  readonly ahead: number;
  /** How long ago the oldest day that is still there ended; null: there is none. */
  readonly endedForMs: number | null;
};

// Names first, dates after: unfenced, the planner reads a date out of every name in the catalog.
const PARTITIONS = `
with child as materialized (
  select relname as name from pg_class
  where relnamespace = 'sealpost'::regnamespace and relkind = 'r'
    and relname ~ '^(${PARTITIONED_TABLES.join("|")})_[0-9]{8}$'
)
select
  parent.name as "table",
  (
    select coalesce(min(n), ${DAYS_LOOKED_AHEAD}) - 1
    from generate_series(0, ${DAYS_LOOKED_AHEAD - 1}) as n
    where not exists (
      select from child
      where child.name = parent.name || '_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD'))
  )::integer as ahead,
  (
    select extract(epoch from
      now() - (to_date(right(min(child.name), 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC') * 1000
    from child where child.name like parent.name || '\\_%'
  )::float8 as "endedForMs"
from unnest('{${PARTITIONED_TABLES}}'::text[]) as parent (name)`;

export async function readPartitionLevels(pool: Pool): Promise<readonly PartitionLevels[]> {
  return (await pool.query<PartitionLevels>({ name: "partition_levels", text: PARTITIONS })).rows;
}

type Capacity = {
  readonly logBytes: Readonly<Record<PartitionedTable, number>>;
  readonly databaseBytes: number;
  /** Of all sessions of this database since its statistics began. */
  readonly busyMsEver: number;
};

// From the catalog: pg_total_relation_size would open each partition, and wait for who drops or attaches one.
const CAPACITY = `
with day as materialized (
  select parent.relname as "table", child.oid, child.reltoastrelid
  from pg_inherits
  join pg_class as parent on parent.oid = inhparent
  join pg_class as child on child.oid = inhrelid
  where parent.relnamespace = 'sealpost'::regnamespace
    and parent.relname = any ('{${PARTITIONED_TABLES}}')
), heap as materialized (
  select "table", oid from day
  union all
  select "table", reltoastrelid from day where reltoastrelid <> 0
), part as materialized (
  select "table", oid from heap
  union all
  select "table", indexrelid from heap join pg_index on indrelid = heap.oid
), sized as (
  select "table", sum(greatest(relpages, 0)) * current_setting('block_size')::integer as bytes
  from part join pg_class using (oid)
  group by "table"
)
select
  (select json_object_agg("table", bytes) from sized) as "logBytes",
  pg_database_size(current_database())::float8 as "databaseBytes",
  (select active_time from pg_stat_database where datname = current_database()) as "busyMsEver"`;

export async function readCapacity(pool: Pool): Promise<Capacity> {
  return (await pool.query<Capacity>({ name: "capacity", text: CAPACITY })).rows[0]!;
}

/**
 * The queue, read by every dispatcher and not only the leader, so that its gauges exist while there is no leader.
 * @param retentionMs how long a daily partition is kept after its day has ended
 */
export function sampleQueue(
  pool: Pool,
  queue: QueueMetrics,
  retentionMs: Readonly<Record<PartitionedTable, number>>,
  jobsFrom: () => string,
): Sampled {
  const addPublished = addingGrowth(queue.published.of({}));
  return {
    gauges: Object.values(queue).filter((metric) => "clear" in metric),
    read: async () => {
      const levels = await readQueueLevels(pool, jobsFrom());
      for (const name of LEVELS) queue[name].of({}).set(levels[name]);
      queue.oldestDue.of({ lane: "idle" }).set(levels.oldestDueIdleSeconds);
      queue.oldestDue.of({ lane: "at_work" }).set(levels.oldestDueAtWorkSeconds);
      addPublished(levels.publishedEver);
      for (const { table, ahead, endedForMs } of await readPartitionLevels(pool)) {
        const overstayMs = (endedForMs ?? 0) - retentionMs[table];
        queue.partitionsAhead.of({ table }).set(ahead);
        queue.partitionOverstay.of({ table }).set(Math.max(0, overstayMs) / 1_000);
      }
    },
    isVital: true,
  };
}

/** What the cell uses of its PostgreSQL. */
export function sampleCapacity(pool: Pool, metrics: CapacityMetrics): Sampled {
  const addBusy = addingGrowth(metrics.busySeconds.of({}));
  return {
    gauges: [metrics.logBytes, metrics.databaseBytes],
    read: async () => {
      const { logBytes, databaseBytes, busyMsEver } = await readCapacity(pool);
      for (const [table, bytes] of Object.entries(logBytes)) {
        metrics.logBytes.of({ table: table as PartitionedTable }).set(bytes);
      }
      metrics.databaseBytes.of({}).set(databaseBytes);
      addBusy(busyMsEver / 1_000);
    },
  };
}

/** Counts what PostgreSQL counts, which begins at 0 again after a crash or a reset. */
function addingGrowth(tally: Tally): (ever: number) => void {
  let before: number | null = null;
  return (ever) => {
    tally.add(Math.max(0, ever - (before ?? ever)));
    before = ever;
  };
}
