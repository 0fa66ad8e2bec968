import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import type { Command } from "@commander-js/extra-typings";
import type { FastifyInstance } from "fastify";
import { type Logger, pino } from "pino";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { createApiPool } from "../store/pools.ts";
import { Mistake } from "./mistake.ts";
import { databaseUrlOf, secretsKeyOf } from "./state-folder.ts";
import type { Surroundings } from "./surroundings.ts";

/** Reads and writes are a few milliseconds each: this many at once keep a processor busy. */
const CONNECTIONS_MAX = 10;

export function addServeCommand(program: Command, surroundings: Surroundings): void {
  program
    .command("serve")
    .description("run the API: as many of these as you like beside one database")
    .option("--json", "no difference: the log is JSON always")
    .action(async () => {
      const asked = surroundings.untilAskedToEnd();
      const config = readConfig(surroundings.env);
      const log = createServeLog(config, surroundings);
      const pool = createApiPool({
        databaseUrl: await databaseUrlOf(config),
        connectionsMax: CONNECTIONS_MAX,
        applicationName: "sealpost serve",
        onError: (err) => log.warn({ err }, "a database connection broke"),
      });
      const port = config.port === 0 ? await freePort(config.host) : config.port;
      const url = `http://${hostInUrl(config.host)}:${port}`;
      // Loaded here, so that no other command pays for the HTTP stack in time and memory.
      const { createApiServer } = await import("./api-server.ts");
      const app = await createApiServer({
        config,
        pool,
        secretsKey: await secretsKeyOf(config),
        publicUrl: config.publicUrl ?? url,
        log,
        now: surroundings.now,
      });
      await listen(app, config, port);
      surroundings.tellParent({ listening: url });
      log.info({ url }, "listening");
      if (!asked.aborted) await once(asked, "abort");
      log.info("stopping: what is under way is answered");
      await app.close();
      await pool.end();
      log.info("stopped");
    });
}

function createServeLog(config: Config, { stdout }: Surroundings): Logger {
  // PostgreSQL puts the values of the row at fault into these two.
  const redact = { paths: ["err.detail", "err.where"], remove: true };
  const log = pino({ level: config.logLevel, base: { process: "serve" }, redact }, stdout);
  const { unsafeAllowedTargets: targets } = config;
  if (targets) log.warn({ targets }, "UNSAFE: these targets may be set, public or not");
  return log;
}

/** @throws Mistake when the port or the address cannot be had. */
async function listen(app: FastifyInstance, { host }: Config, port: number): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    throw cannotListen(host, port, error);
  }
}

/** The API says its address in what it answers, so it has to know the port before it listens. */
async function freePort(host: string): Promise<number> {
  const server = createServer().listen(0, host);
  try {
    await once(server, "listening");
  } catch (error) {
    throw cannotListen(host, 0, error);
  }
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

function cannotListen(host: string, port: number, error: unknown): Mistake {
  const { code } = error as NodeJS.ErrnoException;
  return new Mistake(`The API cannot listen on HOST ${host}, PORT ${port} (${code}).`, { cause: error });
}

function hostInUrl(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
