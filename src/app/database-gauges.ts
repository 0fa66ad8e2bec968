import type { Pool } from "pg";
import type { DatabaseMetrics } from "../metrics/database-metrics.ts";
import type { QueueMetrics } from "../metrics/queue-metrics.ts";
import { readDatabaseClock, readPartitionLevels, readQueueLevels } from "../store/gauges.ts";
import type { PartitionedTable } from "../store/partitions.ts";

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
    const databaseMs = await readDatabaseClock(pool);
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
  const published = queue.published.of({});
  let publishedBefore: number | null = null;

  async function setAll(): Promise<void> {
    const levels = await readQueueLevels(pool);
    queue.due.of({}).set(levels.due);
    queue.overdue.of({}).set(levels.overdue);
    queue.leased.of({}).set(levels.leased);
    queue.held.of({}).set(levels.held);
    queue.oldestDue.of({ lane: "idle" }).set(levels.oldestDueIdleSeconds);
    queue.oldestDue.of({ lane: "at_work" }).set(levels.oldestDueAtWorkSeconds);
    queue.wakeupsWaiting.of({}).set(levels.wakeupsWaiting);
    queue.replaysRunning.of({}).set(levels.replaysRunning);
    queue.replaysRunningOfOne.of({}).set(levels.replaysRunningOfOne);
    queue.replayDeliveriesWaiting.of({}).set(levels.replayDeliveriesWaiting);
    queue.replayDeliveriesWaitingOfOne.of({}).set(levels.replayDeliveriesWaitingOfOne);
    queue.answeredLanes.of({}).set(levels.answeredLanes);
    queue.activityLag.of({}).set(levels.activityLagSeconds);
    // PostgreSQL resets its statistics after a crash and counts from 0 again.
    published.add(Math.max(0, levels.publishedEver - (publishedBefore ?? levels.publishedEver)));
    publishedBefore = levels.publishedEver;
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
