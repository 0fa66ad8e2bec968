import { setTimeout as delay } from "node:timers/promises";
import pg, { type ClientBase, type Pool } from "pg";
import { abortableDelay } from "../model/backoff.ts";
import type { LogServer, StandbyFault } from "../model/installation.ts";
import { OtherCellError } from "./cells.ts";
import { coalesceByTurn } from "./coalesce.ts";
import { isDatabaseAway } from "./transaction.ts";

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
select case
    when (pg_is_in_recovery()
      and (select system_identifier::text from pg_control_system()) = $1
      and (select oid::text from pg_database where datname = current_database()) = $4
      and coalesce(
        (select received_tli from pg_stat_get_wal_receiver()),
        (select min_recovery_end_timeline from pg_control_recovery())
      ) = $2) is not true then 'refused'
    when pg_last_wal_replay_lsn() >= $3::pg_lsn then 'reached'
    else 'behind'
  end as standing`;

/** Asks the server itself, on the connection that is to be read from: its name may lead to another one next time. */
export async function readStanding(
  client: ClientBase,
  { systemIdentifier, timeline, lsn, database }: Position,
): Promise<Standing> {
  const { rows } = await client.query<{ standing: Standing }>({
    name: "standing",
    text: STANDING,
    values: [systemIdentifier, timeline, lsn, database],
  });
  return rows[0]!.standing;
}

/** A standby that ends what reads rows that it is about to remove (40001), or what takes too long (57014), is well. */
function isCancelledByStandby(error: unknown): boolean {
  const { code = "" } = error as NodeJS.ErrnoException;
  return isDatabaseAway(error) && /^(?:40|57014)/.test(code);
}

/** Reads what may be read from a standby, where there is one; `read` is done again on the primary when that fails. */
export type ReadLog = <T>(read: (database: Pool | ClientBase) => Promise<T>) => Promise<T>;

/** For an installation without a standby. */
export function readingFrom(pool: Pool): ReadLog {
  return (read) => read(pool);
}

/** So long a standby may take to come as far as the primary was: with STANDBY_TIMEOUTS less than a second together. */
const CATCH_UP_MS = 150;
const CATCH_UP_FIRST_MS = 1;
/** How often a standby that has failed is tried. No request waits for that. */
const TRY_AGAIN_MS = 500;

export type LogReaderOptions = {
  /** For pages of the log, on the primary. */
  readonly primary: Pool;
  /** Tells how far the primary is. */
  readonly position: Pool;
  /** From createStandbyPool. Null: there is none. */
  readonly standby: Pool | null;
  readonly onRead: (server: LogServer) => void;
  readonly onFault: (fault: StandbyFault, error: unknown) => void;
  /** The standby is read from, from now on or no longer. */
  readonly onChange: (isUsed: boolean, fault: StandbyFault | null, error: unknown) => void;
};

/**
 * Reads from a standby that has replayed all that was committed when the reader asked, or else from the primary. So
 * nobody misses what they have just written, whichever process wrote it, or the pipeline in SQL; docs/design.md tells
 * which ways of knowing that lost.
 *
 * A standby that fails is set aside at once, and tried again beside the requests until it serves.
 */
export function createLogReader(options: LogReaderOptions) {
  const { primary, standby, onRead, onFault, onChange } = options;
  const readPrimary = coalesceByTurn(() => readPosition(options.position));
  const stopping = new AbortController();
  /** Null: it was not tried yet. */
  let isUsed: boolean | null = null;

  function setAside(fault: StandbyFault, error: unknown): void {
    onFault(fault, error);
    if (fault === "cancelled" || isUsed === false) return;
    onChange(false, fault, error);
    if (isUsed) trying = tryUntilUsed(TRY_AGAIN_MS);
    isUsed = false;
  }

  async function tryUntilUsed(afterMs: number): Promise<void> {
    await abortableDelay(afterMs, stopping.signal);
    while (!stopping.signal.aborted) {
      if ((await onStandby(async () => true)) !== null) {
        isUsed = true;
        return onChange(true, null, null);
      }
      await abortableDelay(TRY_AGAIN_MS, stopping.signal);
    }
  }

  /** Null: it has to be read from the primary. */
  async function onStandby<T>(read: (client: ClientBase) => Promise<T>): Promise<{ value: T } | null> {
    if (standby === null) return null;
    // Null when the primary does not answer, or is none: whoever reads is told by the primary itself.
    const position = await readPrimary("").catch(() => null);
    if (position === null) return null;
    const client = await standby.connect().catch((error: unknown) => {
      setAside(error instanceof OtherCellError ? "refused" : "away", error);
      return null;
    });
    if (client === null) return null;
    let isBroken = false;
    try {
      const standing = await untilReached(client, position.answer);
      if (standing === "reached") return { value: await read(client) };
      isBroken = standing === "refused";
      setAside(standing, null);
    } catch (error) {
      isBroken = !(error instanceof pg.DatabaseError);
      setAside(isCancelledByStandby(error) ? "cancelled" : "away", error);
    } finally {
      client.release(isBroken);
    }
    return null;
  }

  let trying = standby === null ? Promise.resolve() : tryUntilUsed(0);
  return {
    read: (async (read) => {
      const found = isUsed ? await onStandby(read) : null;
      const value = found === null ? await read(primary) : found.value;
      onRead(found === null ? "primary" : "standby");
      return value;
    }) satisfies ReadLog,
    stop: async () => {
      stopping.abort();
      await trying;
    },
  };
}

async function untilReached(client: ClientBase, position: Position): Promise<Standing> {
  const sinceMs = performance.now();
  for (let waitMs = CATCH_UP_FIRST_MS; ; waitMs *= 2) {
    const standing = await readStanding(client, position);
    if (standing !== "behind" || performance.now() - sinceMs + waitMs > CATCH_UP_MS) return standing;
    await delay(waitMs);
  }
}
