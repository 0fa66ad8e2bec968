import type { Pool } from "pg";
import type { Config } from "../config/config.ts";
import { MigrationError, migrate } from "../store/migrate.ts";
import { writeSettings } from "../store/publications.ts";
import { opensSecrets } from "../store/signing-secrets.ts";
import { UsageError } from "./usage-error.ts";

/** Migrates, then tells SQL what it must know of the configuration. Returns the files that were applied. */
export async function prepareDatabase(
  pool: Pool,
  databaseUrl: string,
  config: Config,
  log: (line: string) => void,
): Promise<readonly string[]> {
  try {
    const { applied } = await migrate({ databaseUrl, log });
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
 * Secrets that were sealed with two keys can never be read by one process.
 * @throws UsageError when this is not the key of those that there are
 */
export async function requireSecretsKey(pool: Pool, secretsKey: Uint8Array): Promise<void> {
  if (await opensSecrets(pool, secretsKey)) return;
  throw new UsageError(
    "SECRETS_KEY is not the key that this database's secrets were sealed with: give the one from before. " +
      "In development, where it is unset, it is the file secrets-key in STATE_DIR.",
  );
}

export function unknownAccount(accountId: string | null): string {
  return `There is no account ${accountId}; \`sealpost account list\` shows those there are.`;
}
