import pg, { type ClientBase } from "pg";

/** Tables without columns or rows, made to be locked. */
export type LockTable = "migration_lock" | "quarantine_lock";

const LOCK_NOT_AVAILABLE = "55P03";

/**
 * True when this session now holds the lock, until its transaction or the session ends. Of a table, because any role
 * that connects could hold an advisory one against us. The transaction that this leaves open reads and writes nothing:
 * neither vacuum nor `create index concurrently` waits for it.
 */
export async function tryToLockTable(client: ClientBase, table: LockTable): Promise<boolean> {
  try {
    await client.query(`
      begin isolation level read committed;
      select set_config(name, '0', true) from pg_settings
      where name in ('idle_in_transaction_session_timeout', 'transaction_timeout');
      lock table sealpost.${table} in share update exclusive mode nowait`);
    return true;
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || error.code !== LOCK_NOT_AVAILABLE) throw error;
    await client.query("rollback");
    return false;
  }
}

/** Whoever holds it, in words. */
export async function describeLockHolder(client: ClientBase, table: LockTable): Promise<string> {
  const { rows } = await client.query<{ holder: string }>(
    `select format('pid %s on the server, role %s, application "%s"', pid, usename, application_name) as holder
     from pg_locks join pg_stat_activity using (pid)
     where relation = $1::regclass and database = (select oid from pg_database where datname = current_database())
       and mode <> 'AccessShareLock' and granted
     limit 1`,
    [`sealpost.${table}`],
  );
  return rows[0]?.holder ?? "a process that has just ended";
}
