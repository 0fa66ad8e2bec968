import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { accountExists, type CreatedAccount, createAccount } from "../accounts/accounts-sql.ts";
import { findApiKey, insertApiKey } from "../accounts/api-keys-sql.ts";
import type { Config } from "../base/config/config.ts";
import { type AuditEntry, writeAuditEntry } from "../base/database/audit-log.ts";
import { inTransaction } from "../base/database/transaction.ts";
import type { KeyClass } from "../base/model/api-keys.ts";
import { ACCOUNT_CREATED, COMMAND_LINE } from "../base/model/audit.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { findMovedTo } from "../cells/moves-sql.ts";
import { digestSecret, formatApiKey } from "../http/api-keys.ts";
import { unknownAccount } from "./database.ts";
import { UsageError } from "./output.ts";

/** What a change came to, and what the audit log tells of it. */
type Changed<T> = Pick<AuditEntry, "accountId" | "details"> & { readonly done: T };

/** A change from the command line, and its row in the audit log: both happen or neither. */
export async function changeAudited<T>(
  pool: Pool,
  operationKey: string,
  change: (tx: ClientBase) => Promise<Changed<T>>,
): Promise<T> {
  return await inTransaction(pool, async (tx) => {
    const { done, accountId, details } = await change(tx);
    // After the change, which is rolled back then: the account cannot be closed between the two.
    if (accountId !== null && operationKey !== REVOKING) {
      const cell = await findMovedTo(tx, accountId);
      if (cell !== null)
        throw new UsageError(`Account ${accountId} has moved to the cell "${cell}": change it there.`);
      if (!(await accountExists(tx, accountId))) throw unknownAccount(accountId);
    }
    await writeAuditEntry(tx, { accountId, details, operationKey, actor: COMMAND_LINE, requestId: null });
    return done;
  });
}

/** A key that has leaked is revoked in both cells. */
const REVOKING = "api_keys.revoke";

/** Makes an account with its first signing secret. `name`: 1 to 200 characters, for people. */
export async function openAccount(pool: Pool, name: string, secretsKey: SecretsKey): Promise<CreatedAccount> {
  return await changeAudited(pool, ACCOUNT_CREATED, async (tx) => {
    const done = await createAccount(tx, name, secretsKey);
    return { done, accountId: done.accountId, details: { name } };
  });
}

export type ApiKeyRequest = Omit<Parameters<typeof insertApiKey>[1], "digest" | "class">;

/** @throws UsageError for an unknown account. */
export async function createApiKey(database: Pool | ClientBase, config: Config, request: ApiKeyRequest) {
  const keyClass = keyClassOf(config);
  const apiKey = formatApiKey(config.apiKeyBrand[0]!, keyClass, randomBytes(32));
  const digest = digestSecret(apiKey);
  const key = await insertApiKey(database, { ...request, class: keyClass, digest });
  if (key === null) throw unknownAccount(request.accountId);
  return { keyId: key.id, apiKey };
}

/** The same from the command line: the audit log tells of it. */
export async function issueApiKey(pool: Pool, config: Config, request: ApiKeyRequest) {
  return await changeAudited(pool, "api_keys.create", async (tx) => {
    const done = await createApiKey(tx, config, request);
    const { expiresAt: expires_at = null } = (await findApiKey(tx, digestSecret(done.apiKey))) ?? {};
    const { accountId, userId = null, name, scopes } = request;
    return { done, accountId, details: { key_id: done.keyId, name, scopes, user_id: userId, expires_at } };
  });
}

/** A key made for development is unknown in production, and the other way round. */
export function keyClassOf({ environment }: Config): KeyClass {
  return environment === "production" ? "live" : "test";
}
