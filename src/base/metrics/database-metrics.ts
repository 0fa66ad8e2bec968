import { PARTITIONED_TABLES } from "../model/installation.ts";
import type { MetricsRegistry } from "./registry.ts";

export type DatabaseMetrics = ReturnType<typeof createDatabaseMetrics>;

const QUERY_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** Of a dispatcher the first three; of an API process the rest: `log` reads the log on connections of `api`. */
export type PoolName = "dispatch" | "wakeups" | "general" | "api" | "log" | "listen" | "standby";

/** The metrics of this process's database access. */
export function createDatabaseMetrics(registry: MetricsRegistry) {
  const queries = registry.histogram({
    name: "sealpost_database_query_seconds",
    help: "Duration of a statement as seen here, by connection pool; log: the API's reads of the delivery log.",
    labels: { pool: null },
    buckets: QUERY_SECONDS,
  });
  const waiting = registry.gauge({
    name: "sealpost_database_connections_awaited",
    help: "Callers waiting for a connection because all of the pool's are busy.",
    unit: "requests",
    labels: { pool: null },
  });
  return {
    up: registry.gauge({
      name: "sealpost_database_up",
      help: "1 if the database was reachable when the metrics were read, else 0.",
      unit: "boolean",
    }),
    clockDifference: registry.gauge({
      name: "sealpost_clock_difference_seconds",
      help: "How far this machine's wall clock is ahead of the database's.",
    }),
    /** To be called for every statement of the pool. */
    observer: (pool: PoolName) => {
      const seconds = queries.of({ pool });
      return (durationMs: number): void => seconds.observe(durationMs / 1_000);
    },
    watch: (pool: PoolName, watched: { readonly waitingCount: number }): void => {
      const awaited = waiting.of({ pool });
      registry.onRead(() => awaited.set(watched.waitingCount));
    },
  };
}

export type CapacityMetrics = ReturnType<typeof createCapacityMetrics>;

/** What a cell uses of its PostgreSQL; every dispatcher reports the same, so panels take the maximum. */
export function createCapacityMetrics(registry: MetricsRegistry) {
  return {
    logBytes: registry.gauge({
      name: "sealpost_log_bytes",
      help: "Size of the tables that grow daily, with indexes and TOAST, by PostgreSQL's estimate.",
      unit: "bytes",
      labels: { table: PARTITIONED_TABLES },
    }),
    databaseBytes: registry.gauge({
      name: "sealpost_database_bytes",
      help: "Size of the whole database, other schemas included: what a restore has to bring back.",
      unit: "bytes",
    }),
    busySeconds: registry.counter({
      name: "sealpost_database_busy_seconds_total",
      help:
        "Time that sessions of this database spent on statements, waits for locks and the disk included, since this " +
        "process first looked: one second per second is one busy session.",
      unit: "session seconds",
    }),
  };
}

/** What each process may be at when it fails. `wakeups`: graphile-worker's runner, which is started again. */
export const WORK = [
  "claim",
  "deliver",
  "record",
  "lanes",
  "wakeups",
  "lead",
  "promote",
  "wake_proven",
  "advance_replays",
  "advance_holds",
  "sweep_jobs",
  "count_activity",
  "forget",
  "keep_house",
  "feed",
  "notices",
  "objects",
  "runs",
] as const;
export type Work = (typeof WORK)[number];

export type Faults = ReturnType<typeof createFaults>;

/** The same in each process; `works`: what this one does. */
export function createFaults(registry: MetricsRegistry, works: readonly Work[] = WORK) {
  return registry.counter({
    name: "sealpost_faults_total",
    help: "Internal errors, and errors of the database or the object store, by the work that failed; each is retried.",
    unit: "faults",
    labels: { work: works },
  });
}

/** Only of a process that sends spans. */
export function createDroppedSpans(registry: MetricsRegistry) {
  return registry.counter({
    name: "sealpost_spans_dropped_total",
    help: "Spans that were dropped: too many waited to be sent, or the collector did not take them.",
    unit: "spans",
    labels: { why: ["queue_full", "not_sent"] },
  });
}

/** What a process is, as a series that others can be joined with. */
export function createBuildInfo(registry: MetricsRegistry) {
  return registry.gauge({
    name: "sealpost_build_info",
    help: "Always 1; with the versions of Sealpost and Node that this process runs, and its cell (none: unset).",
    unit: "boolean",
    labels: { version: null, node: null, cell: null },
  });
}
