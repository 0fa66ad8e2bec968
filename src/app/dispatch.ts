import { fork } from "node:child_process";
import { once } from "node:events";
import type { Logger } from "pino";
import { readConfig } from "../base/config/config.ts";
import { readingGauges } from "../base/database/pools.ts";
import { createCapacityMetrics } from "../base/metrics/database-metrics.ts";
import { createQueueMetrics } from "../base/metrics/queue-metrics.ts";
import { createMetricsRegistry } from "../base/metrics/registry.ts";
import {
  createAttemptLog,
  createAttemptMetrics,
  type DispatchObserver,
  tellAll,
} from "../delivery/attempt-observers.ts";
import { createProcessMetrics } from "../delivery/process-metrics.ts";
import { createQuarantine, type QuarantineRun } from "../delivery/quarantine.ts";
import { startAreaChecks, startAreaSteps, startAreaWork } from "./areas.ts";
import { findDatabase, untilMigrated, warnOfPlainDatabases } from "./database.ts";
import { sampleCapacity, sampleQueue } from "./database-gauges-sql.ts";
import {
  type DispatcherPools,
  deliverInQuarantine,
  openDispatcherPools,
  startDispatching,
} from "./dispatch-process.ts";
import { createEgress } from "./egress.ts";
import { sampleFeed, startSequencing } from "./feed.ts";
import { daysKeptMs, retentionOf } from "./housekeeping.ts";
import { startMonitoring } from "./monitoring.ts";
import { startNotices } from "./notices.ts";
import { collectRarely, MAIN_FILE, type ProcessContext, version } from "./process-context.ts";
import { createProcessLog } from "./process-log.ts";
import { startTraces } from "./traces.ts";

/** Exit codes of the quarantine's process. Busy is EX_TEMPFAIL of sysexits.h: another such process is running. */
const BUSY = 75;
const FAILED = 1;

/** Runs a dispatcher with its metrics until shutdown, then finishes the attempts in flight. */
export async function runDispatcher(context: ProcessContext): Promise<void> {
  collectRarely();
  const shutdown = context.createShutdownSignal();
  const quarantine = createQuarantine((ids, stopping) => forkQuarantine(ids, stopping, context, options.log));
  const options = await createOptions(context, (deliveryId) => quarantine.add(deliveryId));
  const { config, log, metrics } = options;
  const { unsafeAllowedTargets } = config;
  if (unsafeAllowedTargets) log.warn({ unsafeAllowedTargets }, "UNSAFE: webhooks may go to private targets");
  warnOfPlainDatabases(config, log);
  // When the start fails, whatever already runs would keep the process alive.
  await using resources = new AsyncDisposableStack();
  resources.defer(options.stopTraces);
  const pools = openDispatcherPools(options, metrics.database);
  resources.defer(() => pools.end());
  const monitoring = await startDispatchMonitoring(options, pools);
  resources.defer(() => monitoring.close());
  // Nobody leads while all of them wait.
  metrics.dispatch.leads.of({}).set(0);
  await untilMigrated(options, log, monitoring.url, shutdown);
  if (shutdown.aborted) return log.info("stopped: nothing had begun");
  const sequencer = startSequencing(pools.general, metrics.faults.of({ work: "feed" }), log);
  resources.defer(() => sequencer.stop());
  let attempts = 0;
  const observers: Partial<DispatchObserver>[] = [
    { attemptRecorded: () => void attempts++ },
    options.observer,
  ];
  // With the webhooks, those also who watch endpoints and send notices.
  if (config.areas.includes("webhooks")) {
    const notices = startNotices(config, pools.slow, log, metrics);
    resources.defer(() => notices.stop());
    observers.push(notices.observer);
  }
  // All of it at once: what an area waits for holds up no webhooks, which are claimed no more from the first moment.
  const stops: (() => Promise<void>)[] = [];
  resources.defer(async () => void (await Promise.all(stops.map((stop) => stop()))));
  const dispatching = startDispatching(
    { ...options, observer: tellAll(observers), onPublished: () => sequencer.tell() },
    pools,
  );
  stops.push(dispatching.stop, () => quarantine.stop());
  const areas = { ...options, context, pool: pools.slow, countAttempts: () => attempts };
  stops.push(startAreaChecks(areas), startAreaWork(areas));
  context.sendToParent({ ready: true, metrics: monitoring.url });
  const told = { version, areas: config.areas, in_flight_max: config.dispatchInFlightMax };
  log.info({ ...told, metrics_url: monitoring.url }, "dispatching");
  if (!shutdown.aborted) await once(shutdown, "abort");
  log.info("stopping: claiming nothing more, finishing attempts in flight");
  await resources.disposeAsync();
  log.info("stopped");
}

/**
 * Posts deliveries one at a time, with nothing else in flight: the child process of a dispatcher's quarantine. Errors
 * go to the log, because no person started it.
 */
export async function runQuarantine(
  context: ProcessContext,
  deliveryIds: readonly string[],
): Promise<typeof BUSY | typeof FAILED | 0> {
  const shutdown = context.createShutdownSignal();
  const options = await createOptions(context, () => undefined);
  try {
    return (await deliverInQuarantine(options, deliveryIds, shutdown)) === "busy" ? BUSY : 0;
  } catch (err) {
    options.log.error({ err }, "the quarantine's process failed");
    return FAILED;
  } finally {
    await options.stopTraces();
  }
}

/** Does what areas compute: the child process of a dispatcher with lower priority. */
export async function runAreaSteps(context: ProcessContext): Promise<void> {
  const shutdown = context.createShutdownSignal();
  const config = readConfig(context.env);
  const { databaseUrl } = await findDatabase(config);
  const log = await createProcessLog(config, context, "dispatch");
  const stop = startAreaSteps(config, context, databaseUrl, log);
  if (!shutdown.aborted) await once(shutdown, "abort");
  await stop();
}

/** The exit code is enough: the rows have the results, and a child that dies leaves its lease behind. */
async function forkQuarantine(
  deliveryIds: readonly string[],
  stopping: AbortSignal,
  { env }: ProcessContext,
  log: Logger,
): Promise<QuarantineRun> {
  const child = fork(MAIN_FILE, ["dispatch", "--alone", ...deliveryIds], { env: { ...env } });
  const end = () => void child.kill("SIGTERM");
  stopping.addEventListener("abort", end);
  const [code, signal] = await once(child, "exit").finally(() => stopping.removeEventListener("abort", end));
  log.info({ deliveries: deliveryIds.length, code, signal }, "the quarantine's process ended");
  return code === 0 ? "done" : code === BUSY ? "busy" : "died";
}

type DispatchOptions = Awaited<ReturnType<typeof createOptions>>;

/** What is told of every attempt is counted and in the log. */
async function createOptions(context: ProcessContext, onInterruptedTwice: (deliveryId: string) => void) {
  const config = readConfig(context.env);
  const found = await findDatabase(config);
  const log = await createProcessLog(config, context, "dispatch");
  const metrics = createProcessMetrics(createMetricsRegistry());
  const traces = await startTraces({ config, process: "dispatch", registry: metrics.registry, log });
  return {
    ...found,
    config,
    egress: createEgress(config),
    log,
    random: context.random,
    wallClockMs: context.now,
    metrics,
    beginTrace: traces.beginAttempt,
    stopTraces: traces.stop,
    observer: tellAll([
      createAttemptMetrics(metrics.dispatch, metrics.faults),
      createAttemptLog(log, onInterruptedTwice),
      traces.observer,
    ]),
  };
}

/** On the connections that slow work is kept from, so that metrics and probes answer whatever that waits for. */
async function startDispatchMonitoring(options: DispatchOptions, { general, wakeups }: DispatcherPools) {
  const { config, metrics } = options;
  const { registry, database } = metrics;
  const pool = readingGauges(general);
  const sampled = [
    sampleQueue(
      pool,
      createQueueMetrics(registry),
      daysKeptMs(retentionOf(config)),
      () => wakeups.bound.from,
    ),
    sampleFeed(pool, registry),
    sampleCapacity(pool, createCapacityMetrics(registry)),
  ];
  return await startMonitoring({ ...options, registry, database, pool, sampled });
}
