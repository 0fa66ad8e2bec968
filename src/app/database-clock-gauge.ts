import type { Pool } from "pg";
import type { DatabaseMetrics } from "../metrics/database-metrics.ts";
import { readDatabaseClock } from "../store/gauges.ts";

/** Sets, and says, whether the database answers; sets how far this machine's clock is from its own. */
export async function setDatabaseClockGauge(
  pool: Pool,
  database: DatabaseMetrics,
  wallClockMs: () => number,
): Promise<boolean> {
  try {
    const askedAtMs = wallClockMs();
    const databaseMs = await readDatabaseClock(pool);
    const differenceMs = (askedAtMs + wallClockMs()) / 2 - databaseMs;
    database.up.of({}).set(1);
    database.clockDifference.of({}).set(differenceMs / 1_000);
    return true;
  } catch {
    database.up.of({}).set(0);
    database.clockDifference.clear();
    return false;
  }
}
