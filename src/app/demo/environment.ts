import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { chmod, mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Pool } from "pg";
import { createAccount, insertUser } from "../../accounts/accounts-sql.ts";
import { type Config, readConfig } from "../../base/config/config.ts";
import { startEmbeddedPostgres } from "../../base/embedded/embedded.ts";
import { accountScopes, userScopes } from "../../base/model/api-keys.ts";
import { setEndpoint } from "../../delivery/endpoint-sql.ts";
import { openConsole } from "../console-sessions.ts";
import { createApiKey } from "../create-api-key.ts";
import { createCommandPool, prepareDatabase } from "../database.ts";
import type { ProcessContext } from "../process-context.ts";
import { secretsKeyOf } from "../state-folder.ts";
import { type ChildEvent, servicePlans, supervise } from "../supervisor.ts";
import { createResultsTable, createThrowAwayDatabase } from "./example-database-sql.ts";
import type { DemoOutput } from "./output.ts";
import { type DemoReceivers, startDemoReceivers } from "./receivers.ts";

/**
 * A shell that removes the folder when its standard input ends: a pipe that the kernel closes when this process ends,
 * even by SIGKILL. A server may still be shutting down and writing there, so it retries for a while.
 */
const REMOVER = `
cat >/dev/null
tries=0
while ! rm -rf -- "$1" 2>/dev/null && [ "$tries" -lt 30 ]; do
  tries=$((tries + 1))
  sleep 1
done`;

/** A new folder that is removed when this process ends, however it ends. */
async function createTemporaryFolder(resources: AsyncDisposableStack): Promise<string> {
  // Not os.tmpdir(): for root that is often private, and PostgreSQL's account could not enter it.
  const path = await mkdtemp("/tmp/sealpost-demo-");
  const remover = spawn("/bin/sh", ["-c", REMOVER, "sh", path], {
    cwd: "/",
    // In a session of its own, so that Ctrl-C in a terminal does not reach it.
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const removed = once(remover, "exit");
  await once(remover, "spawn");
  resources.defer(async () => {
    remover.stdin?.end();
    await removed;
  });
  // PostgreSQL's account has to pass through the folder; the files in it keep their own modes.
  await chmod(path, 0o711);
  return path;
}

/** A day of retries compressed to seconds, enough for eight attempts. */
const WINDOW_SECONDS = 5;
const GRACE_MS = 5_000;
/** Long enough to be found below the summary. */
const CONSOLE_LINK_SECONDS = 600;
const LOG_LINES_SHOWN_MAX = 10;

export type StartOptions = {
  readonly context: ProcessContext;
  readonly output: DemoOutput;
  /** Everything that is started is added here; the caller disposes of it. */
  readonly resources: AsyncDisposableStack;
  /** Called when a process of the service ends too early. */
  readonly onFailure: (error: Error) => void;
  readonly signal: AbortSignal;
  /** Use the server of DATABASE_URL instead of an embedded one. */
  readonly usesServer: boolean;
};

export type DemoEnvironment = Awaited<ReturnType<typeof startDemoEnvironment>>;

/** The running service with its database, an account and the receivers. */
export async function startDemoEnvironment(options: StartOptions) {
  const { context, output, resources, signal, usesServer } = options;
  const folder = await createTemporaryFolder(resources);
  const receivers = await startDemoReceivers(context.now, output, signal);
  resources.defer(() => receivers.close());
  const caFile = join(folder, "receivers.pem");
  await writeFile(caFile, receivers.certPem);

  // Of the caller's environment only what processes need to run, and the port.
  const { PATH, HOME, PORT = "0" } = context.env;
  const env = {
    PATH,
    HOME,
    PORT,
    METRICS_PORT: "0",
    STATE_DIR: folder,
    TARGET_CA_FILE: caFile,
    UNSAFE_ALLOWED_TARGETS: `*.localhost:${receivers.port}`,
    RETRY_WINDOW_SECONDS: `${WINDOW_SECONDS}`,
  };
  const config = readConfig(env);
  const databaseUrl = usesServer
    ? await createThrowAwayDatabase(context, resources)
    : await startDatabase(join(folder, "postgres"), resources);
  const where = usesServer ? "created a database on your server" : `PostgreSQL is running in ${folder}`;
  output.line("started", { step: "database", text: usesServer ? "" : folder }, where);
  signal.throwIfAborted();

  const pool = resources.use(createCommandPool(databaseUrl, "sealpost demo", { cell: null }));
  await prepareDatabase(pool, databaseUrl, config, () => undefined);
  await createResultsTable(pool);
  const account = await createDemoAccount(pool, config, receivers);
  const text = "created the tables, and an account with a signing secret, an API key and an endpoint";
  output.line("started", { step: "schema" }, text);
  const apiUrl = await startApiAndDispatcher({ ...context, env }, config, databaseUrl, options);
  return {
    ...account,
    apiUrl,
    /** The service's. */
    config,
    receivers,
    /** Of the service's database. */
    pool,
    /** A fresh link that opens the console, once. */
    consoleLink: async () => {
      const wish = { publicUrl: apiUrl, linkSeconds: CONSOLE_LINK_SECONDS };
      return (await openConsole(pool, account.accountId, wish)).url;
    },
  };
}

async function startDatabase(dataDir: string, resources: AsyncDisposableStack): Promise<string> {
  // This data need not survive a power failure.
  const server = await startEmbeddedPostgres({ dataDir, settings: { fsync: "off" } });
  resources.defer(() => server.stop());
  return server.databaseUrl;
}

/** An account with an endpoint, and two keys: its own, and one that acts for a user of it. */
async function createDemoAccount(pool: Pool, config: Config, receivers: DemoReceivers) {
  const { accountId, signingSecret } = await createAccount(pool, "Demo", await secretsKeyOf(config));
  receivers.trust(signingSecret);
  await setEndpoint(pool, accountId, receivers.url("steady"));
  const ada = { idp_user_id: "demo|ada", email: "ada@example.com", name: "Ada", image_url: null };
  const { id: userId } = (await insertUser(pool, { account_id: accountId, ...ada }))!;
  const common = { accountId, name: "Demo", expiresInSeconds: null };
  const { apiKey } = await createApiKey(pool, config, { ...common, scopes: accountScopes });
  const { apiKey: userKey } = await createApiKey(pool, config, { ...common, userId, scopes: userScopes });
  return { accountId, signingSecret, apiKey, userKey };
}

/** Starts the API and a dispatcher; resolves to the API's URL once both are ready. */
async function startApiAndDispatcher(
  context: ProcessContext,
  config: Config,
  databaseUrl: string,
  { output, resources, onFailure, signal }: StartOptions,
): Promise<string> {
  const logFile = join(config.stateDir, "service.log");
  const log = openSync(logFile, "a");
  const shutdown = new AbortController();
  const api = Promise.withResolvers<string>();
  const dispatcher = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => api.reject(signal.reason), { once: true });

  function onEvent(event: ChildEvent): void {
    if (event.kind === "ended" && !shutdown.signal.aborted) {
      const end = readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-LOG_LINES_SHOWN_MAX).join("\n");
      onFailure(new Error(`The ${event.name} ended (${event.how}). Its log:\n${end}`));
    }
    if (event.kind !== "message") return;
    const { listening } = event.message as { readonly listening?: string };
    if (listening === undefined) {
      const text = `the dispatcher is running; it retries for ${WINDOW_SECONDS} seconds instead of a day`;
      output.line("started", { step: "dispatcher" }, text);
      dispatcher.resolve();
    } else {
      output.line("started", { step: "api", text: listening }, `the API is running at ${listening}`);
      api.resolve(listening);
    }
  }

  const children = servicePlans(context, config, databaseUrl).map((plan) => ({ ...plan, output: log }));
  const { random } = context;
  const ended = supervise({ children, shutdown: shutdown.signal, onEvent, graceMs: GRACE_MS, random });
  resources.defer(async () => {
    shutdown.abort();
    await ended;
    closeSync(log);
  });
  const [url] = await Promise.all([api.promise, dispatcher.promise]);
  return url;
}
