import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { FastifyInstance } from "fastify";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { type Config, readConfig } from "../base/config/config.ts";
import { createLogReader, type ReadLog, readingFrom } from "../base/database/log-reader.ts";
import {
  createApiPool,
  createGeneralPool,
  createStandbyPool,
  readingLog,
  shareOf,
} from "../base/database/pools.ts";
import { type ApiMetrics, createApiMetrics } from "../base/metrics/api-metrics.ts";
import { createDatabaseMetrics, createFaults } from "../base/metrics/database-metrics.ts";
import { createFeedMetrics } from "../base/metrics/queue-metrics.ts";
import { createMetricsRegistry, type Tally } from "../base/metrics/registry.ts";
import { listenToFeed } from "../feed/feed-sql.ts";
import { AccountNews } from "../http/account-news.ts";
import { HELD_READS_MAX, WORK_PLACES_MAX } from "../http/limits.ts";
import { startAreaChecks } from "./areas.ts";
import { type Found, lookBeforeWork, untilMigrated } from "./database.ts";
import { createFeedGauge, startSequencing } from "./feed.ts";
import { cannotListen, httpUrl } from "./listening.ts";
import { createReadinessCheck, startMonitoring } from "./monitoring.ts";
import { type ProcessContext, version } from "./process-context.ts";
import { createProcessLog } from "./process-log.ts";
import { databaseUrlOf, secretsKeyOf } from "./state-folder.ts";

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
  const shutdown = context.createShutdownSignal();
  const config = readConfig(context.env);
  const log = createServeLog(config, context);
  // When the start fails, whatever already runs would keep the process alive.
  await using resources = new AsyncDisposableStack();
  const { urls, startWork } = await startApi(config, context, log, resources);
  context.sendToParent({ listening: urls.api, metrics: urls.metrics });
  log.info({ version, url: urls.api, metrics_url: urls.metrics }, "listening");
  await startWork(shutdown);
  if (!shutdown.aborted) await once(shutdown, "abort");
  log.info("stopping: finishing requests in flight");
  await resources.disposeAsync();
  log.info("stopped");
}

type StartedApi = {
  readonly urls: { readonly api: string; readonly metrics: string };
  /** What the process does without being asked, once the database is migrated. */
  readonly startWork: (shutdown: AbortSignal) => Promise<void>;
};

/** Everything that is started is added to `resources`. */
async function startApi(
  config: Config,
  context: ProcessContext,
  log: Logger,
  resources: AsyncDisposableStack,
): Promise<StartedApi> {
  const databaseUrl = await databaseUrlOf(config);
  const secretsKey = await secretsKeyOf(config);
  const look = () => lookBeforeWork(databaseUrl, config, secretsKey);
  const found: Found = await look();
  const registry = createMetricsRegistry();
  const database = createDatabaseMetrics(registry);
  const common = {
    databaseUrl,
    cell: config.cell,
    applicationName: "sealpost serve",
    onError: (err: Error) => log.warn({ err }, "a database connection broke"),
  };
  const { general: connectionsMax, workPlaces } = apiConnections(config.databaseConnectionsMax);
  const pool = createApiPool({ ...common, connectionsMax, onQuery: database.observer("api") });
  const logPool = readingLog(shareOf(pool, workPlaces), database.observer("log"));
  const listenPool = createGeneralPool({
    ...common,
    connectionsMax: 1,
    onQuery: database.observer("listen"),
  });
  const standbyPool =
    config.readDatabaseUrl === null
      ? null
      : createStandbyPool({
          ...common,
          databaseUrl: config.readDatabaseUrl,
          connectionsMax: workPlaces,
          onQuery: database.observer("standby"),
        });
  resources.defer(async () => {
    await Promise.all([pool, listenPool, standbyPool].map((one) => one?.end()));
  });
  database.watch("api", pool);
  database.watch("listen", listenPool);
  if (standbyPool !== null) database.watch("standby", standbyPool);
  const metrics = createApiMetrics(registry);
  const feedMetrics = createFeedMetrics(registry);
  const failed = createFaults(registry, ["feed"]).of({ work: "feed" });
  const waiting = metrics.readsWaiting.of({});
  const news = new AccountNews(HELD_READS_MAX, (count) => waiting.set(count));

  const readLog = startLogReading({ pool, logPool, standbyPool, metrics, log, resources });
  const checkReadiness = await createReadinessCheck(pool, config, secretsKey);
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
    readLog,
    secretsKey,
    publicUrl: config.publicUrl ?? url,
    log,
    now: context.now,
    metrics,
    news,
  });
  // Ends after the server, which may start before it.
  const work = resources.use(new AsyncDisposableStack());
  const setGauges = createFeedGauge(pool, feedMetrics);
  const watched = { config, registry, database, pool, checkReadiness, setGauges, wallClockMs: context.now };
  const monitoring = await startMonitoring(watched);
  resources.defer(() => monitoring.close());
  // Closed before the monitoring: metrics can be read until the last request is answered.
  resources.defer(() => server.close());
  await reserved?.release();
  await listen(server, config, port);
  const startWork = async (shutdown: AbortSignal) => {
    if (found === "unmigrated") await untilMigrated(look, { log, metricsUrl: monitoring.url }, shutdown);
    if (shutdown.aborted) return;
    startFeed({ pool, listenPool, news, failed, context, log, resources: work });
    work.defer(startAreaChecks({ config, pool, log }));
  };
  return { urls: { api: url, metrics: monitoring.url }, startWork };
}

type LogReadingOptions = {
  readonly pool: Pool;
  readonly logPool: Pool;
  /** Null: there is none, and lists are read from `logPool`. */
  readonly standbyPool: Pool | null;
  readonly metrics: ApiMetrics;
  readonly log: Logger;
  readonly resources: AsyncDisposableStack;
};

/** How lists of the log are read: from the standby while it serves, counted and told of in the log. */
function startLogReading(options: LogReadingOptions): ReadLog {
  const { pool, logPool, standbyPool, metrics, log, resources } = options;
  const counted = (server: "primary" | "standby") => metrics.logReads.of({ server }).add();
  if (standbyPool === null) {
    return async (read) => {
      const value = await readingFrom(logPool)(read);
      counted("primary");
      return value;
    };
  }
  const reader = createLogReader({
    primary: logPool,
    position: pool,
    standby: standbyPool,
    onRead: counted,
    onFault: (why, err) => {
      metrics.standbyFaults.of({ why }).add();
      log.debug({ why, err }, "the standby did not serve");
    },
    onChange: (isUsed, why) => {
      if (isUsed) log.info("lists of the log are read from the standby");
      else log.warn({ why }, "lists of the log are read from the primary: the standby does not serve");
    },
  });
  resources.defer(() => reader.stop());
  return reader.read;
}

type Feed = {
  readonly pool: Pool;
  /** Its one connection is kept by who listens. */
  readonly listenPool: Pool;
  readonly news: AccountNews;
  readonly failed: Tally;
  readonly context: ProcessContext;
  readonly log: Logger;
  readonly resources: AsyncDisposableStack;
};

/** Starts what gives events their places, and what tells this process's readers of them. */
function startFeed({ pool, listenPool, news, failed, context, log, resources }: Feed): void {
  const sequencer = startSequencing(pool, failed, log);
  const listening = listenToFeed({
    pool: listenPool,
    onNews: (accountIds) => news.tell(accountIds),
    onPublished: () => sequencer.tell(),
    onListening: () => news.tellAll(),
    onError: (err) => {
      failed.add();
      log.warn({ err }, "listening to the feed failed; connecting again");
    },
    random: context.random,
  });
  resources.defer(async () => void (await Promise.all([sequencer.stop(), listening.stop()])));
}

function createServeLog(config: Config, context: ProcessContext): Logger {
  const log = createProcessLog(config, context, "serve");
  const { unsafeAllowedTargets: targets } = config;
  if (targets) log.warn({ targets }, "UNSAFE: these targets are accepted, public or not");
  return log;
}

/** @throws UsageError when it cannot listen on that address or port */
async function listen(server: FastifyInstance, { host }: Config, port: number): Promise<void> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    throw cannotListen("The API", `HOST ${host}, PORT ${port}`, error);
  }
}

/** The API's answers contain its URL, so the port must be known, and kept from others, before the API listens. */
async function reservePort(host: string) {
  const server = createServer().listen(0, host).unref();
  try {
    await once(server, "listening");
  } catch (error) {
    throw cannotListen("The API", `HOST ${host}, PORT 0`, error);
  }
  const { port } = server.address() as AddressInfo;
  const release = async () => {
    server.close();
    await once(server, "close");
  };
  return { port, release };
}
