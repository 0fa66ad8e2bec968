import pg, { type Pool } from "pg";
import type { Config } from "../config/config.ts";
import { accountExists } from "../store/accounts.ts";
import { OtherCellError } from "../store/cells.ts";
import { MigrationError, migrate } from "../store/migrate.ts";
import { createGeneralPool } from "../store/pools.ts";
import { writeSettings } from "../store/publications.ts";
import { opensSecrets } from "../store/signing-secrets.ts";
import type { ProcessContext } from "./process-context.ts";
import { commandConfigOf, databaseUrlOf, secretsKeyOf } from "./state-folder.ts";
import { UsageError } from "./usage-error.ts";

const CONNECTIONS_MAX = 2;

/** SQLSTATEs of a missing schema and a missing table: the database was never migrated. */
const NOT_MIGRATED: readonly string[] = ["3F000", "42P01"];

/** Runs `work` with the database that the environment names, then closes its connections. */
export async function withDatabase<T>(
  { env }: Pick<ProcessContext, "env">,
  work: (pool: Pool, config: Config) => Promise<T>,
): Promise<T> {
  const config = await commandConfigOf(env);
  const pool = createCommandPool(await databaseUrlOf(config), "sealpost command line", config);
  try {
    return await work(pool, config);
  } catch (error) {
    throw explained(error);
  } finally {
    await pool.end();
  }
}

/** For what runs once. A connection that breaks fails the query on it, so it needs no report of its own. */
export function createCommandPool(
  databaseUrl: string,
  applicationName: string,
  { cell }: Pick<Config, "cell">,
): Pool {
  const onError = () => undefined;
  return createGeneralPool({ databaseUrl, connectionsMax: CONNECTIONS_MAX, applicationName, cell, onError });
}

/**
 * Before a process starts its work. A database that does not answer yet, or has no cell yet, is no reason not to start:
 * each connection is checked again.
 * @throws UsageError when the database is another cell's
 */
export async function refuseOtherCells(databaseUrl: string, config: Config): Promise<void> {
  if (config.cell === null) return;
  const pool = createCommandPool(databaseUrl, "sealpost start", config);
  try {
    (await pool.connect()).release();
  } catch (error) {
    if (error instanceof OtherCellError && error.found !== null) throw explained(error);
  } finally {
    await pool.end();
  }
}

/** Runs the migrations, then stores the settings that SQL functions read. Returns the names of the files applied. */
export async function prepareDatabase(
  pool: Pool,
  databaseUrl: string,
  config: Config,
  log: (line: string) => void,
): Promise<readonly string[]> {
  try {
    const { applied } = await migrate({ databaseUrl, log, cell: config.cell, areas: config.areas });
    await writeSettings(pool, {
      analysisBytesMax: config.analysisBytesMax,
      unsafeAllowedTargets: config.unsafeAllowedTargets ?? [],
    });
    return applied;
  } catch (error) {
    if (error instanceof MigrationError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

/**
 * The key that encrypts stored secrets. No process could read the secrets of two keys, so a wrong one is refused before
 * it encrypts any.
 * @throws UsageError when the stored secrets were encrypted with another key
 */
export async function loadSecretsKey(pool: Pool, config: Config): Promise<Uint8Array> {
  const secretsKey = await secretsKeyOf(config);
  if (await opensSecrets(pool, secretsKey)) return secretsKey;
  throw new UsageError(
    "SECRETS_KEY is not the key that this database's secrets are encrypted with. Use the original key; " +
      "in development, with SECRETS_KEY unset, it is the file secrets-key in STATE_DIR.",
  );
}

/** @throws UsageError when there is no such account. Accounts are never removed, so checking first is enough. */
export async function requireAccount(pool: Pool, accountId: string): Promise<void> {
  if (!(await accountExists(pool, accountId))) throw unknownAccount(accountId);
}

export function unknownAccount(accountId: string | null): UsageError {
  return new UsageError(`There is no account ${accountId}; \`sealpost account list\` lists all accounts.`);
}

function explained(error: unknown): unknown {
  if (error instanceof OtherCellError) return new UsageError(error.message, { cause: error });
  const { code = "", syscall } = error as NodeJS.ErrnoException;
  if (NOT_MIGRATED.includes(code)) {
    return new UsageError("The database has no Sealpost tables yet: run `sealpost migrate` first.", {
      cause: error,
    });
  }
  // A host with several addresses fails with an AggregateError, whose message is empty.
  if (syscall !== undefined || error instanceof AggregateError) {
    return new Error(`Cannot reach the database that DATABASE_URL names (${code || "no answer"}).`, {
      cause: error,
    });
  }
  if (error instanceof pg.DatabaseError) {
    return new Error(`Database error: ${error.message}.`, { cause: error });
  }
  return error;
}
