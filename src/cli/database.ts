import pg, { type Pool } from "pg";
import type { Config } from "../config/config.ts";
import { readConfig } from "../config/read-config.ts";
import { accountExists } from "../store/accounts.ts";
import { createGeneralPool } from "../store/pools.ts";
import { opensSecrets } from "../store/signing-secrets.ts";
import { Mistake } from "./mistake.ts";
import { databaseUrlOf } from "./state-folder.ts";
import type { Surroundings } from "./surroundings.ts";

/** No schema of this name, or no such table: nobody has migrated. */
const notMigratedStates = ["3F000", "42P01"];

/** Runs `work` with the database that the environment names, and closes the connections after it. */
export async function withDatabase<T>(
  { env }: Pick<Surroundings, "env">,
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

/** @throws Mistake when there is no such account. Accounts are never removed, so asking first is enough. */
export async function requireAccount(pool: Pool, accountId: string): Promise<void> {
  if (!(await accountExists(pool, accountId))) throw new Mistake(unknownAccount(accountId));
}

/**
 * Secrets that were sealed with two keys can never be read by one process.
 * @throws Mistake when this is not the key of those that there are
 */
export async function requireSecretsKey(pool: Pool, secretsKey: Uint8Array): Promise<void> {
  if (await opensSecrets(pool, secretsKey)) return;
  throw new Mistake(
    "SECRETS_KEY is not the key that this database's secrets were sealed with: give the one from before. " +
      "In development, where it is unset, it is the file secrets-key in STATE_DIR.",
  );
}

export function unknownAccount(accountId: string | null): string {
  return `There is no account ${accountId}; \`sealpost account list\` shows those there are.`;
}

function explained(error: unknown): unknown {
  const { code = "", syscall } = error as NodeJS.ErrnoException;
  if (notMigratedStates.includes(code)) {
    return new Mistake("The database holds no tables of Sealpost yet: run `sealpost migrate` first.", {
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
