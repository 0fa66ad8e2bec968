import type { MetricsRegistry } from "./registry.ts";

export type QueueMetrics = ReturnType<typeof createQueueMetrics>;

const TABLES = ["deliveries", "bodies", "attempts"] as const;

/** What the database knows of the queue; every dispatcher says the same, so panels take the largest. */
export function createQueueMetrics(registry: MetricsRegistry) {
  return {
    published: registry.counter({
      name: "sealpost_published_total",
      help: "Analyses published by anybody since this process looked first; rolled-back ones count too.",
      unit: "analyses",
      labels: {},
    }),
    due: registry.gauge({
      name: "sealpost_deliveries_due",
      help: "Deliveries that are due and have no attempt under way; counted up to 20,000.",
      unit: "deliveries",
      labels: {},
    }),
    overdue: registry.gauge({
      name: "sealpost_deliveries_overdue",
      help: "Those of them that have been due for over a minute.",
      unit: "deliveries",
      labels: {},
    }),
    oldestDue: registry.gauge({
      name: "sealpost_oldest_due_seconds",
      help:
        "For how long the oldest due delivery has been due: in lanes where no attempt is under way (ours to serve), " +
        "and in those at work, where it waits for its own receiver.",
      unit: "seconds",
      labels: { lane: ["idle", "at_work"] },
    }),
    leased: registry.gauge({
      name: "sealpost_deliveries_leased",
      help: "Deliveries with an attempt under way, of all dispatchers.",
      unit: "deliveries",
      labels: {},
    }),
    wakeupsWaiting: registry.gauge({
      name: "sealpost_wakeups_waiting",
      help: "Wake-ups (of up to 50 deliveries) that no dispatcher has taken; counted up to 1,000.",
      unit: "jobs",
      labels: {},
    }),
    replaysRunning: registry.gauge({
      name: "sealpost_replays_running",
      help: "Bulk replays that are under way.",
      unit: "replays",
      labels: {},
    }),
    partitionsAhead: registry.gauge({
      name: "sealpost_partitions_ahead",
      help: "Days after today that have a partition without a gap; -1: today's is missing and publishing fails.",
      unit: "days",
      labels: { table: TABLES },
    }),
    partitionOverstay: registry.gauge({
      name: "sealpost_partition_overstay_seconds",
      help: "For how long the oldest day of a table should have been dropped; 0: none should.",
      unit: "seconds",
      labels: { table: TABLES },
    }),
  };
}
