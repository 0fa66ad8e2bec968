import type { Pool } from "pg";
import type { CapacityMetrics } from "../metrics/capacity-metrics.ts";
import type { Tally } from "../metrics/registry.ts";
import { readCapacity } from "../store/capacity.ts";
import type { PartitionedTable } from "../store/partitions.ts";

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
