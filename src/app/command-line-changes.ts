import type { ClientBase, Pool } from "pg";
import { ACCOUNT_CREATED, COMMAND_LINE } from "../model/audit.ts";
import { type CreatedAccount, createAccount } from "../store/accounts.ts";
import { type AuditEntry, writeAuditEntry } from "../store/audit-log.ts";
import { inTransaction } from "../store/transaction.ts";

/** A change from the command line, and its row in the audit log: both happen or neither. */
export async function changeAudited<T>(
  pool: Pool,
  operationKey: string,
  change: (tx: ClientBase) => Promise<T>,
  told: (done: T) => Pick<AuditEntry, "accountId" | "details">,
): Promise<T> {
  return await inTransaction(pool, async (tx) => {
    const done = await change(tx);
    await writeAuditEntry(tx, { ...told(done), operationKey, actor: COMMAND_LINE, requestId: null });
    return done;
  });
}

/** Makes an account with its first signing secret. `name`: 1 to 200 characters, for people. */
export async function openAccount(pool: Pool, name: string, secretsKey: Uint8Array): Promise<CreatedAccount> {
  const create = (tx: ClientBase) => createAccount(tx, name, secretsKey);
  return await changeAudited(pool, ACCOUNT_CREATED, create, ({ accountId }) => ({
    accountId,
    details: { name },
  }));
}
