import type { ClientBase, Pool } from "pg";
import type { Actor } from "../model/audit.ts";
import { notErased } from "./account-rows.ts";
import { inTransaction } from "./transaction.ts";

export type AuditEntry = {
  /** Null: it concerns none, such as a staff key. */
  readonly accountId: string | null;
  readonly actor: Actor;
  /** Null: the command line. */
  readonly requestId: string | null;
  /** The operation's key; changes that no operation makes have names of the same form. */
  readonly operationKey: string;
  /** What it was about, never a secret. */
  readonly details: Readonly<Record<string, unknown>>;
};

/** A row with its entries in indexes, besides its details. */
export const AUDIT_ROW_BYTES = 512;

/** In the transaction of what it tells of. Returns when that is, by the database's clock. */
export async function writeAuditEntry(client: ClientBase | Pool, entry: AuditEntry): Promise<Date> {
  const { actor } = entry;
  const { rows } = await client.query<{ at: Date }>({
    name: "write_audit_entry",
    text: `insert into sealpost.audit_log
             (account_id, actor, key_id, actor_name, request_id, operation_key, details, session_id, viewer)
           values ($1, $2, $3, (select name from sealpost.api_keys where id = $3), $4, $5, $6, $7, $8)
           returning clock_timestamp() as at`,
    values: [
      entry.accountId,
      actor.kind,
      actor.keyId,
      entry.requestId,
      entry.operationKey,
      JSON.stringify(entry.details),
      actor.session?.id ?? null,
      actor.session?.viewer ?? null,
    ],
  });
  return rows[0]!.at;
}

/**
 * The same, where nothing else in a transaction looks whether the account is erased. An erasure that begins behind the
 * look waits for the transaction, and finds the row. Null: the account is erased, and has no row.
 */
export async function writeEntryUnlessErased(pool: Pool, entry: AuditEntry): Promise<Date | null> {
  return await inTransaction(pool, async (tx) => {
    const { rowCount } = await tx.query(`select where ${notErased("$1")}`, [entry.accountId]);
    return rowCount === 0 ? null : await writeAuditEntry(tx, entry);
  });
}
