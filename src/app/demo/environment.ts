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
import { DAY_MS } from "../../base/model/time.ts";
import { setEndpoint } from "../../delivery/endpoint-sql.ts";
import { createCertificateAuthority } from "../certificate-authority.ts";
import { openConsole } from "../console-sessions.ts";
import { createApiKey } from "../create-api-key.ts";
import { createCommandPool, prepareDatabase } from "../database.ts";
import { UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { secretsKeyOf } from "../state-folder.ts";
import { type ChildEvent, servicePlans, supervise } from "../supervisor.ts";
import {
  createThrowAwayDatabase,
  EXAMPLE_PIPELINE_ROLE,
  prepareExamplePipeline,
} from "./example-database-sql.ts";
import { type DemoReceivers, startDemoReceivers } from "./receivers.ts";

export type TemporaryFolder = { readonly path: string; remove(): Promise<void> };

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
async function createTemporaryFolder(): Promise<TemporaryFolder> {
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
  // PostgreSQL's account has to pass through the folder; the files in it keep their own modes.
  await chmod(path, 0o711);
  return {
    path,
    remove: async () => {
      remover.stdin?.end();
      await removed;
    },
  };
}

/** A day of retries compressed to seconds, enough for eight attempts. */
export const WINDOW_SECONDS = 5;
const GRACE_MS = 5_000;
/** Long enough to be found below the summary. */
const CONSOLE_LINK_SECONDS = 600;
const LOG_LINES_SHOWN_MAX = 10;

/** The running service with its database, an account and the receivers. */
export type DemoEnvironment = {
  readonly accountId: string;
  readonly signingSecret: string;
  readonly apiUrl: string;
  readonly apiKey: string;
  /** Acts for a user of the account. */
  readonly userKey: string;
  /** Whether the service has that area. */
  readonly hasWorkspace: boolean;
  readonly receivers: DemoReceivers;
  /** Connects as the pipeline's role, with no rights but its own. */
  readonly pipelinePool: Pool;
  /** File of the certificate authority (PEM) that issued the receivers' certificates. */
  readonly caFile: string;
  /** A fresh link that opens the console, once. */
  readonly consoleLink: () => Promise<string>;
};

/** The steps of the start; each is reported when it is done. */
export type StartStep = "database" | "schema" | "api" | "dispatcher";

export type StartOptions = {
  readonly context: ProcessContext;
  /** Everything that is started is added here; the caller disposes of it. */
  readonly resources: AsyncDisposableStack;
  readonly onStep: (step: StartStep, detail: string) => void;
  /** Called when a process of the service ends too early. */
  readonly onFailure: (error: Error) => void;
  readonly signal: AbortSignal;
  /** Use the server of DATABASE_URL instead of an embedded one. */
  readonly usesServer: boolean;
};

export async function startDemoEnvironment(options: StartOptions): Promise<DemoEnvironment> {
  const { context, resources, onStep, signal, usesServer } = options;
  const { now } = context;
  const folder = await createTemporaryFolder();
  resources.defer(() => folder.remove());

  const validity = { notBefore: new Date(now() - DAY_MS), notAfter: new Date(now() + DAY_MS) };
  const authority = await createCertificateAuthority("Sealpost demo authority", validity);
  const receivers = await startDemoReceivers({ authority, validity, now });
  resources.defer(() => receivers.close());

  const env = demoEnv(context, folder.path, receivers.port);
  const config = readConfig(env);
  await writeFile(caFileIn(folder.path), authority.caPem);
  const databaseUrl = await createDatabase(options, folder.path);
  onStep("database", usesServer ? "" : folder.path);
  signal.throwIfAborted();

  const pool = openPool(databaseUrl, resources);
  const prepared = await prepare(pool, databaseUrl, config, receivers);
  onStep("schema", "");
  const apiUrl = await startChildren({ ...context, env }, config, databaseUrl, options);
  return {
    ...prepared,
    apiUrl,
    hasWorkspace: config.areas.some((area: string) => area === "workspace"),
    receivers,
    pipelinePool: openPool(pipelineUrl(databaseUrl), resources),
    caFile: caFileIn(folder.path),
    consoleLink: async () => {
      const wish = { publicUrl: apiUrl, linkSeconds: CONSOLE_LINK_SECONDS };
      return (await openConsole(pool, prepared.accountId, wish)).url;
    },
  };
}

/** In an embedded server, or as a new database in the server of DATABASE_URL. */
async function createDatabase(
  { context, resources, usesServer }: StartOptions,
  folder: string,
): Promise<string> {
  if (usesServer) {
    const { databaseUrl: serverUrl } = readConfig(context.env);
    if (serverUrl === null) throw new UsageError("--use-server needs DATABASE_URL, which names the server.");
    const database = await createThrowAwayDatabase(serverUrl);
    resources.defer(() => database.drop());
    return database.databaseUrl;
  }
  // This data need not survive a power failure.
  const settings = { fsync: "off" };
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "postgres"), settings });
  resources.defer(() => server.stop());
  return server.databaseUrl;
}

function caFileIn(folder: string): string {
  return join(folder, "ca.pem");
}

/** Of the caller's environment only what processes need to run, and the port. */
function demoEnv(
  { env }: ProcessContext,
  folder: string,
  receiversPort: number,
): Record<string, string | undefined> {
  return {
    PATH: env.PATH,
    HOME: env.HOME,
    PORT: env.PORT ?? "0",
    METRICS_PORT: "0",
    STATE_DIR: folder,
    TARGET_CA_FILE: caFileIn(folder),
    UNSAFE_ALLOWED_TARGETS: `*.localhost:${receiversPort}`,
    RETRY_WINDOW_SECONDS: `${WINDOW_SECONDS}`,
    // The demo polls often, to show events as they happen.
    RATE_LIMIT_REQUESTS: "1000000",
  };
}

/** Migrates the database and creates an account with an API key and an endpoint, and the pipeline's table. */
async function prepare(pool: Pool, databaseUrl: string, config: Config, receivers: DemoReceivers) {
  await prepareDatabase(pool, databaseUrl, config, () => undefined);
  await prepareExamplePipeline(pool);
  const account = await createAccount(pool, "Demo", await secretsKeyOf(config));
  const { apiKey } = await createApiKey(pool, config, {
    accountId: account.accountId,
    name: "Demo",
    scopes: accountScopes,
    expiresInSeconds: null,
  });
  const { accountId } = account;
  const who = { accountId, idpUserId: "demo|ada", email: "ada@example.com", name: "Ada", imageUrl: null };
  const { id: userId } = (await insertUser(pool, who))!;
  const { apiKey: userKey } = await createApiKey(pool, config, {
    accountId,
    userId,
    name: "Demo of the workspace",
    scopes: userScopes,
    expiresInSeconds: null,
  });
  receivers.trust(account.signingSecret);
  await setEndpoint(pool, accountId, receivers.url("steady"));
  return { ...account, apiKey, userKey };
}

function openPool(databaseUrl: string, resources: AsyncDisposableStack): Pool {
  const pool = createCommandPool(databaseUrl, "sealpost demo", { cell: null });
  resources.defer(() => pool.end());
  return pool;
}

function pipelineUrl(databaseUrl: string): string {
  const url = new URL(databaseUrl);
  url.searchParams.set("options", `-c role=${EXAMPLE_PIPELINE_ROLE}`);
  return url.href;
}

/** Starts the API and a dispatcher; resolves to the API's URL once both are ready. */
async function startChildren(
  context: ProcessContext,
  config: Config,
  databaseUrl: string,
  { resources, onStep, onFailure, signal }: StartOptions,
): Promise<string> {
  const { random } = context;
  const logFile = join(config.stateDir, "service.log");
  const output = openSync(logFile, "a");
  const shutdown = new AbortController();
  const apiReady = Promise.withResolvers<string>();
  const dispatcherReady = Promise.withResolvers<void>();

  function onEvent(event: ChildEvent): void {
    if (event.kind === "ended" && !shutdown.signal.aborted) {
      onFailure(new Error(`The ${event.name} ended (${event.how}). Its log:\n${endOf(logFile)}`));
    }
    if (event.kind !== "message") return;
    const { listening } = event.message as { readonly listening?: string };
    if (listening === undefined) {
      onStep("dispatcher", "");
      dispatcherReady.resolve();
    } else {
      onStep("api", listening);
      apiReady.resolve(listening);
    }
  }

  const children = servicePlans(context, config, databaseUrl).map((plan) => ({ ...plan, output }));
  const ended = supervise({ children, shutdown: shutdown.signal, onEvent, graceMs: GRACE_MS, random });
  resources.defer(async () => {
    shutdown.abort();
    await ended;
    closeSync(output);
  });
  const [url] = await untilAborted(Promise.all([apiReady.promise, dispatcherReady.promise]), signal);
  return url;
}

function endOf(logFile: string): string {
  return readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-LOG_LINES_SHOWN_MAX).join("\n");
}

async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
  return await Promise.race([work, aborted]);
}
