import type { Pool } from "pg";
import type { PartitionedTable } from "../base/database/partitions.ts";
import type { CapacityMetrics } from "../base/metrics/database-metrics.ts";
import type { Tally } from "../base/metrics/registry.ts";

export type Capacity = {
  readonly logBytes: Readonly<Record<PartitionedTable, number>>;
  readonly databaseBytes: number;
  /** Where the WAL ends: it only ever grows, but for a restore. */
  readonly walBytesEver: number;
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
    and parent.relname in ('deliveries', 'bodies', 'attempts', 'feed')
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
  (select json_object_agg("table", bytes) from sized) as log_bytes,
  pg_database_size(current_database())::float8 as database_bytes,
  pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as wal_bytes_ever,
  (select active_time from pg_stat_database where datname = current_database()) as busy_ms_ever`;

/** @throws what PostgreSQL says when the server is no primary */
export async function readCapacity(pool: Pool): Promise<Capacity> {
  const { rows } = await pool.query<{
    log_bytes: Record<PartitionedTable, number>;
    database_bytes: number;
    wal_bytes_ever: number;
    busy_ms_ever: number;
  }>({ name: "capacity", text: CAPACITY });
  const row = rows[0]!;
  return {
    logBytes: row.log_bytes,
    databaseBytes: row.database_bytes,
    walBytesEver: row.wal_bytes_ever,
    busyMsEver: row.busy_ms_ever,
  };
}

/** Sets what the cell uses of its PostgreSQL. Stale values are not reported. */
export function createCapacityGauges(
  pool: Pool,
  metrics: CapacityMetrics,
): (isDatabaseUp: boolean) => Promise<void> {
  const addWal = addingGrowth(metrics.walBytes.of({}));
  const addBusy = addingGrowth(metrics.busySeconds.of({}));

  function clearAll(): void {
    metrics.logBytes.clear();
    metrics.databaseBytes.clear();
  }

  return async (isDatabaseUp) => {
    if (!isDatabaseUp) return clearAll();
    try {
      const { logBytes, databaseBytes, walBytesEver, busyMsEver } = await readCapacity(pool);
      for (const [table, bytes] of Object.entries(logBytes)) {
        metrics.logBytes.of({ table: table as PartitionedTable }).set(bytes);
      }
      metrics.databaseBytes.of({}).set(databaseBytes);
      addWal(walBytesEver);
      addBusy(busyMsEver / 1_000);
    } catch {
      // A standby has no WAL of its own; what else it may be, other gauges tell.
      clearAll();
    }
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
