import { PARTITIONED_TABLES } from "../model/installation.ts";
import type { MetricsRegistry } from "./registry.ts";

export type QueueMetrics = ReturnType<typeof createQueueMetrics>;

/** The queue as the database sees it; every dispatcher reports the same, so panels take the maximum. */
export function createQueueMetrics(registry: MetricsRegistry) {
  return {
    published: registry.counter({
      name: "sealpost_published_total",
      help: "Analyses published by anyone since this process first looked; rolled-back ones count too.",
      unit: "analyses",
    }),
    due: registry.gauge({
      name: "sealpost_deliveries_due",
      help: "Due deliveries without an attempt in flight; counted up to 20,000.",
      unit: "deliveries",
    }),
    oldestDue: registry.gauge({
      name: "sealpost_oldest_due_seconds",
      help:
        "How long the oldest due delivery has been due: in idle lanes (ours to serve), and in busy lanes, " +
        "where it waits for its own receiver, or its account's other new ones.",
      labels: { lane: ["idle", "at_work"] },
    }),
    held: registry.gauge({
      name: "sealpost_deliveries_held",
      help: "Deliveries held for endpoints that are paused, or were until just now; counted up to 20,000.",
      unit: "deliveries",
    }),
    wakeupsWaiting: registry.gauge({
      name: "sealpost_wakeups_waiting",
      help: "Wake-ups (of up to 50 deliveries) waiting for a dispatcher; counted up to 1,000.",
      unit: "jobs",
    }),
    replayDeliveriesWaiting: registry.gauge({
      name: "sealpost_replay_deliveries_waiting",
      help: "Deliveries that bulk replays have yet to start.",
      unit: "deliveries",
    }),
    partitionsAhead: registry.gauge({
      name: "sealpost_partitions_ahead",
      help: "Consecutive days after today that have a partition; -1: today's is missing and publishing fails.",
      unit: "days",
      labels: { table: PARTITIONED_TABLES },
    }),
    partitionOverstay: registry.gauge({
      name: "sealpost_partition_overstay_seconds",
      help: "How long the oldest day of a table has been overdue for dropping; 0: not overdue.",
      labels: { table: PARTITIONED_TABLES },
    }),
  };
}

/** Of a process that can give events their places in the feed: each `serve` and each `dispatch`. */
export function createFeedLag(registry: MetricsRegistry) {
  return registry.gauge({
    name: "sealpost_feed_lag_seconds",
    help: "How long ago the feed last held all that had been published; up to 11 at rest, below 1 under load.",
  });
}

export type NoticeMails = ReturnType<typeof createNoticeMails>;

/** In dispatchers. */
export function createNoticeMails(registry: MetricsRegistry) {
  return registry.counter({
    name: "sealpost_notice_mails_total",
    help:
      "Attempts to send a notice mail, by result: sent, perhaps_sent (interrupted), failed (given up), or " +
      "waiting for another attempt.",
    unit: "mails",
    labels: { result: ["sent", "perhaps_sent", "failed", "waiting"] },
  });
}
