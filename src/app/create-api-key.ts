import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { digestApiKey, formatApiKey } from "../api/api-keys.ts";
import type { Config } from "../config/config.ts";
import type { KeyClass } from "../model/api-keys.ts";
import { findApiKey, insertApiKey } from "../store/api-keys.ts";
import { changeAudited } from "./command-line-changes.ts";
import { unknownAccount } from "./database.ts";

export type ApiKeyRequest = Omit<Parameters<typeof insertApiKey>[1], "digest" | "class">;

/** @throws UsageError for an unknown account. */
export async function createApiKey(
  database: Pool | ClientBase,
  config: Config,
  request: ApiKeyRequest,
): Promise<{ keyId: string; apiKey: string }> {
  const keyClass = keyClassOf(config);
  const apiKey = formatApiKey(config.apiKeyBrand, keyClass, randomBytes(32));
  const digest = digestApiKey(apiKey);
  const keyId = await insertApiKey(database, { ...request, class: keyClass, digest });
  if (keyId === null) throw unknownAccount(request.accountId);
  return { keyId, apiKey };
}

/** The same from the command line: the audit log tells of it. */
export async function issueApiKey(
  pool: Pool,
  config: Config,
  request: ApiKeyRequest,
): Promise<{ keyId: string; apiKey: string }> {
  const { accountId, userId = null, name, scopes } = request;
  const make = async (tx: ClientBase) => {
    const { keyId, apiKey } = await createApiKey(tx, config, request);
    const stored = await findApiKey(tx, digestApiKey(apiKey));
    return { keyId, apiKey, expires_at: stored?.expiresAt ?? null };
  };
  const { keyId, apiKey } = await changeAudited(pool, "api_keys.create", make, ({ keyId, expires_at }) => ({
    accountId,
    details: { key_id: keyId, name, scopes, user_id: userId, expires_at },
  }));
  return { keyId, apiKey };
}

/** A key made for development is unknown in production, and the other way round. */
export function keyClassOf({ environment }: Config): KeyClass {
  return environment === "production" ? "live" : "test";
}
