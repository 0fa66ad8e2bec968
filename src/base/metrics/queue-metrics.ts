import { NOTICE_KINDS } from "../model/notices.ts";
import type { MetricsRegistry } from "./registry.ts";

export type QueueMetrics = ReturnType<typeof createQueueMetrics>;

const TABLES = ["deliveries", "bodies", "attempts", "feed"] as const;

/** The queue as the database sees it; every dispatcher reports the same, so panels take the maximum. */
export function createQueueMetrics(registry: MetricsRegistry) {
  return {
    published: registry.counter({
      name: "sealpost_published_total",
      help: "Analyses published by anyone since this process first looked; rolled-back ones count too.",
      unit: "analyses",
      labels: {},
    }),
    due: registry.gauge({
      name: "sealpost_deliveries_due",
      help: "Due deliveries without an attempt in flight; counted up to 20,000.",
      unit: "deliveries",
      labels: {},
    }),
    overdue: registry.gauge({
      name: "sealpost_deliveries_overdue",
      help: "Those that have been due for over a minute.",
      unit: "deliveries",
      labels: {},
    }),
    oldestDue: registry.gauge({
      name: "sealpost_oldest_due_seconds",
      help:
        "How long the oldest due delivery has been due: in idle lanes (ours to serve), and in lanes at work, " +
        "where it waits for its own receiver.",
      unit: "seconds",
      labels: { lane: ["idle", "at_work"] },
    }),
    leased: registry.gauge({
      name: "sealpost_deliveries_leased",
      help: "Deliveries with an attempt in flight, of all dispatchers.",
      unit: "deliveries",
      labels: {},
    }),
    held: registry.gauge({
      name: "sealpost_deliveries_held",
      help: "Deliveries held for endpoints that are paused, or were until just now; counted up to 20,000.",
      unit: "deliveries",
      labels: {},
    }),
    wakeupsWaiting: registry.gauge({
      name: "sealpost_wakeups_waiting",
      help: "Wake-ups (of up to 50 deliveries) waiting for a dispatcher; counted up to 1,000.",
      unit: "jobs",
      labels: {},
    }),
    replaysRunning: registry.gauge({
      name: "sealpost_replays_running",
      help: "Bulk replays in progress.",
      unit: "replays",
      labels: {},
    }),
    replaysRunningOfOne: registry.gauge({
      name: "sealpost_replays_running_account_max",
      help: "Bulk replays in progress of the account that has most; at most REPLAYS_RUNNING_MAX.",
      unit: "replays",
      labels: {},
    }),
    replayDeliveriesWaiting: registry.gauge({
      name: "sealpost_replay_deliveries_waiting",
      help: "Deliveries that bulk replays have yet to start.",
      unit: "deliveries",
      labels: {},
    }),
    replayDeliveriesWaitingOfOne: registry.gauge({
      name: "sealpost_replay_deliveries_waiting_account_max",
      help: "Those of the account that has most; at most REPLAY_DELIVERIES_WAITING_MAX.",
      unit: "deliveries",
      labels: {},
    }),
    answeredLanes: registry.gauge({
      name: "sealpost_answered_lanes",
      help: "Receivers remembered as having answered, by PostgreSQL's estimate; at most 10,000 of an account.",
      unit: "lanes",
      labels: {},
    }),
    activityLag: registry.gauge({
      name: "sealpost_activity_lag_seconds",
      help: "How long ago the attempts ended up to which activity is counted; about a minute while there is a leader.",
      unit: "seconds",
      labels: {},
    }),
    partitionsAhead: registry.gauge({
      name: "sealpost_partitions_ahead",
      help: "Consecutive days after today that have a partition; -1: today's is missing and publishing fails.",
      unit: "days",
      labels: { table: TABLES },
    }),
    partitionOverstay: registry.gauge({
      name: "sealpost_partition_overstay_seconds",
      help: "How long the oldest day of a table has been overdue for dropping; 0: not overdue.",
      unit: "seconds",
      labels: { table: TABLES },
    }),
  };
}

export type FeedMetrics = ReturnType<typeof createFeedMetrics>;

/** The metrics of a process that can give events their places in the feed: each `serve` and each `dispatch`. */
export function createFeedMetrics(registry: MetricsRegistry) {
  return {
    lag: registry.gauge({
      name: "sealpost_feed_lag_seconds",
      help: "How long ago the feed last held all that had been published; below 1 while a process makes its steps.",
      unit: "seconds",
      labels: {},
    }),
    events: registry.counter({
      name: "sealpost_feed_events_total",
      help: "Events that this process has given their places in the feed; one process at a time does.",
      unit: "events",
      labels: {},
    }),
    failures: registry.counter({
      name: "sealpost_feed_failures_total",
      help: "Steps of the feed that failed in this process, and connections lost that listen to it.",
      unit: "failures",
      labels: {},
    }),
  };
}

export type NoticeMetrics = ReturnType<typeof createNoticeMetrics>;

/** The metrics of notices and their mails, in dispatchers. */
export function createNoticeMetrics(registry: MetricsRegistry) {
  return {
    notices: registry.counter({
      name: "sealpost_notices_total",
      help: "Notices made by this dispatcher, by kind.",
      unit: "notices",
      labels: { kind: NOTICE_KINDS },
    }),
    mails: registry.counter({
      name: "sealpost_notice_mails_total",
      help:
        "Tries to send a mail about notices, by how they ended: sent, perhaps_sent (cut on its way), failed (given " +
        "up), or waiting for another try.",
      unit: "mails",
      labels: { result: ["sent", "perhaps_sent", "failed", "waiting"] },
    }),
    faults: registry.counter({
      name: "sealpost_notice_faults_total",
      help: "Internal or database errors while watching endpoints, looking for news or sending mails; each is retried.",
      unit: "faults",
      labels: { work: ["watch", "look", "send"] },
    }),
  };
}
