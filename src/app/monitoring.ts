import type { Pool } from "pg";
import type { Config } from "../config/config.ts";
import type { DatabaseMetrics } from "../metrics/database-metrics.ts";
import { type MetricsServer, startMetricsServer } from "../metrics/metrics-server.ts";
import type { MetricsRegistry } from "../metrics/registry.ts";
import { setDatabaseClockGauge } from "./database-clock-gauge.ts";
import { cannotListen, httpUrl } from "./listening.ts";
import type { FindHindrances } from "./readiness.ts";

export type MonitoringOptions = {
  readonly config: Config;
  readonly registry: MetricsRegistry;
  readonly database: DatabaseMetrics;
  /** Asked whenever the metrics are read; it has to give up within a few seconds. */
  readonly pool: Pool;
  readonly findHindrances: FindHindrances;
  /** Sets more gauges from the database, or takes them away while it does not answer. Must not reject. */
  readonly setGauges?: (isDatabaseThere: boolean) => Promise<void>;
  /** Milliseconds since the epoch. */
  readonly wallClockMs: () => number;
};

export type Monitoring = { readonly url: string; close(): Promise<void> };

/**
 * What monitors and probes see of a process: its metrics, whether it lives, whether it can work.
 *
 * @throws UsageError when METRICS_PORT cannot be had
 */
export async function startMonitoring(options: MonitoringOptions): Promise<Monitoring> {
  const { config, registry, database, pool, findHindrances, setGauges, wallClockMs } = options;
  registry.addProcess();
  registry.onRead(
    oneAtATime(async () => {
      const isThere = await setDatabaseClockGauge(pool, database, wallClockMs);
      await setGauges?.(isThere);
    }),
  );
  const { host, metricsPort: port } = config;
  let server: MetricsServer;
  try {
    server = await startMetricsServer({ registry, host, port, findHindrances });
  } catch (error) {
    throw cannotListen("The metrics", `HOST ${host}, METRICS_PORT ${port}`, error);
  }
  return { url: httpUrl(host, server.port), close: () => server.close() };
}

/** Whoever comes while it runs waits for the same run: several monitors cost no more than one. */
function oneAtATime(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null;
  return () => {
    running ??= work().finally(() => {
      running = null;
    });
    return running;
  };
}
