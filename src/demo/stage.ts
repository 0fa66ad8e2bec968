import { closeSync, openSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Pool } from "pg";
import { createCertificateAuthority } from "../app/certificate-authority.ts";
import { childPlans } from "../app/child-plans.ts";
import { createApiKey } from "../app/create-api-key.ts";
import { prepareDatabase } from "../app/prepare-database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { secretsKeyOf } from "../app/state-folder.ts";
import { type ChildNews, supervise } from "../app/supervisor.ts";
import { UsageError } from "../app/usage-error.ts";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { scopes } from "../model/scopes.ts";
import { DAY_MS } from "../model/time.ts";
import { startEmbeddedPostgres } from "../postgres/embedded.ts";
import { createAccount } from "../store/accounts.ts";
import { setEndpoint } from "../store/endpoints.ts";
import { EXAMPLE_PIPELINE_ROLE, prepareExamplePipeline } from "../store/example-pipeline.ts";
import { createGeneralPool } from "../store/pools.ts";
import { createThrowAwayDatabase } from "../store/throw-away-database.ts";
import { type DemoReceivers, startDemoReceivers } from "./demo-receivers.ts";
import { makeThrowAwayFolder } from "./throw-away-folder.ts";

/** A day of retries, compressed: eight attempts fit. */
export const WINDOW_SECONDS = 5;
const GRACE_MS = 5_000;
const LOG_LINES_SHOWN = 10;

/** The whole service with an account, its database and its receivers. */
export type Stage = {
  readonly accountId: string;
  readonly signingSecret: string;
  readonly apiUrl: string;
  readonly apiKey: string;
  readonly receivers: DemoReceivers;
  /** With the pipeline's role, and its rights alone. */
  readonly pipelinePool: Pool;
  /** What trusts the receivers' certificates, as PEM. */
  readonly caFile: string;
};

/** Where the service has got to while it starts. */
export type Starting = "database" | "schema" | "api" | "dispatcher";

export type StartOptions = {
  readonly context: ProcessContext;
  /** Everything that was started is added here, to be ended in the reverse order. */
  readonly stack: AsyncDisposableStack;
  readonly hear: (step: Starting, text: string) => void;
  /** Told when the service cannot go on. */
  readonly fail: (error: Error) => void;
  readonly signal: AbortSignal;
  /** Use the server of DATABASE_URL in place of an embedded one. */
  readonly isOnServer: boolean;
};

export async function setStage(options: StartOptions): Promise<Stage> {
  const { context, stack, hear, signal, isOnServer } = options;
  const { now } = context;
  const folder = await makeThrowAwayFolder();
  stack.defer(() => folder.remove());

  const validity = { notBefore: new Date(now() - DAY_MS), notAfter: new Date(now() + DAY_MS) };
  const authority = await createCertificateAuthority("Sealpost demo authority", validity);
  const receivers = await startDemoReceivers({ authority, validity, now });
  stack.defer(() => receivers.close());

  const env = demoEnv(context, folder.path, receivers.port);
  const config = readConfig(env);
  await writeFile(caFileIn(folder.path), authority.caPem);
  const databaseUrl = await makeDatabase(options, folder.path);
  hear("database", isOnServer ? "" : folder.path);
  signal.throwIfAborted();

  const prepared = await prepare(openPool(databaseUrl, stack), databaseUrl, config, receivers);
  hear("schema", "");
  const apiUrl = await startChildren({ ...context, env }, config, databaseUrl, options);
  return {
    ...prepared,
    apiUrl,
    receivers,
    pipelinePool: openPool(asPipeline(databaseUrl), stack),
    caFile: caFileIn(folder.path),
  };
}

/** On an embedded server of its own, or beside what DATABASE_URL names. */
async function makeDatabase({ context, stack, isOnServer }: StartOptions, folder: string): Promise<string> {
  if (isOnServer) {
    const { databaseUrl: besideUrl } = readConfig(context.env);
    if (besideUrl === null) throw new UsageError("DATABASE_URL is unset: it names the server to use.");
    const database = await createThrowAwayDatabase(besideUrl);
    stack.defer(() => database.drop());
    return database.databaseUrl;
  }
  // Nobody misses this data after a power cut.
  const settings = { fsync: "off" };
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "postgres"), settings });
  stack.defer(() => server.stop());
  return server.databaseUrl;
}

function caFileIn(folder: string): string {
  return join(folder, "ca.pem");
}

/** Nothing of the caller's environment but what processes need to run, and the port. */
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
    // A machine that is busy with something else is no fault of the receivers.
    CONNECT_TIMEOUT_MS: "10000",
    // The demo looks often, to show things as they happen.
    RATE_LIMIT_REQUESTS: "1000000",
  };
}

/** Brings the database to where the demo begins: an account with a key and an endpoint, and a pipeline's own table. */
async function prepare(pool: Pool, databaseUrl: string, config: Config, receivers: DemoReceivers) {
  await prepareDatabase(pool, databaseUrl, config, () => undefined);
  await prepareExamplePipeline(pool);
  const account = await createAccount(pool, "Demo", await secretsKeyOf(config));
  const { apiKey } = await createApiKey(pool, config, {
    accountId: account.accountId,
    name: "Demo",
    scopes,
    expiresInSeconds: null,
  });
  receivers.expect(account.signingSecret);
  await setEndpoint(pool, account.accountId, receivers.url("steady"));
  return { ...account, apiKey };
}

function openPool(databaseUrl: string, stack: AsyncDisposableStack): Pool {
  const pool = createGeneralPool({
    databaseUrl,
    connectionsMax: 2,
    applicationName: "sealpost demo",
    onError: () => undefined,
  });
  stack.defer(() => pool.end());
  return pool;
}

function asPipeline(databaseUrl: string): string {
  const url = new URL(databaseUrl);
  url.searchParams.set("options", `-c role=${EXAMPLE_PIPELINE_ROLE}`);
  return url.href;
}

/** Starts API and dispatcher; resolves to the API's address once both are ready. */
async function startChildren(
  context: ProcessContext,
  config: Config,
  databaseUrl: string,
  { stack, hear, fail, signal }: StartOptions,
): Promise<string> {
  const { random } = context;
  const logFile = join(config.stateDir, "service.log");
  const output = openSync(logFile, "a");
  const asked = new AbortController();
  const address = Promise.withResolvers<string>();
  const dispatching = Promise.withResolvers<void>();

  function onNews(news: ChildNews): void {
    if (news.kind === "ended" && !asked.signal.aborted) {
      fail(new Error(`The ${news.name} ended (${news.how}). Its log:\n${endOf(logFile)}`));
    }
    if (news.kind !== "told") return;
    const { listening } = news.message as { readonly listening?: string };
    if (listening === undefined) {
      hear("dispatcher", "");
      dispatching.resolve();
    } else {
      hear("api", listening);
      address.resolve(listening);
    }
  }

  const children = childPlans(context, config, databaseUrl).map((plan) => ({ ...plan, output }));
  const ended = supervise({ children, asked: asked.signal, hear: onNews, graceMs: GRACE_MS, random });
  stack.defer(async () => {
    asked.abort();
    await ended;
    closeSync(output);
  });
  const [url] = await untilAborted(Promise.all([address.promise, dispatching.promise]), signal);
  return url;
}

function endOf(logFile: string): string {
  return readFileSync(logFile, "utf8").trimEnd().split("\n").slice(-LOG_LINES_SHOWN).join("\n");
}

async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_, reject) => {
    const onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
  return await Promise.race([work, aborted]);
}
