import type { Pool } from "pg";
import type { PartitionedTable } from "../base/database/partitions.ts";
import type { CapacityMetrics } from "../base/metrics/database-metrics.ts";
import { addingGrowth } from "./database-gauges-sql.ts";

export type Capacity = {
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
  (select json_object_agg("table", bytes) from sized) as "logBytes",
  pg_database_size(current_database())::float8 as "databaseBytes",
  (select active_time from pg_stat_database where datname = current_database()) as "busyMsEver"`;

export async function readCapacity(pool: Pool): Promise<Capacity> {
  return (await pool.query<Capacity>({ name: "capacity", text: CAPACITY })).rows[0]!;
}

/** Sets what the cell uses of its PostgreSQL. Stale values are not reported. */
export function createCapacityGauges(
  pool: Pool,
  metrics: CapacityMetrics,
): (isDatabaseUp: boolean) => Promise<void> {
  const addBusy = addingGrowth(metrics.busySeconds.of({}));

  function clearAll(): void {
    metrics.logBytes.clear();
    metrics.databaseBytes.clear();
  }

  return async (isDatabaseUp) => {
    if (!isDatabaseUp) return clearAll();
    try {
      const { logBytes, databaseBytes, busyMsEver } = await readCapacity(pool);
      for (const [table, bytes] of Object.entries(logBytes)) {
        metrics.logBytes.of({ table: table as PartitionedTable }).set(bytes);
      }
      metrics.databaseBytes.of({}).set(databaseBytes);
      addBusy(busyMsEver / 1_000);
    } catch {
      clearAll();
    }
  };
}
