import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { FastifyInstance } from "fastify";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { type Config, readConfig } from "../base/config/config.ts";
import {
  createApiPool,
  createGeneralPool,
  createLogPool,
  createStandbyPool,
} from "../base/database/pools.ts";
import { createApiMetrics } from "../base/metrics/api-metrics.ts";
import { createDatabaseMetrics } from "../base/metrics/database-metrics.ts";
import { createFeedMetrics, type FeedMetrics } from "../base/metrics/queue-metrics.ts";
import { createMetricsRegistry } from "../base/metrics/registry.ts";
import { listenToFeed } from "../feed/feed-sql.ts";
import { AccountNews } from "../http/account-news.ts";
import { HELD_READS_MAX, WORK_PLACES_MAX } from "../http/limits.ts";
import { startAreaChecks } from "./areas.ts";
import { type Found, lookBeforeWork, untilMigrated } from "./database.ts";
import { createFeedGauge, startSequencing } from "./feed.ts";
import { cannotListen, httpUrl } from "./listening.ts";
import { startLogReading } from "./log-reading.ts";
import { createFindHindrances, startMonitoring } from "./monitoring.ts";
import { type ProcessContext, version } from "./process-context.ts";
import { createProcessLog } from "./process-log.ts";
import { databaseUrlOf, secretsKeyOf } from "./state-folder.ts";

/** Two more than there are requests at work: keys are looked up, and requests counted, however long those take. */
const CONNECTIONS_MAX = WORK_PLACES_MAX + 2;
/** Half as many made a page cost 10 % more in this process: requests that queue for a connection are not batched. */
const LOG_CONNECTIONS_MAX = 10;
/** One listens, one makes the feed's steps. */
const FEED_CONNECTIONS_MAX = 2;

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
  const onQuery = database.observer("api");
  const pool = createApiPool({ ...common, connectionsMax: CONNECTIONS_MAX, onQuery });
  const onLogQuery = database.observer("log");
  const logPool = createLogPool({ ...common, connectionsMax: LOG_CONNECTIONS_MAX, onQuery: onLogQuery });
  const onFeedQuery = database.observer("feed");
  const feedPool = createGeneralPool({
    ...common,
    connectionsMax: FEED_CONNECTIONS_MAX,
    onQuery: onFeedQuery,
  });
  const standbyPool =
    config.readDatabaseUrl === null
      ? null
      : createStandbyPool({
          ...common,
          databaseUrl: config.readDatabaseUrl,
          connectionsMax: LOG_CONNECTIONS_MAX,
          onQuery: database.observer("standby"),
        });
  resources.defer(async () => {
    await Promise.all([pool, logPool, feedPool, standbyPool].map((one) => one?.end()));
  });
  database.watch("api", pool);
  database.watch("log", logPool);
  database.watch("feed", feedPool);
  if (standbyPool !== null) database.watch("standby", standbyPool);
  const metrics = createApiMetrics(registry);
  const feedMetrics = createFeedMetrics(registry);
  const held = metrics.heldReads.of({});
  const news = new AccountNews(HELD_READS_MAX, (count) => held.set(count));

  const readLog = startLogReading({ pool, logPool, standbyPool, metrics, log, resources });
  const findHindrances = await createFindHindrances(pool, config, secretsKey);
  const reserved = config.port === 0 ? await reservePort(config.host) : null;
  const port = reserved?.port ?? config.port;
  const url = httpUrl(config.host, port);
  // Imported here, so that other commands do not spend time and memory on the HTTP stack.
  const { createApiServer } = await import("./api-server.ts");
  const server = await createApiServer({
    config,
    pool,
    logPool,
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
  const watched = { config, registry, database, pool, findHindrances, setGauges, wallClockMs: context.now };
  const monitoring = await startMonitoring(watched);
  resources.defer(() => monitoring.close());
  // Closed before the monitoring: metrics can be read until the last request is answered.
  resources.defer(() => server.close());
  await reserved?.release();
  await listen(server, config, port);
  const startWork = async (shutdown: AbortSignal) => {
    if (found === "unmigrated") await untilMigrated(look, { log, metricsUrl: monitoring.url }, shutdown);
    if (shutdown.aborted) return;
    startFeed({ pool: feedPool, news, feedMetrics, context, log, resources: work });
    work.defer(startAreaChecks({ config, log }));
  };
  return { urls: { api: url, metrics: monitoring.url }, startWork };
}

type Feed = {
  readonly pool: Pool;
  readonly news: AccountNews;
  readonly feedMetrics: FeedMetrics;
  readonly context: ProcessContext;
  readonly log: Logger;
  readonly resources: AsyncDisposableStack;
};

/** Starts what gives events their places, and what tells this process's readers of them. */
function startFeed({ pool, news, feedMetrics, context, log, resources }: Feed): void {
  const sequencer = startSequencing(pool, feedMetrics, log);
  const listening = listenToFeed({
    pool,
    onNews: (accountIds) => news.tell(accountIds),
    onPublished: () => sequencer.tell(),
    onListening: () => news.tellAll(),
    onError: (err) => {
      feedMetrics.failures.of({}).add();
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
