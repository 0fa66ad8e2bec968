import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { Command } from "@commander-js/extra-typings";
import type { FastifyInstance } from "fastify";
import type { Logger } from "pino";
import { cannotListen, httpUrl } from "../app/listening.ts";
import { startMonitoring } from "../app/monitoring.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { createProcessLog } from "../app/process-log.ts";
import { createFindHindrances } from "../app/readiness.ts";
import { databaseUrlOf, secretsKeyOf } from "../app/state-folder.ts";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { createApiMetrics } from "../metrics/api-metrics.ts";
import { createDatabaseMetrics } from "../metrics/database-metrics.ts";
import { createMetricsRegistry } from "../metrics/registry.ts";
import { createApiPool, createLogPool } from "../store/pools.ts";

/** Reads and writes are a few milliseconds each: this many at once keep a processor busy. */
const CONNECTIONS_MAX = 10;
/** With half as many a page costs this process a tenth more: what waits for a connection is answered one by one. */
const LOG_CONNECTIONS_MAX = 10;

export function addServeCommand(program: Command, context: ProcessContext): void {
  program
    .command("serve")
    .description("run the API: as many of these as you like beside one database")
    .option("--json", "changes nothing: the log is always JSON")
    .action(async () => {
      const asked = context.untilAskedToEnd();
      const config = readConfig(context.env);
      const log = createServeLog(config, context);
      const registry = createMetricsRegistry();
      const database = createDatabaseMetrics(registry);
      const common = {
        databaseUrl: await databaseUrlOf(config),
        applicationName: "sealpost serve",
        onError: (err: Error) => log.warn({ err }, "a database connection broke"),
      };
      const pool = createApiPool({
        ...common,
        connectionsMax: CONNECTIONS_MAX,
        onQuery: database.observer("api"),
      });
      const logPool = createLogPool({
        ...common,
        connectionsMax: LOG_CONNECTIONS_MAX,
        onQuery: database.observer("log"),
      });
      // What runs would keep a process alive whose start has failed.
      await using running = new AsyncDisposableStack();
      running.defer(async () => {
        await Promise.all([pool.end(), logPool.end()]);
      });
      database.watch("api", pool);
      database.watch("log", logPool);
      const findHindrances = await createFindHindrances(pool);
      const free = config.port === 0 ? await holdFreePort(config.host) : null;
      const port = free?.port ?? config.port;
      const url = httpUrl(config.host, port);
      // Loaded here, so that no other command pays for the HTTP stack in time and memory.
      const { createApiServer } = await import("../app/api-server.ts");
      const app = await createApiServer({
        config,
        pool,
        logPool,
        secretsKey: await secretsKeyOf(config),
        publicUrl: config.publicUrl ?? url,
        log,
        now: context.now,
        metrics: createApiMetrics(registry),
      });
      const watched = { config, registry, database, pool, findHindrances, wallClockMs: context.now };
      const monitoring = await startMonitoring(watched);
      running.defer(() => monitoring.close());
      // Ended first: its metrics can be read until the last request is answered.
      running.defer(() => app.close());
      await free?.letGo();
      await listen(app, config, port);
      context.tellParent({ listening: url, metrics: monitoring.url });
      log.info({ url, metrics_url: monitoring.url }, "listening");
      if (!asked.aborted) await once(asked, "abort");
      log.info("stopping: what is under way is answered");
      await running.disposeAsync();
      log.info("stopped");
    });
}

function createServeLog(config: Config, context: ProcessContext): Logger {
  const log = createProcessLog(config, context, "serve");
  const { unsafeAllowedTargets: targets } = config;
  if (targets) log.warn({ targets }, "UNSAFE: these targets may be set, public or not");
  return log;
}

/** @throws UsageError when the port or the address cannot be had. */
async function listen(app: FastifyInstance, { host }: Config, port: number): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    throw cannotListen("The API", `HOST ${host}, PORT ${port}`, error);
  }
}

/**
 * The API says its address in what it answers, so it has to know the port before it listens; until then nobody else
 * should get it.
 */
async function holdFreePort(host: string) {
  const server = createServer().listen(0, host).unref();
  try {
    await once(server, "listening");
  } catch (error) {
    throw cannotListen("The API", `HOST ${host}, PORT 0`, error);
  }
  const { port } = server.address() as AddressInfo;
  const letGo = async () => {
    server.close();
    await once(server, "close");
  };
  return { port, letGo };
}
