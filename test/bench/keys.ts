import { createApiKey } from "../../src/app/create-api-key.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { scopes } from "../../src/base/model/api-keys.ts";
import type { BenchDatabase } from "./database.ts";

/** A key of all scopes for each account. */
export async function createKeys(
  { pool }: BenchDatabase,
  accountIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const keys = accountIds.map(async (accountId) => {
    const asked = { accountId, name: null, scopes, expiresInSeconds: null };
    return [accountId, (await createApiKey(pool, readConfig({}), asked)).apiKey] as const;
  });
  return new Map(await Promise.all(keys));
}
