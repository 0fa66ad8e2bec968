import { randomBytes } from "node:crypto";
import type { Pool } from "pg";
import { digestApiKey, formatApiKey } from "../api/api-keys.ts";
import type { Config } from "../config/config.ts";
import type { KeyClass } from "../model/api-keys.ts";
import { insertApiKey } from "../store/api-keys.ts";
import { unknownAccount } from "./database.ts";

/** @throws UsageError for an unknown account. */
export async function createApiKey(
  pool: Pool,
  config: Config,
  request: Omit<Parameters<typeof insertApiKey>[1], "digest" | "class">,
): Promise<{ keyId: string; apiKey: string }> {
  const keyClass = keyClassOf(config);
  const apiKey = formatApiKey(config.apiKeyBrand, keyClass, randomBytes(32));
  const keyId = await insertApiKey(pool, { ...request, class: keyClass, digest: digestApiKey(apiKey) });
  if (keyId === null) throw unknownAccount(request.accountId);
  return { keyId, apiKey };
}

/** A key made for development is unknown in production, and the other way round. */
export function keyClassOf({ environment }: Config): KeyClass {
  return environment === "production" ? "live" : "test";
}
