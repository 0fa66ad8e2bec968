import type { Pool } from "pg";
import type { DatabaseMetrics } from "../metrics/database-metrics.ts";
import type { QueueMetrics } from "../metrics/queue-metrics.ts";
import { readPartitionLevels, readQueueLevels } from "../store/gauges.ts";
import type { PartitionedTable } from "../store/partitions.ts";

export type QueueGaugesOptions = {
  readonly pool: Pool;
  readonly database: DatabaseMetrics;
  readonly queue: QueueMetrics;
  /** For how long a table's days are kept after their end. */
  readonly retentionMs: Readonly<Record<PartitionedTable, number>>;
};

/**
 * Sets the gauges that only the database can tell. Every dispatcher does, and not only the leader, so that they are
 * there while nobody leads, too.
 */
export function createQueueGauges(options: QueueGaugesOptions): (isDatabaseThere: boolean) => Promise<void> {
  const { pool, database, queue, retentionMs } = options;
  const sampled = Object.values(queue).filter((metric) => "clear" in metric);
  const published = queue.published.of({});
  let publishedBefore: number | null = null;

  async function setAll(): Promise<void> {
    const levels = await readQueueLevels(pool);
    queue.due.of({}).set(levels.due);
    queue.overdue.of({}).set(levels.overdue);
    queue.leased.of({}).set(levels.leased);
    queue.oldestDue.of({ lane: "idle" }).set(levels.oldestDueIdleSeconds);
    queue.oldestDue.of({ lane: "at_work" }).set(levels.oldestDueAtWorkSeconds);
    queue.wakeupsWaiting.of({}).set(levels.wakeupsWaiting);
    queue.replaysRunning.of({}).set(levels.replaysRunning);
    // PostgreSQL forgets its statistics when it crashes, and counts from 0 again.
    published.add(Math.max(0, levels.publishedEver - (publishedBefore ?? levels.publishedEver)));
    publishedBefore = levels.publishedEver;
    for (const { table, ahead, oldestDayEndedAtMs, nowMs } of await readPartitionLevels(pool)) {
      const overstayMs = oldestDayEndedAtMs === null ? 0 : nowMs - oldestDayEndedAtMs - retentionMs[table];
      queue.partitionsAhead.of({ table }).set(ahead);
      queue.partitionOverstay.of({ table }).set(Math.max(0, overstayMs) / 1_000);
    }
  }

  // What was true before is not said again. Alerts on it fall silent; the one on sealpost_database_up speaks.
  function clearAll(): void {
    for (const gauge of sampled) gauge.clear();
  }

  return async (isDatabaseThere) => {
    if (!isDatabaseThere) return clearAll();
    try {
      await setAll();
    } catch {
      clearAll();
      database.up.of({}).set(0);
    }
  };
}
