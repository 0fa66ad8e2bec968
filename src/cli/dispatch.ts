import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Command } from "@commander-js/extra-typings";
import type { Logger } from "pino";
import { createEgress } from "../app/egress.ts";
import { type Monitoring, startMonitoring } from "../app/monitoring.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { createProcessLog } from "../app/process-log.ts";
import { createQueueGauges } from "../app/queue-gauges.ts";
import { createFindHindrances } from "../app/readiness.ts";
import { databaseUrlOf, secretsKeyOf } from "../app/state-folder.ts";
import { readConfig } from "../config/read-config.ts";
import { createAttemptLog } from "../dispatch/attempt-log.ts";
import { createAttemptMetrics } from "../dispatch/attempt-metrics.ts";
import { bothObservers } from "../dispatch/observer.ts";
import { type DispatchProcessOptions, startDispatching } from "../dispatch/process.ts";
import { createProcessMetrics, type ProcessMetrics } from "../dispatch/process-metrics.ts";
import { Quarantine, type QuarantineRun } from "../dispatch/quarantine.ts";
import { deliverInQuarantine } from "../dispatch/quarantine-process.ts";
import { createQueueMetrics } from "../metrics/queue-metrics.ts";
import { createMetricsRegistry } from "../metrics/registry.ts";
import { DAY_MS } from "../model/time.ts";
import { createGaugePool } from "../store/pools.ts";
import { collectIds } from "./options.ts";

const PROGRAM = fileURLToPath(new URL("../main.ts", import.meta.url));

export function addDispatchCommand(program: Command, context: ProcessContext): void {
  program
    .command("dispatch")
    .description("deliver what was published: run as many of these as you like beside one database")
    .option(
      "--alone <delivery-ids...>",
      "post these one by one and end (used by dispatch itself)",
      collectIds,
    )
    .option("--json", "changes nothing: the log is always JSON")
    .action(async ({ alone }) => {
      const asked = context.untilAskedToEnd();
      const quarantine = new Quarantine((ids, stopping) =>
        runInQuarantine(ids, stopping, context, options.log),
      );
      const options = await readOptions(context, quarantine);
      if (alone !== undefined) {
        context.setExitCode(await postInQuarantine(options, alone, asked));
        return;
      }
      const { unsafeAllowedTargets } = options.config;
      if (unsafeAllowedTargets)
        options.log.warn({ unsafeAllowedTargets }, "UNSAFE: webhooks may go to private targets");
      // What runs would keep a process alive whose start has failed.
      await using running = new AsyncDisposableStack();
      const monitoring = await startDispatchMonitoring(options, running);
      const dispatching = startDispatching(options);
      running.defer(async () => void (await Promise.all([dispatching.stop(), quarantine.stop()])));
      context.tellParent({ ready: true, metrics: monitoring.url });
      options.log.info(
        { in_flight_max: options.config.dispatchInFlightMax, metrics_url: monitoring.url },
        "dispatching",
      );
      if (!asked.aborted) await once(asked, "abort");
      options.log.info("stopping: nothing more is claimed, what is under way is finished");
      await running.disposeAsync();
      options.log.info("stopped");
    });
}

type Options = DispatchProcessOptions & { readonly metrics: ProcessMetrics };

async function readOptions(context: ProcessContext, quarantine: Quarantine): Promise<Options> {
  const config = readConfig(context.env);
  const log = createProcessLog(config, context, "dispatch");
  const metrics = createProcessMetrics(createMetricsRegistry());
  return {
    config,
    egress: createEgress(config),
    databaseUrl: await databaseUrlOf(config),
    secretsKey: await secretsKeyOf(config),
    log,
    random: context.random,
    wallClockMs: context.now,
    metrics,
    observer: bothObservers(
      createAttemptMetrics(metrics.dispatch),
      createAttemptLog(log, (deliveryId) => quarantine.add(deliveryId)),
    ),
  };
}

/** Its one connection is its own: metrics and probes answer even while the dispatcher has none to spare. */
async function startDispatchMonitoring(options: Options, running: AsyncDisposableStack): Promise<Monitoring> {
  const { config, databaseUrl, log, metrics, wallClockMs } = options;
  const { registry, database } = metrics;
  const pool = createGaugePool({
    databaseUrl,
    connectionsMax: 1,
    applicationName: "sealpost metrics",
    onError: (err) => log.warn({ err }, "a database connection broke"),
    onQuery: database.observer("gauges"),
  });
  running.defer(() => pool.end());
  database.watch("gauges", pool);
  const logMs = config.logRetentionDays * DAY_MS;
  const setGauges = createQueueGauges({
    pool,
    database,
    queue: createQueueMetrics(registry),
    // A body stays a day longer than its analysis can be read.
    retentionMs: {
      deliveries: logMs,
      attempts: logMs,
      bodies: config.analysisRetentionSeconds * 1_000 + DAY_MS,
    },
  });
  const findHindrances = await createFindHindrances(pool);
  const watched = { config, registry, database, pool, findHindrances, setGauges, wallClockMs };
  const monitoring = await startMonitoring(watched);
  running.defer(() => monitoring.close());
  return monitoring;
}

/** Exit code of a quarantine process that found another one at work; EX_TEMPFAIL of sysexits.h. */
const BUSY = 75;
const FAILED = 1;

/** Returns what the process ends with. What goes wrong stands in the log: it was not called by a person. */
async function postInQuarantine(
  options: Options,
  ids: readonly string[],
  asked: AbortSignal,
): Promise<number> {
  try {
    return (await deliverInQuarantine(options, ids, asked)) === "busy" ? BUSY : 0;
  } catch (err) {
    options.log.error({ err }, "posted nothing more alone");
    return FAILED;
  }
}

/** Its end is enough to know: the rows tell the rest, and a child that dies leaves its lease behind. */
async function runInQuarantine(
  deliveryIds: readonly string[],
  stopping: AbortSignal,
  { env }: ProcessContext,
  log: Logger,
): Promise<QuarantineRun> {
  const child = fork(PROGRAM, ["dispatch", "--alone", ...deliveryIds], { env: { ...env } });
  const end = () => void child.kill("SIGTERM");
  stopping.addEventListener("abort", end);
  const [code, signal] = await once(child, "exit").finally(() => stopping.removeEventListener("abort", end));
  log.info({ deliveries: deliveryIds.length, code, signal }, "the process that posted alone has ended");
  return code === 0 ? "done" : code === BUSY ? "busy" : "died";
}
