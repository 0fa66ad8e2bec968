import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { type Config, readConfig } from "../base/config/config.ts";
import { createLogReader, type LogReaderOptions } from "../base/database/log-reader.ts";
import {
  createApiPool,
  createGeneralPool,
  createStandbyPool,
  readingLog,
  shareOf,
} from "../base/database/pools.ts";
import { tlsFaultOf } from "../base/database/transaction.ts";
import { type ApiMetrics, createApiMetrics } from "../base/metrics/api-metrics.ts";
import { createDatabaseMetrics, createFaults, type PoolName } from "../base/metrics/database-metrics.ts";
import { createMetricsRegistry } from "../base/metrics/registry.ts";
import { AccountNews } from "../http/account-news.ts";
import { HELD_READS_MAX, WORK_PLACES_MAX } from "../http/limits.ts";
import { startAreaChecks } from "./areas.ts";
import { findDatabase, poolOptions, untilMigrated, warnOfPlainDatabases } from "./database.ts";
import { sampleFeed, startFeed } from "./feed.ts";
import { cannotListen, httpUrl } from "./listening.ts";
import { startMonitoring } from "./monitoring.ts";
import { collectRarely, type ProcessContext, version } from "./process-context.ts";
import { createProcessLog } from "./process-log.ts";
import { startTraces } from "./traces.ts";

/**
 * How an API process shares out its connections: one listens; of the others, requests at work leave three, where there
 * are so many. So publishing, which takes no place of theirs, waits behind no read, and neither do looking up keys,
 * counting requests and the feed's steps. Reads of the log, the slowest, never take more, however many a request asks.
 */
export function apiConnections(connectionsMax: number) {
  const general = connectionsMax - 1;
  return { general, workPlaces: Math.min(WORK_PLACES_MAX, Math.max(2, general - 3)) };
}

/** Runs the API with its metrics until shutdown, then finishes the requests in flight. */
export async function runApi(context: ProcessContext): Promise<void> {
  collectRarely();
  const shutdown = context.createShutdownSignal();
  const config = readConfig(context.env);
  const log = await createProcessLog(config, context, "serve");
  const { unsafeAllowedTargets: targets } = config;
  if (targets) log.warn({ targets }, "UNSAFE: these targets are accepted, public or not");
  warnOfPlainDatabases(config, log);
  // When the start fails, whatever already runs would keep the process alive.
  await using resources = new AsyncDisposableStack();
  const { url, metricsUrl, startWork } = await startApi(config, context, log, resources);
  context.sendToParent({ listening: url, metrics: metricsUrl });
  log.info({ version, url, metrics_url: metricsUrl }, "listening");
  await startWork(shutdown);
  if (!shutdown.aborted) await once(shutdown, "abort");
  log.info("stopping: finishing requests in flight");
  await resources.disposeAsync();
  log.info("stopped");
}

/**
 * Everything that is started is added to `resources`. `startWork`: what the process does without being asked, once the
 * database is migrated.
 * @throws UsageError when it cannot listen on that address or port
 */
async function startApi(
  config: Config,
  context: ProcessContext,
  log: Logger,
  resources: AsyncDisposableStack,
) {
  const found = await findDatabase(config);
  const { databaseUrl, secretsKey } = found;
  const registry = createMetricsRegistry();
  const database = createDatabaseMetrics(registry);
  const { general: connectionsMax, workPlaces } = apiConnections(config.databaseConnectionsMax);
  const optionsOf = (name: PoolName, connectionsMax: number, url = databaseUrl) => ({
    ...poolOptions(config, url, "sealpost serve", log),
    connectionsMax,
    onQuery: database.observer(name),
  });
  const opened = <Opened extends Pool>(name: PoolName, opened: Opened): Opened => {
    resources.defer(() => opened.end());
    database.watch(name, opened);
    return opened;
  };
  const pool = opened("api", createApiPool(optionsOf("api", connectionsMax)));
  const logPool = readingLog(shareOf(pool, workPlaces), database.observer("log"));
  const listenPool = opened("listen", createGeneralPool(optionsOf("listen", 1)));
  const openStandby = (url: string) =>
    opened("standby", createStandbyPool(optionsOf("standby", workPlaces, url)));
  const standby = config.readDatabaseUrl === null ? null : openStandby(config.readDatabaseUrl);
  const metrics = createApiMetrics(registry);
  const traces = await startTraces({ config, process: "serve", registry, log });
  resources.defer(traces.stop);
  const sampledFeed = sampleFeed(pool, registry);
  const failed = createFaults(registry, ["feed"]).of({ work: "feed" });
  const waiting = metrics.readsWaiting.of({});
  const news = new AccountNews(HELD_READS_MAX, (count) => waiting.set(count));

  const reader = startLogReading({ primary: logPool, position: pool, standby }, metrics, log);
  resources.defer(() => reader.stop());
  const reserved = config.port === 0 ? await reservePort(config.host) : null;
  const port = reserved?.port ?? config.port;
  const url = httpUrl(config.host, port);
  // Imported here, so that other commands do not spend time and memory on the HTTP stack.
  const { createApiServer } = await import("./api-server.ts");
  const server = await createApiServer({
    config,
    pool,
    logPool,
    workPlacesMax: workPlaces,
    readLog: reader.read,
    secretsKey,
    publicUrl: config.publicUrl ?? url,
    log,
    now: context.now,
    metrics,
    news,
    beginTrace: traces.beginRequest,
  });
  // Ends after the server, which may start before it.
  const work = resources.use(new AsyncDisposableStack());
  const sampled = [sampledFeed];
  const watched = { config, secretsKey, registry, database, pool, sampled, wallClockMs: context.now };
  const monitoring = await startMonitoring(watched);
  resources.defer(() => monitoring.close());
  // Closed before the monitoring: metrics can be read until the last request is answered.
  resources.defer(() => server.close());
  await reserved?.release();
  const { host } = config;
  await server.listen({ host, port }).catch(cannotListen("The API", `HOST ${host}, PORT ${port}`));
  const startWork = async (shutdown: AbortSignal) => {
    await untilMigrated(found, log, monitoring.url, shutdown);
    if (shutdown.aborted) return;
    work.defer(startFeed(pool, failed, log, news, { pool: listenPool, random: context.random }));
    work.defer(startAreaChecks({ config, pool, log }));
  };
  return { url, metricsUrl: monitoring.url, startWork };
}

/** How lists of the log are read: from the standby, if there is one, while it serves; counted, and told in the log. */
function startLogReading(
  pools: Pick<LogReaderOptions, "primary" | "position" | "standby">,
  metrics: ApiMetrics,
  log: Logger,
) {
  return createLogReader({
    ...pools,
    onRead: (server) => metrics.logReads.of({ server }).add(),
    onFault: (why, err) => {
      metrics.standbyFaults.of({ why }).add();
      log.debug({ why, err }, "the standby could not be used");
    },
    onChange: (isUsed, why, error) => {
      const problem = error === null ? null : tlsFaultOf(error, "READ_DATABASE_URL");
      if (isUsed) log.info("lists of the log are read from the standby");
      else
        log.warn({ why, problem }, "lists of the log are read from the primary: the standby cannot be used");
    },
  });
}

/** The API's answers contain its URL, so the port must be known, and kept from others, before the API listens. */
async function reservePort(host: string) {
  const server = createServer().listen(0, host).unref();
  await once(server, "listening").catch(cannotListen("The API", `HOST ${host}, PORT 0`));
  const { port } = server.address() as AddressInfo;
  return { port, release: () => server[Symbol.asyncDispose]() };
}
