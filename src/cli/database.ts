import pg, { type Pool } from "pg";
import { unknownAccount } from "../app/prepare-database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { databaseUrlOf } from "../app/state-folder.ts";
import { UsageError } from "../app/usage-error.ts";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { accountExists } from "../store/accounts.ts";
import { createGeneralPool } from "../store/pools.ts";

/** No schema of this name, or no such table: nobody has migrated. */
const notMigratedStates = ["3F000", "42P01"];

/** Runs `work` with the database that the environment names, and closes the connections after it. */
export async function withDatabase<T>(
  { env }: Pick<ProcessContext, "env">,
  work: (pool: Pool, config: Config) => Promise<T>,
): Promise<T> {
  const config = readConfig(env);
  const pool = createGeneralPool({
    databaseUrl: await databaseUrlOf(config),
    connectionsMax: 2,
    applicationName: "sealpost command line",
    // What breaks while a command runs also fails its query.
    onError: () => undefined,
  });
  try {
    return await work(pool, config);
  } catch (error) {
    throw explained(error);
  } finally {
    await pool.end();
  }
}

/** @throws UsageError when there is no such account. Accounts are never removed, so asking first is enough. */
export async function requireAccount(pool: Pool, accountId: string): Promise<void> {
  if (!(await accountExists(pool, accountId))) throw new UsageError(unknownAccount(accountId));
}

function explained(error: unknown): unknown {
  const { code = "", syscall } = error as NodeJS.ErrnoException;
  if (notMigratedStates.includes(code)) {
    return new UsageError("The database holds no tables of Sealpost yet: run `sealpost migrate` first.", {
      cause: error,
    });
  }
  // A host with several addresses fails with an AggregateError, whose message is empty.
  if (syscall !== undefined || error instanceof AggregateError) {
    return new Error(`The database that DATABASE_URL names cannot be reached (${code || "no answer"}).`, {
      cause: error,
    });
  }
  if (error instanceof pg.DatabaseError) {
    return new Error(`The database says: ${error.message}.`, { cause: error });
  }
  return error;
}
