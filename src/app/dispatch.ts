import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { readConfig } from "../base/config/config.ts";
import { readingGauges } from "../base/database/pools.ts";
import { createCapacityMetrics } from "../base/metrics/database-metrics.ts";
import { createFeedMetrics, createQueueMetrics, type FeedMetrics } from "../base/metrics/queue-metrics.ts";
import { createMetricsRegistry } from "../base/metrics/registry.ts";
import { DAY_MS } from "../base/model/time.ts";
import {
  createAttemptLog,
  createAttemptMetrics,
  type DispatchObserver,
  tellAll,
} from "../delivery/attempt-observers.ts";
import { createProcessMetrics } from "../delivery/process-metrics.ts";
import { createQuarantine, type QuarantineRun } from "../delivery/quarantine.ts";
import { startAreaChecks, startAreaSteps, startAreaWork } from "./areas.ts";
import { createCapacityGauges } from "./capacity-gauges-sql.ts";
import { type Found, lookBeforeWork, untilMigrated } from "./database.ts";
import { createQueueGauges } from "./database-gauges-sql.ts";
import {
  type DispatcherPools,
  type DispatchProcessOptions,
  openDispatcherPools,
  startDispatching,
} from "./dispatch-process.ts";
import { createEgress } from "./egress.ts";
import { createFeedGauge, startSequencing } from "./feed.ts";
import { createReadinessCheck, type Monitoring, startMonitoring } from "./monitoring.ts";
import { startNotices } from "./notices.ts";
import { type ProcessContext, version } from "./process-context.ts";
import { createProcessLog } from "./process-log.ts";
import { deliverInQuarantine } from "./quarantine-process.ts";
import { databaseUrlOf, secretsKeyOf } from "./state-folder.ts";

/** Exit codes of the quarantine's process. Busy is EX_TEMPFAIL of sysexits.h: another such process is running. */
const BUSY = 75;
const FAILED = 1;

const mainFile = fileURLToPath(new URL("../main.ts", import.meta.url));

type Options = DispatchProcessOptions & {
  /** Of the database, before the process started; and how it is now. */
  readonly found: Found;
  readonly look: () => Promise<Found>;
};

/** Runs a dispatcher with its metrics until shutdown, then finishes the attempts in flight. */
export async function runDispatcher(context: ProcessContext): Promise<void> {
  const shutdown = context.createShutdownSignal();
  const quarantine = createQuarantine((ids, stopping) => forkQuarantine(ids, stopping, context, options.log));
  const options = await createOptions(context, (deliveryId) => quarantine.add(deliveryId));
  const { config, log, found, look } = options;
  const { unsafeAllowedTargets } = config;
  if (unsafeAllowedTargets) log.warn({ unsafeAllowedTargets }, "UNSAFE: webhooks may go to private targets");
  // When the start fails, whatever already runs would keep the process alive.
  await using resources = new AsyncDisposableStack();
  const pools = openDispatcherPools(options, options.metrics.database);
  resources.defer(() => pools.end());
  const feedMetrics = createFeedMetrics(options.metrics.registry);
  const monitoring = await startDispatchMonitoring(options, pools, feedMetrics, resources);
  if (found === "unmigrated") await untilMigrated(look, { log, metricsUrl: monitoring.url }, shutdown);
  const sequencer = startSequencing(pools.general, options.metrics.faults.of({ work: "feed" }), log);
  resources.defer(() => sequencer.stop());
  const observer = startObserving(options, pools.slow, resources);
  // All of it at once: what an area waits for holds up no webhooks, which are claimed no more from the first moment.
  const stops: (() => Promise<void>)[] = [];
  resources.defer(async () => void (await Promise.all(stops.map((stop) => stop()))));
  let attempts = 0;
  const counter = { attemptRecorded: () => void attempts++ };
  const dispatching = startDispatching(
    { ...options, observer: tellAll([counter, observer]), onPublished: () => sequencer.tell() },
    pools,
  );
  stops.push(dispatching.stop, () => quarantine.stop());
  const areas = { ...options, context, pool: pools.slow, countAttempts: () => attempts };
  stops.push(startAreaChecks(areas), startAreaWork(areas));
  context.sendToParent({ ready: true, metrics: monitoring.url });
  const { dispatchInFlightMax: inFlightMax } = config;
  log.info(
    { version, areas: config.areas, in_flight_max: inFlightMax, metrics_url: monitoring.url },
    "dispatching",
  );
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
  }
}

/** Does what areas compute: the child process of a dispatcher with lower priority. */
export async function runAreaSteps(context: ProcessContext): Promise<void> {
  const shutdown = context.createShutdownSignal();
  const config = readConfig(context.env);
  const databaseUrl = await databaseUrlOf(config);
  await lookBeforeWork(databaseUrl, config, await secretsKeyOf(config));
  const stop = startAreaSteps({
    config,
    context,
    databaseUrl,
    log: createProcessLog(config, context, "dispatch"),
  });
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
  const child = fork(mainFile, ["dispatch", "--alone", ...deliveryIds], { env: { ...env } });
  const end = () => void child.kill("SIGTERM");
  stopping.addEventListener("abort", end);
  const [code, signal] = await once(child, "exit").finally(() => stopping.removeEventListener("abort", end));
  log.info({ deliveries: deliveryIds.length, code, signal }, "the quarantine's process ended");
  return code === 0 ? "done" : code === BUSY ? "busy" : "died";
}

async function createOptions(
  context: ProcessContext,
  onInterruptedTwice: (deliveryId: string) => void,
): Promise<Options> {
  const config = readConfig(context.env);
  const databaseUrl = await databaseUrlOf(config);
  const secretsKey = await secretsKeyOf(config);
  const look = () => lookBeforeWork(databaseUrl, config, secretsKey);
  const found = await look();
  const log = createProcessLog(config, context, "dispatch");
  const metrics = createProcessMetrics(createMetricsRegistry());
  return {
    config,
    egress: createEgress(config),
    databaseUrl,
    secretsKey,
    found,
    look,
    log,
    random: context.random,
    wallClockMs: context.now,
    metrics,
    observer: tellAll([
      createAttemptMetrics(metrics.dispatch, metrics.faults),
      createAttemptLog(log, onInterruptedTwice),
    ]),
  };
}

/** Who is told of every attempt; with the webhooks, those also who watch endpoints and send notices. */
function startObserving(
  { config, log, metrics, observer }: Options,
  pool: Pool,
  resources: AsyncDisposableStack,
): DispatchObserver {
  if (!config.areas.includes("webhooks")) return observer;
  const notices = startNotices({ config, pool, log, metrics });
  resources.defer(() => notices.stop());
  return tellAll([observer, notices.observer]);
}

/** On the connections that slow work is kept from, so that metrics and probes answer whatever that waits for. */
async function startDispatchMonitoring(
  options: Options,
  { general }: DispatcherPools,
  feedMetrics: FeedMetrics,
  resources: AsyncDisposableStack,
): Promise<Monitoring> {
  const { config, metrics, wallClockMs } = options;
  const { registry, database } = metrics;
  const pool = readingGauges(general);
  const logMs = config.logRetentionDays * DAY_MS;
  // A body is kept a day longer than its analysis can be read.
  const bodiesMs = config.analysisRetentionSeconds * 1_000 + DAY_MS;
  const setQueueGauges = createQueueGauges({
    pool,
    database,
    queue: createQueueMetrics(registry),
    retentionMs: { deliveries: logMs, attempts: logMs, bodies: bodiesMs, feed: bodiesMs },
  });
  const setFeedGauge = createFeedGauge(pool, feedMetrics);
  const setCapacityGauges = createCapacityGauges(pool, createCapacityMetrics(registry));
  const setGauges = async (isDatabaseUp: boolean) => {
    await setQueueGauges(isDatabaseUp);
    await setFeedGauge(isDatabaseUp);
    await setCapacityGauges(isDatabaseUp);
  };
  const checkReadiness = await createReadinessCheck(pool, config, options.secretsKey);
  const watched = { config, registry, database, pool, checkReadiness, setGauges, wallClockMs };
  const monitoring = await startMonitoring(watched);
  resources.defer(() => monitoring.close());
  return monitoring;
}
