import type { Pool } from "pg";
import type { Config } from "../base/config/config.ts";
import { OtherCellError } from "../base/database/cells.ts";
import { readMigrationNames } from "../base/database/migrate.ts";
import { findReadinessProblems, probeWriting, writeProblemOf } from "../base/database/readiness.ts";
import { createBuildMetrics, type DatabaseMetrics } from "../base/metrics/database-metrics.ts";
import { type MetricsServer, startMetricsServer } from "../base/metrics/metrics-server.ts";
import type { MetricsRegistry } from "../base/metrics/registry.ts";
import { setDatabaseClockGauge } from "./database-gauges-sql.ts";
import { cannotListen, httpUrl } from "./listening.ts";
import { version } from "./process-context.ts";

export type MonitoringOptions = {
  readonly config: Config;
  readonly registry: MetricsRegistry;
  readonly database: DatabaseMetrics;
  /** Queried whenever the metrics are read; its queries must time out within a few seconds. */
  readonly pool: Pool;
  readonly checkReadiness: ReadinessCheck;
  /** Sets further gauges from the database, or clears them while it does not answer. Must not reject. */
  readonly setGauges?: (isDatabaseUp: boolean) => Promise<void>;
  /** Milliseconds since the epoch. */
  readonly wallClockMs: () => number;
};

export type Monitoring = { readonly url: string; close(): Promise<void> };

/**
 * Serves the metrics of this process and its health and readiness probes.
 * @throws UsageError when it cannot listen on METRICS_PORT
 */
export async function startMonitoring(options: MonitoringOptions): Promise<Monitoring> {
  const { config, registry, database, pool, checkReadiness, setGauges, wallClockMs } = options;
  registry.addProcess();
  createBuildMetrics(registry)
    .info.of({ version, node: process.versions.node, cell: config.cell ?? "none" })
    .set(1);
  registry.onRead(
    singleFlight(async () => {
      const isDatabaseUp = await setDatabaseClockGauge(pool, database, wallClockMs);
      await setGauges?.(isDatabaseUp);
    }),
  );
  const { host, metricsPort: port } = config;
  let server: MetricsServer;
  try {
    server = await startMetricsServer({ registry, host, port, checkReadiness });
  } catch (error) {
    throw cannotListen("The metrics server", `HOST ${host}, METRICS_PORT ${port}`, error);
  }
  return { url: httpUrl(host, server.port), close: () => server.close() };
}

/** What keeps a process from doing its work, as sentences; empty when it is ready. Never rejects. */
export type ReadinessCheck = () => Promise<readonly string[]>;

/** However often somebody asks: while it succeeds, or somebody's lock is in the way, and after a failure. */
const WRITE_PROBED_EVERY_MS = 5_000;
const WRITE_RETRIED_EVERY_MS = 1_000;

/** Checks the database, its migrations and partitions, the key of its secrets, and that it takes a write. */
export async function createReadinessCheck(
  pool: Pool,
  { areas }: Pick<Config, "areas">,
  secretsKey: Uint8Array,
): Promise<ReadinessCheck> {
  const migrations = await readMigrationNames(areas);
  let written = Promise.resolve();
  let holdsUntilMs = Number.NEGATIVE_INFINITY;
  const write = () => {
    if (performance.now() < holdsUntilMs) return written;
    const hold = (ms: number) => {
      holdsUntilMs = performance.now() + ms;
    };
    hold(Number.POSITIVE_INFINITY);
    written = probeWriting(pool);
    written.then(
      () => hold(WRITE_PROBED_EVERY_MS),
      () => hold(WRITE_RETRIED_EVERY_MS),
    );
    return written;
  };
  return async () => {
    try {
      const problems = await findReadinessProblems(pool, migrations, secretsKey);
      // What cannot be used for another reason is not written to.
      if (problems.length === 0) await write();
      return problems.map(({ text }) => text);
    } catch (error) {
      if (error instanceof OtherCellError) return [error.message];
      const problem = writeProblemOf(error);
      if (problem !== null) return [problem];
      const { code, message } = error as NodeJS.ErrnoException;
      return [`The database does not answer (${code ?? message}).`];
    }
  };
}

/** Callers that come while `work` runs share that run: several scrapers cost no more than one. */
function singleFlight(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null;
  return () => {
    running ??= work().finally(() => {
      running = null;
    });
    return running;
  };
}
