import type { ClientBase, Pool } from "pg";
import { isDatabaseAway } from "./availability.ts";

/** How far the primary had come at a moment: whatever had been committed by then stands before it. */
export type Position = {
  readonly lsn: string;
  /** Of its history: what was promoted has another one, where the same place stands for something else. */
  readonly timeline: number;
  /** Of its cluster, and all copies of it. */
  readonly systemIdentifier: string;
  /** Its oid, which copies share: another of the same cluster may be another installation's. */
  readonly database: string;
};

/**
 * What is flushed, not what is written: no commit is acknowledged before it is flushed, and no standby gets what is
 * not. Where `synchronous_commit` is off, a commit may be up to 0.6 s behind it.
 */
const POSITION = `
select lsn::text, ('x' || left(pg_walfile_name(lsn), 8))::bit(32)::integer as timeline,
  (select system_identifier::text from pg_control_system()) as "systemIdentifier",
  (select oid::text from pg_database where datname = current_database()) as database
from pg_current_wal_flush_lsn() as lsn`;

/** @throws what PostgreSQL says when the server is no primary */
export async function readPosition(primary: Pool): Promise<Position> {
  const { rows } = await primary.query<Position>({ name: "wal_position", text: POSITION });
  return rows[0]!;
}

/** Whether a server can be read from in place of the primary: `refused` is another one, or one that was promoted. */
export type Standing = "reached" | "behind" | "refused";

/**
 * The timeline of the WAL that it receives is for roles with pg_read_all_stats; other roles see that of what it has
 * written down last, which may lag some minutes behind after a failover.
 */
const STANDING = `
select
  pg_is_in_recovery()
    and (select system_identifier::text from pg_control_system()) = $1
    and (select oid::text from pg_database where datname = current_database()) = $4
    and coalesce(
      (select received_tli from pg_stat_get_wal_receiver()),
      (select min_recovery_end_timeline from pg_control_recovery())
    ) = $2 as is_ours,
  coalesce(pg_last_wal_replay_lsn() >= $3::pg_lsn, false) as has_reached`;

/** Asks the server itself, on the connection that is to be read from: its name may lead to another one next time. */
export async function readStanding(
  client: ClientBase,
  { systemIdentifier, timeline, lsn, database }: Position,
): Promise<Standing> {
  const { rows } = await client.query<{ is_ours: boolean | null; has_reached: boolean }>({
    name: "standing",
    text: STANDING,
    values: [systemIdentifier, timeline, lsn, database],
  });
  const { is_ours, has_reached } = rows[0]!;
  if (is_ours !== true) return "refused";
  return has_reached ? "reached" : "behind";
}

/** A standby that ends what reads rows that it is about to remove (40001), or what takes too long (57014), is well. */
export function isCancelledByStandby(error: unknown): boolean {
  const { code = "" } = error as NodeJS.ErrnoException;
  return isDatabaseAway(error) && /^(?:40|57014)/.test(code);
}
