import { closeSync, openSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Pool } from "pg";
import { createCertificateAuthority } from "../app/certificate-authority.ts";
import { openConsole } from "../app/console-link.ts";
import { createApiKey } from "../app/create-api-key.ts";
import { createCommandPool, prepareDatabase } from "../app/database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { secretsKeyOf } from "../app/state-folder.ts";
import { type ChildEvent, servicePlans, supervise } from "../app/supervisor.ts";
import { UsageError } from "../app/usage-error.ts";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { accountScopes, userScopes } from "../model/api-keys.ts";
import { DAY_MS } from "../model/time.ts";
import { startEmbeddedPostgres } from "../postgres/embedded.ts";
import { createAccount } from "../store/accounts.ts";
import { setEndpoint } from "../store/endpoints.ts";
import { EXAMPLE_PIPELINE_ROLE, prepareExamplePipeline } from "../store/example-pipeline.ts";
import { createThrowAwayDatabase } from "../store/throw-away-database.ts";
import { insertUser } from "../store/users.ts";
import { type DemoReceivers, startDemoReceivers } from "./receivers.ts";
import { createTemporaryFolder } from "./temporary-folder.ts";

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
    // A connection may be slow only because the machine is busy.
    CONNECT_TIMEOUT_MS: "10000",
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
