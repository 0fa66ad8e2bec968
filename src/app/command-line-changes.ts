import type { ClientBase, Pool } from "pg";
import { ACCOUNT_CREATED, COMMAND_LINE } from "../model/audit.ts";
import { type CreatedAccount, createAccount } from "../store/accounts.ts";
import { type AuditEntry, writeAuditEntry } from "../store/audit-log.ts";
import { findMovedTo } from "../store/moves.ts";
import { inTransaction } from "../store/transaction.ts";
import { UsageError } from "./usage-error.ts";

/** A change from the command line, and its row in the audit log: both happen or neither. */
export async function changeAudited<T>(
  pool: Pool,
  operationKey: string,
  change: (tx: ClientBase) => Promise<T>,
  told: (done: T) => Pick<AuditEntry, "accountId" | "details">,
): Promise<T> {
  return await inTransaction(pool, async (tx) => {
    const done = await change(tx);
    const { accountId, details } = told(done);
    if (accountId !== null && operationKey !== REVOKING) await refuseMoved(tx, accountId);
    await writeAuditEntry(tx, { accountId, details, operationKey, actor: COMMAND_LINE, requestId: null });
    return done;
  });
}

/** A key that has leaked is revoked in both cells. */
const REVOKING = "api_keys.revoke";

/** After the change, which is rolled back then: the account cannot be closed between the two. */
async function refuseMoved(tx: ClientBase, accountId: string): Promise<void> {
  const cell = await findMovedTo(tx, accountId);
  if (cell === null) return;
  throw new UsageError(`Account ${accountId} has moved to the cell "${cell}": change it there.`);
}

/** Makes an account with its first signing secret. `name`: 1 to 200 characters, for people. */
export async function openAccount(pool: Pool, name: string, secretsKey: Uint8Array): Promise<CreatedAccount> {
  const create = (tx: ClientBase) => createAccount(tx, name, secretsKey);
  return await changeAudited(pool, ACCOUNT_CREATED, create, ({ accountId }) => ({
    accountId,
    details: { name },
  }));
}
