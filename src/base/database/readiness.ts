import pg, { type Pool } from "pg";
import { PARTITIONED_TABLES } from "../model/installation.ts";
import type { SecretsKey } from "../model/secrets-key.ts";
import { isOpenedBy, SEALED, type Sealed, WRONG_SECRETS_KEY } from "./sealing.ts";
import { onConnection } from "./transaction.ts";

const FIND = `
select
  current_setting('transaction_read_only') = 'on' as is_read_only,
  array(
    select wanted from unnest($1::text[]) as wanted
    where not exists (select from sealpost.migrations where name = wanted)
    order by wanted
  ) as migrations,
  array(
    select name
    from unnest($2::text[]) as parent, generate_series(0, 1) as ahead,
      lateral (select parent || to_char((now() at time zone 'UTC')::date + ahead, '_YYYYMMDD')) as child (name)
    where to_regclass('sealpost.' || name) is null
    order by 1
  ) as partitions,
  ${SEALED} as sealed`;

const READ_ONLY =
  "The database can only be read: it is a standby, or was set read-only. DATABASE_URL has to lead to the primary.";

/** disk_full and io_error. On a full disk even a new connection may fail with the first. */
const CANNOT_WRITE = /^(?:53100|58030)$/;
/** The table is being written to by another process, or copied by a backup. */
const IS_LOCKED = "55P03";

// A new file that has to grow: a row in a page with room, or a little WAL, is written while nothing else is. Unlogged:
// of the WAL it takes the commit alone.
const PROBE = `
begin;
set local lock_timeout = 100;
truncate sealpost.write_probe;
insert into sealpost.write_probe select decode(repeat('00', 7000), 'hex') from generate_series(1, 32);
commit`;

// A commit that waits for its standby, or a disk, keeps the lock for as long, whoever has given up waiting for it.
const FIND_WRITER = `select extract(epoch from clock_timestamp() - xact_start)::float8 as seconds
from pg_locks join pg_stat_activity using (pid)
where relation = 'sealpost.write_probe'::regclass and mode = 'AccessExclusiveLock' and granted
  and database = (select oid from pg_database where datname = current_database())`;
const WRITER_SECONDS_MAX = 3;

/** A write that was begun before has not ended. */
class StuckWriteError extends Error {}

/**
 * Writes what only a database that takes writes can. False: another process is writing; it will know.
 * @throws what the database says, or the driver when it is away
 */
export async function probeWriting(pool: Pool): Promise<boolean> {
  try {
    await onConnection(pool, (client) => client.query(PROBE));
    return true;
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || error.code !== IS_LOCKED) throw error;
  }
  const [writer] = (await pool.query<{ seconds: number | null }>(FIND_WRITER)).rows;
  if (writer !== undefined && (writer.seconds ?? 0) > WRITER_SECONDS_MAX)
    throw new StuckWriteError(
      `The database accepts no writes: one has waited for over ${WRITER_SECONDS_MAX} s, ` +
        "for a synchronous standby or the disk.",
    );
  // A backup reads the table.
  return writer === undefined;
}

/** Why it takes no writes, if this error of it says so; null: it says something else. */
export function writeProblemOf(error: unknown): string | null {
  if (error instanceof StuckWriteError) return error.message;
  if (!(error instanceof pg.DatabaseError) || !CANNOT_WRITE.test(error.code ?? "")) return null;
  return `The database accepts no writes (${error.code}): check whether its disk is full.`;
}

/** No schema of this name, or no such table: nobody has ever migrated. */
const NEVER_MIGRATED = /^(?:3F000|42P01)$/;

/** What keeps a process from its work; `text` for people. */
export type ReadinessProblem = {
  readonly kind: "read_only" | "migration" | "partition" | "secrets_key";
  readonly text: string;
};

/**
 * What the database lacks for our work: writing, migrations that were not applied, partitions of today and tomorrow,
 * secrets that `secretsKey` opens. Empty: nothing.
 *
 * @param migrations the names of all files in sql/
 * @throws what the driver throws when the database is away
 */
export async function findReadinessProblems(
  pool: Pool,
  migrations: readonly string[],
  secretsKey: SecretsKey,
): Promise<readonly ReadinessProblem[]> {
  try {
    const { rows } = await pool.query<{
      is_read_only: boolean;
      migrations: string[];
      partitions: string[];
      sealed: Sealed | null;
    }>({ name: "find_readiness_problems", text: FIND, values: [migrations, PARTITIONED_TABLES] });
    const found = rows[0]!;
    const problems: ReadinessProblem[] = [];
    const add = (kind: ReadinessProblem["kind"], text: string) => void problems.push({ kind, text });
    if (found.is_read_only) add("read_only", READ_ONLY);
    for (const name of found.migrations)
      add("migration", `The migration ${name} is not applied: run migrate.`);
    for (const name of found.partitions) {
      add("partition", `The partition ${name} is missing: the dispatchers' leader makes it.`);
    }
    if (!isOpenedBy(found.sealed, secretsKey)) add("secrets_key", WRONG_SECRETS_KEY);
    return problems;
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || !NEVER_MIGRATED.test(error.code ?? "")) throw error;
    return [{ kind: "migration", text: "The database has no Sealpost tables yet: run migrate." }];
  }
}
