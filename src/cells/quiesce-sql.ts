import type { ClientBase, Pool } from "pg";
import type { FeedPosition } from "../feed/feed-sql.ts";

/** A transaction that may not know yet that the account is closed. */
type OlderTransaction = {
  /** As pg_locks names it. */
  readonly name: string;
  readonly pid: number;
  readonly role: string;
  readonly application: string;
};

/**
 * Transactions that may have read the account, or may still read it, as it was before it was closed: those that have
 * touched a table of ours, and those with a snapshot that is as old. Asked after the closing has committed, so that
 * whatever begins later knows of it. Autovacuum has no role; `backend_type` would tell, but of other roles' sessions
 * only to those with pg_read_all_stats. The id is read in a transaction of its own: a snapshot without it is older.
 *
 * Losing option: a lock of the account's row in every publication. It writes to that row, and publishers of one account
 * would queue for its page.
 */
export async function findOlderTransactions(pool: Pool): Promise<readonly OlderTransaction[]> {
  const xid = await readNextTransactionId(pool);
  const { rows } = await pool.query<OlderTransaction>(
    `select l.virtualtransaction as name, a.pid, a.usename as role, a.application_name as application
     from pg_locks as l join pg_stat_activity as a using (pid)
     where l.locktype = 'virtualxid' and l.granted and l.mode = 'ExclusiveLock'
       and a.datname = current_database() and a.pid <> pg_backend_pid()
       and a.usesysid is not null
       and (age(a.backend_xmin) >= age($1::xid) or exists (
         select from pg_locks as r join pg_class as c on c.oid = r.relation
         where r.pid = l.pid and r.locktype = 'relation' and c.relnamespace = 'sealpost'::regnamespace
           and r.database = (select oid from pg_database where datname = current_database())))`,
    [xid],
  );
  return rows;
}

/** Those of them that are still open. */
export async function findStillOpen(
  pool: Pool,
  older: readonly OlderTransaction[],
): Promise<readonly OlderTransaction[]> {
  const { rows } = await pool.query<{ name: string }>(
    `select distinct virtualtransaction as name from pg_locks
     where locktype = 'virtualxid' and virtualtransaction = any ($1)`,
    [older.map(({ name }) => name)],
  );
  return older.filter(({ name }) => rows.some((row) => row.name === name));
}

/**
 * Prepared transactions that older ones may have become, by their global ids. Asked when the older ones have ended; a
 * prepared one has another name, and no process.
 *
 * @param xid of a transaction that began after those had ended
 */
export async function findPrepared(pool: Pool, xid: string): Promise<readonly string[]> {
  const { rows } = await pool.query<{ gid: string }>(
    `select gid from pg_prepared_xacts
     where database = current_database() and age(transaction) >= age($1::xid)`,
    [xid],
  );
  return rows.map(({ gid }) => gid);
}

/** Every transaction that has an id already has a smaller one. */
export async function readNextTransactionId(pool: Pool): Promise<string> {
  const { rows } = await pool.query<{ xid: string }>("select pg_current_xact_id()::xid::text as xid");
  return rows[0]!.xid;
}

type Parked = {
  /** Left: somebody has them, or there are more than one step takes. */
  readonly rest: number;
  /** Of those, the ones whose dispatcher has died. */
  readonly cutIds: readonly string[];
};

/** Takes what is open of the account out of everybody's reach, at most `rowsMax`. */
export async function parkDeliveries(tx: ClientBase, accountId: string, rowsMax: number): Promise<Parked> {
  const text = `select rest, cut as "cutIds" from sealpost.park_deliveries($1, $2)`;
  const { rows } = await tx.query<Parked>(text, [accountId, rowsMax]);
  return rows[0]!;
}

/** Puts back what is parked, and lets replays and mails go on. */
export async function unparkAll(tx: ClientBase, accountId: string): Promise<void> {
  await tx.query("select sealpost.unpark_deliveries($1)", [accountId]);
  await tx.query("update sealpost.replays set count_at = now() where account_id = $1", [accountId]);
  await tx.query(
    `update sealpost.notice_mails set due_at = now()
     where account_id = $1 and status = 'waiting' and due_at = 'infinity'`,
    [accountId],
  );
}

/**
 * Stops what else goes on for the account by itself: replays are not counted, and mails are not sent. Returns whether
 * calls and mails that were under way go on.
 */
export async function stopBackgroundWork(tx: ClientBase, accountId: string): Promise<boolean> {
  await tx.query(
    "update sealpost.replays set count_at = null where account_id = $1 and count_at is not null",
    [accountId],
  );
  await tx.query(
    `update sealpost.notice_mails set due_at = 'infinity'
     where account_id = $1 and status = 'waiting' and due_at < 'infinity'`,
    [accountId],
  );
  // By itself: it sees what the updates have waited for.
  const { rows } = await tx.query<{ goes_on: boolean }>(
    `select exists (select from sealpost.notice_mails where account_id = $1 and status = 'sending')
       or exists (
         select from sealpost.idempotency_keys
         where account_id = $1 and status is null and claim_until > now()) as goes_on`,
    [accountId],
  );
  return rows[0]!.goes_on;
}

/**
 * How far the feed is: it held everything that had committed by `caughtUpAtMs`, by the database's clock (`nowMs`), both
 * in ms since the epoch. `position` is the newest that was given to anybody: no cursor is beyond it.
 */
export async function readFeedReach(pool: Pool) {
  const { rows } = await pool.query<{ caughtUpAtMs: number; nowMs: number; position: FeedPosition }>(
    `select (extract(epoch from caught_up_at) * 1000)::float8 as "caughtUpAtMs",
       (extract(epoch from clock_timestamp()) * 1000)::float8 as "nowMs", position::float8 as position
     from sealpost.feed_steps order by step desc limit 1`,
  );
  return rows[0]!;
}

/** Nothing of the account changes any more, and its feed ends here: cursors go no further. */
export async function markStill(pool: Pool, accountId: string, moveId: string): Promise<void> {
  await pool.query(
    `update sealpost.moves
     set step = 'still', feed_ends_at = (select position from sealpost.feed_steps order by step desc limit 1)
     where account_id = $1 and id = $2 and step = 'begun'`,
    [accountId, moveId],
  );
}

/** Lets the sequencing go on beyond a position, so that what is published from now on is behind it. */
export async function advanceFeedPosition(pool: Pool, position: FeedPosition): Promise<void> {
  for (;;) {
    const { rows } = await pool.query<{ position: string }>(
      `with last as (
         select * from sealpost.feed_steps order by step desc limit 1
       ), made as (
         insert into sealpost.feed_steps (step, holder, lease_until, position, serial, gaps, caught_up_at)
         select step + 1, holder, lease_until, $1, serial, gaps, caught_up_at from last where position < $1
         on conflict (step) do nothing
         returning position
       )
       select position from last union all select position from made order by position desc limit 1`,
      [position],
    );
    if (Number(rows[0]!.position) >= position) return;
  }
}
