import pg, { type Pool } from "pg";
import type { Logger } from "pino";
import { accountExists } from "../accounts/accounts-sql.ts";
import type { Config } from "../base/config/config.ts";
import { OtherCellError } from "../base/database/cells.ts";
import { MigrationError, migrate, readMigrationNames } from "../base/database/migrate.ts";
import { addressOf, createGeneralPool } from "../base/database/pools.ts";
import { findReadinessProblems } from "../base/database/readiness.ts";
import { keepSecretsKey, WRONG_SECRETS_KEY } from "../base/database/sealing.ts";
import { writeStorageLimits } from "../base/database/storage.ts";
import { tlsFaultOf } from "../base/database/transaction.ts";
import { abortableDelay } from "../base/model/backoff.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { storageLimitsOf } from "../base/model/storage.ts";
import { writeAnalysesUrl } from "../delivery/endpoint-sql.ts";
import { proveFromLog } from "../delivery/receivers-sql.ts";
import { writeSettings } from "../publish/publish-call-sql.ts";
import { UsageError } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";
import { commandConfigOf, databaseUrlOf, secretsKeyOf } from "./state-folder.ts";

const CONNECTIONS_MAX = 2;

/** SQLSTATEs of a missing schema and a missing table: the database was never migrated. */
const NOT_MIGRATED: readonly string[] = ["3F000", "42P01"];

/**
 * Runs `work` with the database that the environment names, then closes its connections.
 * @param createPool absent: connections for what runs once
 */
export async function withDatabase<T>(
  { env }: Pick<ProcessContext, "env">,
  work: (pool: Pool, config: Config) => Promise<T>,
  createPool = (url: string, config: Config) => createCommandPool(url, "sealpost command line", config),
): Promise<T> {
  const config = await commandConfigOf(env);
  await using pool = createPool(await databaseUrlOf(config), config);
  try {
    return await work(pool, config);
  } catch (error) {
    throw explained(error);
  }
}

/** For what runs once. A connection that breaks fails the query on it, so it needs no report of its own. */
export function createCommandPool(
  databaseUrl: string,
  applicationName: string,
  { cell }: Pick<Config, "cell">,
): Pool & AsyncDisposable {
  const onError = () => undefined;
  const options = { databaseUrl, connectionsMax: CONNECTIONS_MAX, applicationName, cell, onError };
  return endedByScope(createGeneralPool(options));
}

/** For `await using`. */
export function endedByScope(pool: Pool): Pool & AsyncDisposable {
  return Object.assign(pool, { [Symbol.asyncDispose]: () => pool.end() });
}

/** Of the process that a dispatcher has for what areas compute: one for each step, one to look and to hold leases. */
export const STEP_CONNECTIONS = 3;

/** Of the pools of a process that runs on: a connection that breaks is told in its log. */
export function poolOptions({ cell }: Config, databaseUrl: string, applicationName: string, log: Logger) {
  const onError = (err: Error) => log.warn({ err }, "a database connection broke");
  return { databaseUrl, cell, applicationName, onError };
}

/** Whether who is on the way to it could read along, or pass for it: it is elsewhere, and no certificate is checked. */
export function isReadableOnTheWay(databaseUrl: string): boolean {
  // It connects to nothing, and takes the address as the pools do.
  const { host, ssl } = new pg.Client(addressOf(databaseUrl, []));
  const tls = ssl as boolean | { readonly rejectUnauthorized?: boolean };
  const isChecked = typeof tls === "boolean" ? tls : tls.rejectUnauthorized !== false;
  return !isChecked && !/^(?:\/|127(?:\.\d+){3}$|::1$|localhost$)/.test(host);
}

/** Where it matters. */
export function warnOfPlainDatabases(config: Config, log: Logger): void {
  const { environment, databaseUrl, readDatabaseUrl } = config;
  if (environment !== "production") return;
  for (const [name, url] of Object.entries({ DATABASE_URL: databaseUrl, READ_DATABASE_URL: readDatabaseUrl }))
    if (url && isReadableOnTheWay(url))
      log.warn(`${name} leads to another host without TLS: set sslmode=verify-full`);
}

const UNMIGRATED = "the database is not migrated to this version: run `sealpost migrate`";

/**
 * The database that a process is to work with, and what it lacks (null: nothing); `look` looks again. That is no reason
 * not to start: each connection is checked again, and /readyz says what is missing.
 * @throws UsageError when the database is another cell's, or its secrets are sealed with another key
 */
export async function findDatabase(config: Config) {
  const databaseUrl = await databaseUrlOf(config);
  const secretsKey = await secretsKeyOf(config);
  const look = async (): Promise<string | null> => {
    await using pool = createCommandPool(databaseUrl, "sealpost start", config);
    try {
      const found = await findReadinessProblems(pool, await readMigrationNames(config.areas), secretsKey);
      const wrongKey = found.find(({ kind }) => kind === "secrets_key");
      if (wrongKey !== undefined) throw new UsageError(wrongKey.text);
      if (found.some(({ kind }) => kind === "migration")) return UNMIGRATED;
      if (!found.some(({ kind }) => kind === "read_only")) await refuseOtherKeys(pool, secretsKey);
      return null;
    } catch (error) {
      if (error instanceof UsageError) throw error;
      const { message, code = "no answer" } = error as NodeJS.ErrnoException;
      const why = tlsFaultOf(error) ?? (message || code);
      if (!(error instanceof OtherCellError)) return `the database cannot be used yet (${why})`;
      if (error.found !== null) throw explained(error);
      return UNMIGRATED;
    }
  };
  return { databaseUrl, secretsKey, look, lacks: await look() };
}

export type FoundDatabase = Awaited<ReturnType<typeof findDatabase>>;

const LOOK_EVERY_MS = 1_000;

/**
 * Waits for a database that answers and is migrated; says once what for. Work that begins before fails at every step,
 * and a process that ended would be started again and again, later each time.
 * @throws UsageError as `findDatabase` does
 */
export async function untilMigrated(
  { lacks, look }: Pick<FoundDatabase, "lacks" | "look">,
  log: Logger,
  metricsUrl: string,
  shutdown: AbortSignal,
): Promise<void> {
  if (lacks === null) return;
  const told = new Set<string>();
  for (let what: string | null = lacks; what !== null && !shutdown.aborted; what = await look()) {
    if (!told.has(what)) log.warn({ metrics_url: metricsUrl }, `${what}; until then nothing is done here`);
    told.add(what);
    await abortableDelay(LOOK_EVERY_MS, shutdown);
  }
  if (!shutdown.aborted) log.info("the database is migrated");
}

/** Runs the migrations, then stores the settings that SQL functions read. Returns the names of the files applied. */
export async function prepareDatabase(
  pool: Pool,
  databaseUrl: string,
  config: Config,
  log: (line: string) => void,
): Promise<readonly string[]> {
  try {
    // Whoever waits for the last file posts nothing before those who have succeeded are known.
    const before = { "0012_feed.sql": proveFromLog };
    const applied = await migrate({ databaseUrl, log, cell: config.cell, areas: config.areas, before });
    // Who has the wrong one may have the wrong database, whose settings stay.
    if (config.secretsKey !== null) await loadSecretsKey(pool, config);
    await writeSettings(pool, {
      analysisBytesMax: config.analysisBytesMax,
      unsafeAllowedTargets: config.unsafeAllowedTargets ?? [],
    });
    const limits = storageLimitsOf(config.accountStorageBytesMax, config.accountAnalysesBytesMax);
    await writeStorageLimits(pool, limits);
    await writeAnalysesUrl(pool, config.publicUrl);
    return applied;
  } catch (error) {
    if (error instanceof MigrationError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

/**
 * The key that encrypts stored secrets. A wrong one is refused before it encrypts any: nobody else could read those.
 * @throws UsageError when the stored secrets were encrypted with another key
 */
export async function loadSecretsKey(pool: Pool, config: Config, isResealing = false): Promise<SecretsKey> {
  const secretsKey = await secretsKeyOf(config);
  await refuseOtherKeys(pool, secretsKey, isResealing);
  return secretsKey;
}

async function refuseOtherKeys(pool: Pool, secretsKey: SecretsKey, isResealing = false): Promise<void> {
  if (!(await keepSecretsKey(pool, secretsKey, { isStoring: false, isResealing })))
    throw new UsageError(WRONG_SECRETS_KEY);
}

/** @throws UsageError when there is no such account, or it is erased */
export async function requireAccount(pool: Pool, accountId: string): Promise<void> {
  if (!(await accountExists(pool, accountId))) throw unknownAccount(accountId);
}

export function unknownAccount(accountId: string | null): UsageError {
  return new UsageError(`There is no account ${accountId}; \`sealpost account list\` lists all accounts.`);
}

function explained(error: unknown): unknown {
  if (error instanceof OtherCellError) return new UsageError(error.message, { cause: error });
  const { code = "", syscall, hostname } = error as NodeJS.ErrnoException & { hostname?: string };
  const cause = { cause: error };
  if (NOT_MIGRATED.includes(code)) {
    return new UsageError("The database has no Sealpost tables yet: run `sealpost migrate` first.", cause);
  }
  const fault = tlsFaultOf(error);
  if (fault !== null) return new UsageError(fault, cause);
  // A host with several addresses fails with an AggregateError, whose message is empty.
  if (syscall !== undefined || error instanceof AggregateError) {
    const why = `${code || "no answer"}${hostname === undefined ? "" : `: ${hostname}`}`;
    return new Error(`Cannot reach the database that DATABASE_URL names (${why}).`, cause);
  }
  const remedy = code === "42501" ? " docs/operating.md has the grants." : "";
  return error instanceof pg.DatabaseError
    ? new Error(`Database error: ${error.message}.${remedy}`, cause)
    : error;
}
