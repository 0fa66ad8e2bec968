import type { Pool } from "pg";
import { findFirstAccount, hasAccounts } from "../accounts/accounts-sql.ts";
import { type Config, plainSettings, readConfig } from "../base/config/config.ts";
import { accountScopes } from "../base/model/api-keys.ts";
import { abortableDelay, createBackoff } from "../base/model/backoff.ts";
import { openConsole } from "./console-sessions.ts";
import { issueApiKey, openAccount } from "./create-api-key.ts";
import { createCommandPool, loadSecretsKey, prepareDatabase } from "./database.ts";
import { createEgress } from "./egress.ts";
import { type Announce, inColumns, inFrame, UsageError } from "./output.ts";
import { startOwnDatabase } from "./own-database.ts";
import type { ProcessContext } from "./process-context.ts";
import { secretsKeyOf } from "./state-folder.ts";
import { type ChildEvent, servicePlans, supervise } from "./supervisor.ts";

/** A dispatcher ends within the deadline of its attempts and 2 s more; after that, waiting longer is pointless. */
const GRACE_BEYOND_DEADLINE_MS = 5_000;
/** Long enough to be found among the lines of a start. */
const CONSOLE_LINK_SECONDS = 600;
const DATABASE_BACKOFF = { baseMs: 500, maxMs: 5_000 };

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

async function runUntilShutdown(
  context: ProcessContext,
  shutdown: AbortSignal,
  announce: Announce,
): Promise<number> {
  const { env, random } = context;
  const config = readConfig(env);
  // Made to no use: a certificate file that no child could read is told before anything is printed or made.
  createEgress(config);
  await secretsKeyOf(config);
  announceUnsafe(config, announce);
  const own =
    config.databaseUrl === null
      ? await startOwnDatabase(config.stateDir, plainSettings(env), announce, random)
      : null;
  const databaseUrl = own?.databaseUrl ?? config.databaseUrl ?? "";
  let firstAccount: FirstAccount | null = null;
  const announceOnce = () => {
    if (firstAccount !== null) announceFirstAccount(firstAccount, announce);
    firstAccount = null;
  };
  try {
    const work = async () => {
      firstAccount = await prepare(databaseUrl, config, own !== null, announce);
    };
    await retryUntilReachable(work, shutdown, announce, random);
    const children = servicePlans(context, config, databaseUrl);
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
        const opening =
          own === null || !config.areas.includes("webhooks")
            ? Promise.resolve()
            : announceConsole(databaseUrl, config, apiUrl, announce);
        // Without a link there still is the command line's.
        void opening.catch(() => undefined).finally(announceOnce);
      },
      graceMs: config.attemptDeadlineMs + GRACE_BEYOND_DEADLINE_MS,
      random,
    });
  } finally {
    // The key exists, even if the service never ran.
    announceOnce();
    await own?.stop();
  }
}

function announceUnsafe({ unsafeAllowedTargets }: Config, announce: Announce): void {
  if (!unsafeAllowedTargets) return;
  const targets = unsafeAllowedTargets.join(", ");
  const text = `UNSAFE: webhooks may go to ${targets}, public or not (UNSAFE_ALLOWED_TARGETS).`;
  announce("unsafe", { targets }, text);
}

type FirstAccount = Readonly<Record<"account_id" | "key_id" | "api_key" | "signing_secret", string>>;

/** Migrates the database and, in an own database that is new, creates a first account: null if there is one. */
async function prepare(
  databaseUrl: string,
  config: Config,
  isOwn: boolean,
  announce: Announce,
): Promise<FirstAccount | null> {
  const pool = createCommandPool(databaseUrl, "sealpost start", config);
  try {
    const applied = await prepareDatabase(pool, databaseUrl, config, () => undefined);
    const migrations = applied.length === 1 ? "1 migration" : `${applied.length} migrations`;
    if (applied.length > 0) announce("migrated", { applied }, `Migrated the database (${migrations}).`);
    const secretsKey = await loadSecretsKey(pool, config);
    if (!isOwn || (await hasAccounts(pool))) return null;
    return await createFirstAccount(pool, config, secretsKey);
  } finally {
    await pool.end();
  }
}

async function createFirstAccount(pool: Pool, config: Config, secretsKey: Uint8Array): Promise<FirstAccount> {
  const { accountId, signingSecret } = await openAccount(pool, "First account", secretsKey);
  const { keyId, apiKey } = await issueApiKey(pool, config, {
    accountId,
    name: "First key",
    scopes: accountScopes,
    expiresInSeconds: null,
  });
  return { account_id: accountId, key_id: keyId, api_key: apiKey, signing_secret: signingSecret };
}

/** A link to the console of the oldest account, for whoever started the service on a database of its own. */
async function announceConsole(
  databaseUrl: string,
  config: Config,
  apiUrl: string | null,
  announce: Announce,
): Promise<void> {
  const publicUrl = config.publicUrl ?? apiUrl;
  if (publicUrl === null) return;
  const pool = createCommandPool(databaseUrl, "sealpost start", config);
  try {
    const account = await findFirstAccount(pool);
    if (account === null) return;
    const { url } = await openConsole(pool, account.id, { publicUrl, linkSeconds: CONSOLE_LINK_SECONDS });
    const again = `npm run -s sealpost -- console link --account ${account.id}`;
    const text = `The console of “${account.name}” (opens once, within 10 minutes):\n  ${url}\nAnother link: ${again}`;
    announce("console", { account_id: account.id, url }, text);
  } finally {
    await pool.end();
  }
}

/** Last, and in a frame: above it stand the log lines of the start, and below it those of the service will follow. */
function announceFirstAccount(account: FirstAccount, announce: Announce): void {
  const { account_id: id, api_key: apiKey, signing_secret: secret } = account;
  const columns = inColumns({ account: id, "API key": apiKey, "signing secret": secret });
  const text = `First start: created a first account. Keep its API key: it is shown this once.\n\n${columns}`;
  announce("first_account", account, inFrame(text));
}

/** Retries while the database does not answer; a usage error is for the caller to fix. */
async function retryUntilReachable(
  work: () => Promise<void>,
  shutdown: AbortSignal,
  announce: Announce,
  random: () => number,
): Promise<void> {
  const backoff = createBackoff(DATABASE_BACKOFF, random);
  while (!shutdown.aborted) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof UsageError) throw error;
      const { code, message } = error as NodeJS.ErrnoException;
      const reason = message || code || "no answer";
      const delayMs = backoff.nextMs();
      const text = `The database is not available (${reason}); trying again in ${seconds(delayMs)}.`;
      announce("database_away", { reason }, text);
      await abortableDelay(delayMs, shutdown);
    }
  }
}

/** How a child ends after a shutdown; a second signal may hit it while it does. */
const EXPECTED_ENDS: readonly string[] = ["exit code 0", "SIGTERM", "SIGINT", "SIGHUP"];

function announceChild(event: ChildEvent, announce: Announce): void {
  const { kind, name } = event;
  switch (kind) {
    case "started":
      return;
    case "message": {
      const { listening } = event.message as { listening?: string };
      const where = listening ? ` at ${listening}` : "";
      const fields = { name, pid: event.pid, url: listening ?? null };
      announce("running", fields, `The ${name} is running${where}.`);
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
