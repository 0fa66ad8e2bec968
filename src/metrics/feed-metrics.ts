import type { MetricsRegistry } from "./registry.ts";

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
