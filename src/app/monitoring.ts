import type { Pool } from "pg";
import type { Config } from "../base/config/config.ts";
import { OtherCellError, readClock } from "../base/database/cells.ts";
import { readMigrationNames } from "../base/database/migrate.ts";
import { findReadinessProblems, probeWriting, writeProblemOf } from "../base/database/readiness.ts";
import { tlsFaultOf } from "../base/database/transaction.ts";
import { createBuildInfo, type DatabaseMetrics } from "../base/metrics/database-metrics.ts";
import { startMetricsServer } from "../base/metrics/metrics-server.ts";
import type { MetricsRegistry } from "../base/metrics/registry.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { cannotListen, httpUrl } from "./listening.ts";
import { version } from "./process-context.ts";

/** Gauges that are read from the database whenever the metrics are read. */
export type Sampled = {
  /** Cleared while there is no answer: stale values are not reported. */
  readonly gauges: readonly { clear(): void }[];
  /** Sets them. */
  readonly read: () => Promise<void>;
  /** Whether the database counts as down when they cannot be read: alerts on them go quiet, and that one fires. */
  readonly isVital?: true;
};

/** Resolves to whether there was an answer. */
export async function sample({ gauges, read }: Sampled): Promise<boolean> {
  try {
    await read();
    return true;
  } catch {
    for (const gauge of gauges) gauge.clear();
    return false;
  }
}

export type MonitoringOptions = {
  readonly config: Config;
  readonly secretsKey: SecretsKey;
  readonly registry: MetricsRegistry;
  readonly database: DatabaseMetrics;
  /** Queried whenever the metrics are read; its queries must time out within a few seconds. */
  readonly pool: Pool;
  /** Read one after the other. */
  readonly sampled: readonly Sampled[];
  /** Milliseconds since the epoch. */
  readonly wallClockMs: () => number;
};

/**
 * Serves the metrics of this process and its health and readiness probes. Returns their URL, and what ends it.
 * @throws UsageError when it cannot listen on METRICS_PORT
 */
export async function startMonitoring(options: MonitoringOptions) {
  const { config, registry, database, pool, sampled } = options;
  registry.addProcess();
  createBuildInfo(registry)
    .of({ version, node: process.versions.node, cell: config.cell ?? "none" })
    .set(1);
  const up = database.up.of({});
  const clock = sampleClock(options);
  const sampleAll = async () => {
    const isUp = await sample(clock);
    up.set(Number(isUp));
    for (const each of sampled) {
      if (!isUp) for (const gauge of each.gauges) gauge.clear();
      else if (!(await sample(each)) && each.isVital) up.set(0);
    }
  };
  // Shared by whoever reads meanwhile: several scrapers cost no more than one.
  let running: Promise<void> | null = null;
  registry.onRead(() => {
    running ??= sampleAll().finally(() => {
      running = null;
    });
    return running;
  });
  const { host, metricsPort: port } = config;
  const checkReadiness = await createReadinessCheck(pool, config, options.secretsKey);
  const server = await startMetricsServer({ registry, host, port, checkReadiness }).catch(
    cannotListen("The metrics server", `HOST ${host}, METRICS_PORT ${port}`),
  );
  return { url: httpUrl(host, server.port), close: () => server.close() };
}

/** How far this machine's clock is from the database's. */
function sampleClock({ pool, database: { clockDifference }, wallClockMs }: MonitoringOptions): Sampled {
  return {
    gauges: [clockDifference],
    read: async () => {
      const sentAtMs = wallClockMs();
      const databaseMs = await readClock(pool);
      clockDifference.of({}).set(((sentAtMs + wallClockMs()) / 2 - databaseMs) / 1_000);
    },
  };
}

/** However often somebody asks: while it succeeds, or somebody's lock is in the way, and after a failure. */
const WRITE_PROBED_EVERY_MS = 5_000;
const WRITE_RETRIED_EVERY_MS = 1_000;

/**
 * Checks the database, its migrations and partitions, the key of its secrets, and that it takes a write. The check
 * resolves to what keeps a process from doing its work, as sentences; empty when it is ready. It never rejects.
 */
export async function createReadinessCheck(
  pool: Pool,
  { areas }: Pick<Config, "areas">,
  secretsKey: SecretsKey,
): Promise<() => Promise<readonly string[]>> {
  const migrations = await readMigrationNames(areas);
  let written = Promise.resolve();
  let holdsUntilMs = Number.NEGATIVE_INFINITY;
  const hold = (ms: number) => {
    holdsUntilMs = performance.now() + ms;
  };
  const write = () => {
    if (performance.now() < holdsUntilMs) return written;
    hold(Number.POSITIVE_INFINITY);
    // What another process is about to find out is not known here: it stays as it was.
    const before = written;
    written = probeWriting(pool).then((isKnown) => (isKnown ? undefined : before));
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
      const problem = writeProblemOf(error) ?? tlsFaultOf(error);
      if (problem !== null) return [problem];
      const { code, message } = error as NodeJS.ErrnoException;
      return [`The database does not answer (${code ?? message}).`];
    }
  };
}
