import type { MetricsRegistry } from "./registry.ts";

export type CapacityMetrics = ReturnType<typeof createCapacityMetrics>;

const TABLES = ["deliveries", "bodies", "attempts", "feed"] as const;

/** What a cell uses of its PostgreSQL; every dispatcher reports the same, so panels take the maximum. */
export function createCapacityMetrics(registry: MetricsRegistry) {
  return {
    logBytes: registry.gauge({
      name: "sealpost_log_bytes",
      help: "Size of the tables that grow by the day, with indexes and TOAST, by PostgreSQL's estimate.",
      unit: "bytes",
      labels: { table: TABLES },
    }),
    databaseBytes: registry.gauge({
      name: "sealpost_database_bytes",
      help: "Size of the whole database, other schemas included: what a restore has to bring back.",
      unit: "bytes",
      labels: {},
    }),
    walBytes: registry.counter({
      name: "sealpost_database_wal_bytes_total",
      help: "WAL that the server has written, for all its databases, since this process first looked.",
      unit: "bytes",
      labels: {},
    }),
    busySeconds: registry.counter({
      name: "sealpost_database_busy_seconds_total",
      help:
        "Time that sessions of this database spent on statements, waits for locks and the disk included, since this " +
        "process first looked: a second in each second is one busy session.",
      unit: "session seconds",
      labels: {},
    }),
  };
}
