import { join } from "node:path";
import type { Pool } from "pg";
import { findFirstAccount } from "../accounts/accounts-sql.ts";
import { type Config, plainSettings, readConfig } from "../base/config/config.ts";
import { FolderInUseError } from "../base/embedded/account.ts";
import { startEmbeddedPostgres } from "../base/embedded/embedded.ts";
import { accountScopes } from "../base/model/api-keys.ts";
import { abortableDelay, type BackoffLimits, createBackoff } from "../base/model/backoff.ts";
import { openConsole } from "./console-sessions.ts";
import { issueApiKey, openAccount } from "./create-api-key.ts";
import { createCommandPool, loadSecretsKey, prepareDatabase } from "./database.ts";
import { createEgress } from "./egress.ts";
import { type OfferedReceiver, offerReceiver } from "./offered-receiver.ts";
import { type Announce, inColumns, inFrame, UsageError } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";
import { removeOwnDatabase, secretsKeyOf, writeOwnDatabase, writeRunning } from "./state-folder.ts";
import { type ChildEvent, servicePlans, supervise } from "./supervisor.ts";

/** A dispatcher ends within the deadline of its attempts and 2 s more; after that, waiting longer is pointless. */
const GRACE_BEYOND_DEADLINE_MS = 5_000;
/** Long enough to be found among the lines of a start. */
const CONSOLE_LINK_SECONDS = 600;
const DATABASE_BACKOFF = { baseMs: 500, maxMs: 5_000 };
const RESTART_BACKOFF = { baseMs: 500, maxMs: 10_000 };

/**
 * Runs the whole service until shutdown: the API and a dispatcher and, without DATABASE_URL, a database of its own.
 * Resolves to the exit code.
 */
export async function runStandalone(context: ProcessContext, announce: Announce): Promise<number> {
  const shutdown = context.createShutdownSignal();
  shutdown.addEventListener("abort", () =>
    announce("stopping", {}, "Stopping: finishing what is in flight."),
  );
  let exitCode = 0;
  try {
    exitCode = await runUntilShutdown(context, shutdown, announce);
  } catch (error) {
    // A shutdown in the middle of the start makes it fail, and that is no failure.
    if (!shutdown.aborted) throw error;
  }
  announce("stopped", {}, "Stopped.");
  return exitCode;
}

async function runUntilShutdown(context: ProcessContext, shutdown: AbortSignal, announce: Announce) {
  const given = readConfig(context.env);
  // Made to no use: a certificate file that no child could read is told before anything is printed or made.
  createEgress(given);
  await secretsKeyOf(given);
  const offered = await offerReceiver(given, context.now);
  const env = { ...context.env, ...offered?.env };
  const config = readConfig(env);
  const { random } = context;
  const targets = given.unsafeAllowedTargets?.join(", ");
  if (targets) {
    const text = `UNSAFE: webhooks may go to ${targets}, public or not (UNSAFE_ALLOWED_TARGETS).`;
    announce("unsafe", { targets }, text);
  }
  const own =
    config.databaseUrl === null
      ? await startOwnDatabase(config.stateDir, plainSettings(env), announce, random)
      : null;
  const databaseUrl = own?.databaseUrl ?? config.databaseUrl ?? "";
  let welcomed = Promise.resolve();
  try {
    const prepared = () => prepare(databaseUrl, config, announce);
    await untilItWorks(prepared, DATABASE_BACKOFF, { shutdown, random }, (reason, delayMs) => {
      const text = `The database is not available (${reason}); trying again in ${seconds(delayMs)}.`;
      announce("database_away", { reason }, text);
    });
    const children = servicePlans({ env }, config, databaseUrl);
    const running = new Set<string>();
    let apiUrl: string | null = null;
    return await supervise({
      children,
      shutdown,
      onEvent: (event) => {
        announceChild(event, announce);
        if (event.kind !== "message") return;
        apiUrl ??= (event.message as { listening?: string }).listening ?? null;
        if (running.has(event.name) || running.add(event.name).size < children.length) return;
        if (own !== null) welcomed = welcome({ databaseUrl, config, env, apiUrl, offered }, announce);
      },
      graceMs: config.attemptDeadlineMs + GRACE_BEYOND_DEADLINE_MS,
      random,
    });
  } finally {
    await welcomed;
    await own?.stop();
  }
}

async function prepare(databaseUrl: string, config: Config, announce: Announce): Promise<void> {
  await using pool = createCommandPool(databaseUrl, "sealpost start", config);
  const applied = await prepareDatabase(pool, databaseUrl, config, () => undefined);
  const migrations = applied.length === 1 ? "1 migration" : `${applied.length} migrations`;
  if (applied.length > 0) announce("migrated", { applied }, `Migrated the database (${migrations}).`);
  await loadSecretsKey(pool, config);
}

type Started = {
  readonly databaseUrl: string;
  readonly config: Config;
  /** What `config` was read from. */
  readonly env: ProcessContext["env"];
  readonly apiUrl: string | null;
  readonly offered: OfferedReceiver | null;
};

/**
 * For whoever started the service on a database of its own: a link to the console of the oldest account, how to see a
 * webhook and, in a new database, an account. Never rejects: the service runs without, and there are commands for all.
 */
async function welcome(
  { databaseUrl, config, env, apiUrl, offered }: Started,
  announce: Announce,
): Promise<void> {
  await using pool = createCommandPool(databaseUrl, "sealpost start", config);
  try {
    const apiPort = apiUrl === null ? `${config.port}` : new URL(apiUrl).port || "80";
    await writeRunning(config.stateDir, plainSettings(env), apiPort, offered?.port ?? null);
    const isFirst = (await findFirstAccount(pool)) === null;
    const created = isFirst ? await createFirstAccount(pool, config) : null;
    if (offered !== null) announceOffered(offered, announce);
    if (config.areas.includes("webhooks")) await announceConsole(pool, config.publicUrl ?? apiUrl, announce);
    if (created === null) return;
    // Last, and in a frame: above it stand the lines of the start, and below it those of the service will follow.
    const { account_id: account, api_key, signing_secret } = created;
    const columns = inColumns({ account, "API key": api_key, "signing secret": signing_secret });
    const text = "First start: created a first account. Store its API key now; it is shown only once.";
    announce("first_account", created, inFrame(`${text}\n\n${columns}`));
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const text = `The link to the console, a receiver, or a first account, could not be offered: ${message}`;
    announce("welcome_failed", { message }, text);
  }
}

async function createFirstAccount(pool: Pool, config: Config) {
  const secretsKey = await loadSecretsKey(pool, config);
  const { accountId, signingSecret } = await openAccount(pool, "First account", secretsKey);
  const { keyId, apiKey } = await issueApiKey(pool, config, {
    accountId,
    name: "First key",
    scopes: accountScopes,
    expiresInSeconds: null,
  });
  return { account_id: accountId, key_id: keyId, api_key: apiKey, signing_secret: signingSecret };
}

function announceOffered({ port }: OfferedReceiver, announce: Announce): void {
  const url = `https://localhost:${port}`;
  const command = "npm run -s sealpost -- receiver try";
  const text =
    `To see a webhook arrive, verified, run this in another terminal:\n  ${command}\n` +
    `Webhooks may go to it, at ${url}, although that is private: in development only.`;
  announce("receiver_offered", { url, command }, text);
}

async function announceConsole(pool: Pool, publicUrl: string | null, announce: Announce): Promise<void> {
  const account = await findFirstAccount(pool);
  if (account === null || publicUrl === null) return;
  const { url } = await openConsole(pool, account.id, { publicUrl, linkSeconds: CONSOLE_LINK_SECONDS });
  const again = `npm run -s sealpost -- console link --account ${account.id}`;
  const text = `The console of “${account.name}” (opens once, within 10 minutes):\n  ${url}\nAnother link: ${again}`;
  announce("console", { account_id: account.id, url }, text);
}

/**
 * Runs the embedded PostgreSQL in the state folder, and restarts it when it ends, until `stop`; its URL stays the same.
 * Other commands find it through the folder.
 * @param settings the variables that are set, for the commands that use this database
 * @throws UsageError when another process uses the folder
 */
async function startOwnDatabase(
  stateDir: string,
  settings: Readonly<Record<string, string>>,
  announce: Announce,
  random: () => number,
) {
  const dataDir = join(stateDir, "postgres");
  const start = () => startEmbeddedPostgres({ dataDir });
  const stopping = new AbortController();
  const shutdown = stopping.signal;
  let server = await start().catch((error: unknown) => {
    throw error instanceof FolderInUseError ? new UsageError(error.message, { cause: error }) : error;
  });
  const { databaseUrl } = server;
  await writeOwnDatabase(stateDir, databaseUrl, settings);
  announce("database_running", { folder: dataDir }, `PostgreSQL is running; its data is in ${dataDir}.`);

  async function keepRunning(): Promise<void> {
    for (;;) {
      await server.ended;
      if (shutdown.aborted) return;
      announce("database_ended", {}, "PostgreSQL ended unexpectedly; restarting it.");
      await server.stop();
      const restarted = await untilItWorks(start, RESTART_BACKOFF, { shutdown, random }, (message) =>
        announce("database_failed", { message }, `PostgreSQL failed to start: ${message}`),
      );
      if (restarted === null) return;
      server = restarted;
      announce("database_running", { folder: dataDir }, "PostgreSQL is running again.");
    }
  }

  const kept = keepRunning();
  return {
    databaseUrl,
    stop: async () => {
      stopping.abort();
      await removeOwnDatabase(stateDir);
      await server.stop();
      await kept;
    },
  };
}

/** Tries again until it works; a usage error is for the caller to fix. Null: the shutdown came first. */
async function untilItWorks<T>(
  work: () => Promise<T>,
  limits: BackoffLimits,
  { shutdown, random }: { readonly shutdown: AbortSignal; readonly random: () => number },
  onFailure: (reason: string, retryInMs: number) => void,
): Promise<T | null> {
  const backoff = createBackoff(limits, random);
  while (!shutdown.aborted) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof UsageError) throw error;
      const { code, message } = error as NodeJS.ErrnoException;
      const delayMs = backoff.nextMs();
      onFailure(message || code || "no answer", delayMs);
      await abortableDelay(delayMs, shutdown);
    }
  }
  return null;
}

/** How a child ends after a shutdown; a second signal may hit it while it does. */
const EXPECTED_ENDS: readonly string[] = ["exit code 0", "SIGTERM", "SIGINT", "SIGHUP"];

function announceChild(event: ChildEvent, announce: Announce): void {
  const { kind, name } = event;
  switch (kind) {
    case "started":
      return;
    case "message": {
      const { listening: url = null } = event.message as { listening?: string };
      const where = url === null ? "" : ` at ${url}`;
      announce("running", { name, pid: event.pid, url }, `The ${name} is running${where}.`);
      return;
    }
    case "ended": {
      const { how, restartInMs } = event;
      const why = EXPECTED_ENDS.includes(how) ? "" : ` (${how})`;
      const next = restartInMs === null ? "" : ` Restarting it in ${seconds(restartInMs)}.`;
      announce("ended", { name, how, again_in_ms: restartInMs }, `The ${name} ended${why}.${next}`);
      return;
    }
    default:
      kind satisfies never;
  }
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}
