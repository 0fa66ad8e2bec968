import type { Pool } from "pg";
import { readClock } from "../base/database/cells.ts";
import { WAITING_WAKEUPS } from "../base/database/graphile-worker.ts";
import type { PartitionedTable } from "../base/database/partitions.ts";
import type { DatabaseMetrics } from "../base/metrics/database-metrics.ts";
import type { QueueMetrics } from "../base/metrics/queue-metrics.ts";
import type { Tally } from "../base/metrics/registry.ts";

/** At most so many due rows are read, which bounds what a scrape costs. */
const ROWS_LOOKED_AT_MAX = 20_000;
const WAKEUPS_COUNTED_MAX = 1_000;
const DAYS_LOOKED_AHEAD = 31;

/** The queue as the database sees it. */
export type QueueLevels = {
  readonly due: number;
  /** Of paused endpoints, and not released yet. */
  readonly held: number;
  /** Seconds that the oldest due one has been due, in lanes without an attempt under way and in those with one. */
  readonly oldestDueIdleSeconds: number;
  readonly oldestDueAtWorkSeconds: number;
  readonly wakeupsWaiting: number;
  /** Deliveries that running bulk replays have yet to start. */
  readonly replayDeliveriesWaiting: number;
  /** Rows inserted into the registry of analyses since PostgreSQL's statistics began. */
  readonly publishedEver: number;
};

/**
 * Publishing and promoting set wake_at to 15 s from then, so whatever is due or in flight has a wake_at that is past or
 * near, and its index leads to all of it. A lane flooded with a million deliveries has some further ahead, which are
 * not counted.
 */
const QUEUE = `
with looked_at as materialized (
  select
    lane, coalesce(lease_until > now(), false) as is_leased, extract(epoch from now() - due_at)::float8 as due_for
  from sealpost.open_deliveries
  where wake_at <= now() + interval '30 seconds'
  order by wake_at
  limit ${ROWS_LOOKED_AT_MAX}
), lanes as (
  select
    bool_or(is_leased) as is_at_work,
    count(*) filter (where not is_leased and due_for >= 0) as due,
    max(due_for) filter (where not is_leased) as oldest
  from looked_at
  group by lane
)
select
  coalesce(sum(due), 0)::integer as due,
  (
    select count(*)::integer from (select from sealpost.held_deliveries limit ${ROWS_LOOKED_AT_MAX}) as held
  ) as held,
  greatest(max(oldest) filter (where not is_at_work), 0) as "oldestDueIdleSeconds",
  greatest(max(oldest) filter (where is_at_work), 0) as "oldestDueAtWorkSeconds",
  (select count(*)::integer from (${WAITING_WAKEUPS} limit ${WAKEUPS_COUNTED_MAX}) as jobs) as "wakeupsWaiting",
  (
    select coalesce(sum(matched - replayed - skipped), 0)::integer
    from sealpost.replays as r join sealpost.accounts as a on a.id = r.account_id and a.moved_to is null
    where r.status = 'running'
  ) as "replayDeliveriesWaiting",
  pg_stat_get_tuples_inserted('sealpost.analyses'::regclass)::float8 as "publishedEver"
from lanes`;

export async function readQueueLevels(pool: Pool): Promise<QueueLevels> {
  const { rows } = await pool.query<QueueLevels>({ name: "queue_levels", text: QUEUE });
  return rows[0]!;
}

export type PartitionLevels = {
  readonly table: PartitionedTable;
  /** Days after today that have a partition, without a gap; -1: today has none. */
  readonly ahead: number;
  /** When the oldest day that is still there ended, in ms since the epoch; null: there is none. */
  readonly oldestDayEndedAtMs: number | null;
  /** The database's now. */
  readonly nowMs: number;
};

// Names first, dates after: unfenced, the planner reads a date out of every name in the catalog.
const PARTITIONS = `
with child as materialized (
  select relname as name from pg_class
  where relnamespace = 'sealpost'::regnamespace and relkind = 'r'
    and relname ~ '^(deliveries|bodies|attempts|feed)_[0-9]{8}$'
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
    select extract(epoch from (to_date(right(min(child.name), 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC') * 1000
    from child where child.name like parent.name || '\\_%'
  )::float8 as "oldestDayEndedAtMs",
  (extract(epoch from now()) * 1000)::float8 as "nowMs"
from (values ('deliveries'), ('bodies'), ('attempts'), ('feed')) as parent (name)`;

export async function readPartitionLevels(pool: Pool): Promise<readonly PartitionLevels[]> {
  return (await pool.query<PartitionLevels>({ name: "partition_levels", text: PARTITIONS })).rows;
}

/**
 * Sets whether the database is up and how far this machine's clock is from its clock. Resolves to whether it is up.
 */
export async function setDatabaseClockGauge(
  pool: Pool,
  database: DatabaseMetrics,
  wallClockMs: () => number,
): Promise<boolean> {
  try {
    const sentAtMs = wallClockMs();
    const databaseMs = await readClock(pool);
    const differenceMs = (sentAtMs + wallClockMs()) / 2 - databaseMs;
    database.up.of({}).set(1);
    database.clockDifference.of({}).set(differenceMs / 1_000);
    return true;
  } catch {
    database.up.of({}).set(0);
    database.clockDifference.clear();
    return false;
  }
}

export type QueueGaugesOptions = {
  readonly pool: Pool;
  readonly database: DatabaseMetrics;
  readonly queue: QueueMetrics;
  /** How long a daily partition is kept after its day has ended. */
  readonly retentionMs: Readonly<Record<PartitionedTable, number>>;
};

/**
 * Sets the gauges that are read from the database. Every dispatcher does, not only the leader, so that they exist while
 * there is no leader.
 */
export function createQueueGauges(options: QueueGaugesOptions): (isDatabaseUp: boolean) => Promise<void> {
  const { pool, database, queue, retentionMs } = options;
  const sampled = Object.values(queue).filter((metric) => "clear" in metric);
  const addPublished = addingGrowth(queue.published.of({}));

  async function setAll(): Promise<void> {
    const levels = await readQueueLevels(pool);
    queue.due.of({}).set(levels.due);
    queue.held.of({}).set(levels.held);
    queue.oldestDue.of({ lane: "idle" }).set(levels.oldestDueIdleSeconds);
    queue.oldestDue.of({ lane: "at_work" }).set(levels.oldestDueAtWorkSeconds);
    queue.wakeupsWaiting.of({}).set(levels.wakeupsWaiting);
    queue.replayDeliveriesWaiting.of({}).set(levels.replayDeliveriesWaiting);
    addPublished(levels.publishedEver);
    for (const { table, ahead, oldestDayEndedAtMs, nowMs } of await readPartitionLevels(pool)) {
      const overstayMs = oldestDayEndedAtMs === null ? 0 : nowMs - oldestDayEndedAtMs - retentionMs[table];
      queue.partitionsAhead.of({ table }).set(ahead);
      queue.partitionOverstay.of({ table }).set(Math.max(0, overstayMs) / 1_000);
    }
  }

  // Stale values are not reported. Alerts on them go quiet; the one on sealpost_database_up fires.
  function clearAll(): void {
    for (const gauge of sampled) gauge.clear();
  }

  return async (isDatabaseUp) => {
    if (!isDatabaseUp) return clearAll();
    try {
      await setAll();
    } catch {
      clearAll();
      database.up.of({}).set(0);
    }
  };
}

/** Counts what PostgreSQL counts, which begins at 0 again after a crash or a reset. */
export function addingGrowth(tally: Tally): (ever: number) => void {
  let before: number | null = null;
  return (ever) => {
    tally.add(Math.max(0, ever - (before ?? ever)));
    before = ever;
  };
}
