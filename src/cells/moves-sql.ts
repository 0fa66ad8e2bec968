import type { ClientBase, Pool } from "pg";
import type { MoveDirection, MoveStep } from "../base/model/installation.ts";
import type { FeedPosition } from "../feed/feed-sql.ts";

export type StoredMove = {
  /** The same in both databases. */
  readonly id: string;
  readonly direction: MoveDirection;
  readonly step: MoveStep;
  readonly otherCell: string | null;
  /** From identifyDatabase; null: it began when that was not kept. */
  readonly otherDatabase: string | null;
};

/** The last move of the account, out of this database or into it; null: it was never moved. */
export async function findMove(database: ClientBase | Pool, accountId: string): Promise<StoredMove | null> {
  const { rows } = await database.query<StoredMove>(
    `select id, direction, step, other_cell as "otherCell", other_database as "otherDatabase"
     from sealpost.moves where account_id = $1`,
    [accountId],
  );
  return rows[0] ?? null;
}

/** The same, held until this transaction ends: nobody else takes a step of it, or calls it off. */
export async function lockMove(tx: ClientBase, accountId: string): Promise<StoredMove | null> {
  await tx.query("select from sealpost.moves where account_id = $1 for update", [accountId]);
  return await findMove(tx, accountId);
}

/** Begins one, in place of one that is over. False: another is not over, or was begun by somebody else just now. */
export async function insertMove(
  database: ClientBase | Pool,
  accountId: string,
  { id, direction, otherCell, otherDatabase }: Omit<StoredMove, "step">,
): Promise<boolean> {
  const { rowCount } = await database.query(
    `insert into sealpost.moves (account_id, id, direction, other_cell, other_database) values ($1, $2, $3, $4, $5)
     on conflict (account_id) do update
     set id = excluded.id, direction = excluded.direction, other_cell = excluded.other_cell,
       other_database = excluded.other_database, step = 'begun', feed_ends_at = null, copied = '{}', begun_at = now(),
       ended_at = null
     where (moves.direction, moves.step) in (('out', 'deleted'), ('in', 'done'))`,
    [accountId, id, direction, otherCell, otherDatabase],
  );
  return rowCount === 1;
}

/** False: it is not at `from` any more. */
export async function advanceMove(
  database: ClientBase | Pool,
  accountId: string,
  id: string,
  from: MoveStep,
  to: MoveStep,
): Promise<boolean> {
  const { rowCount } = await database.query(
    `update sealpost.moves
     set step = $4, ended_at = case when $4 in ('done', 'deleting', 'deleted') then coalesce(ended_at, now()) end
     where account_id = $1 and id = $2 and step = $3`,
    [accountId, id, from, to],
  );
  return rowCount === 1;
}

/** Whether a move out of here goes on. Held for this transaction: it cannot be called off meanwhile. */
export async function holdMove(tx: ClientBase, accountId: string, id: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    `select from sealpost.moves
     where account_id = $1 and id = $2 and direction = 'out' and step in ('begun', 'still') for share`,
    [accountId, id],
  );
  return rowCount === 1;
}

/** Forgets a move that was called off; whoever calls holds it, or nothing else touches it any more. */
export async function deleteMove(database: ClientBase | Pool, accountId: string, id: string): Promise<void> {
  await database.query("delete from sealpost.moves where account_id = $1 and id = $2", [accountId, id]);
}

/** Refuses publishing and writes from the commit on, and says where to go; null: takes them again. */
export async function setMovedTo(
  database: ClientBase | Pool,
  accountId: string,
  cell: string | null,
): Promise<void> {
  await database.query("update sealpost.accounts set moved_to = $2 where id = $1", [accountId, cell]);
}

/** It takes publishing and writes from the commit on, and knows which cells may still have something of it. */
export async function arrive(tx: ClientBase, accountId: string, cameFrom: readonly string[]): Promise<void> {
  await tx.query("update sealpost.accounts set moved_to = null, came_from = $2 where id = $1", [
    accountId,
    cameFrom,
  ]);
}

/** Where the account is; null: here. Held for the transaction, if it is in one: it cannot be closed meanwhile. */
export async function findMovedTo(database: ClientBase | Pool, accountId: string): Promise<string | null> {
  const { rows } = await database.query<{ moved_to: string | null }>(
    "select moved_to from sealpost.accounts where id = $1 for share",
    [accountId],
  );
  return rows[0]?.moved_to ?? null;
}

/** Which database of which cluster this is: no two have the same, whatever they are called. */
export async function identifyDatabase(pool: Pool): Promise<string> {
  const { rows } = await pool.query<{ identity: string }>(
    `select (select system_identifier from pg_control_system()) || '/' || oid as identity
     from pg_database where datname = current_database()`,
  );
  return rows[0]!.identity;
}

/** What two databases are compared by before an account goes from one to the other. */
export type CellFacts = {
  /** From identifyDatabase: copies have the same. */
  readonly identity: string;
  readonly isStandby: boolean;
  /** The migrations that it has, with their digests. */
  readonly migrations: readonly string[];
  /** Null: it was given none. */
  readonly cell: string | null;
};

/** Null: the database has none of our tables. */
export async function readCellFacts(pool: Pool): Promise<CellFacts | null> {
  const { rows: found } = await pool.query<{ is_ours: boolean }>(
    "select to_regclass('sealpost.settings') is not null as is_ours",
  );
  if (!found[0]!.is_ours) return null;
  const { rows } = await pool.query<Omit<CellFacts, "identity">>(
    `select pg_is_in_recovery() as "isStandby",
       array(select name || ' ' || digest from sealpost.migrations order by name) as migrations,
       (select to_jsonb(s) ->> 'cell' from sealpost.settings as s) as cell`,
  );
  return { ...rows[0]!, identity: await identifyDatabase(pool) };
}

/** Revokes in the other database, too, what was revoked in this one. */
export async function copyRevocations(from: Pool, to: Pool, accountId: string): Promise<void> {
  // As PostgreSQL writes times.
  const { rows } = await from.query<{ id: string; at: string }>(
    "select id, revoked_at::text as at from sealpost.api_keys where account_id = $1 and revoked_at is not null",
    [accountId],
  );
  if (rows.length === 0) return;
  await to.query(
    `update sealpost.api_keys as k set revoked_at = r.at
     from unnest($2::uuid[], $3::timestamptz[]) as r (id, at)
     where k.account_id = $1 and k.id = r.id and k.revoked_at is null`,
    [accountId, rows.map(({ id }) => id), rows.map(({ at }) => at)],
  );
}

/**
 * Before its users go: a key that acted for one would act for the account from then on. They expire, as what is revoked
 * here is revoked in the other cell when the move's command is run again.
 */
export async function endUsersKeys(pool: Pool, accountId: string): Promise<void> {
  await pool.query(
    `update sealpost.api_keys set expires_at = now()
     where account_id = $1 and user_id is not null and (expires_at is null or expires_at > now())`,
    [accountId],
  );
}

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

/** Puts back what is parked, but for what was erased since, and lets replays and mails go on. */
export async function unparkAll(tx: ClientBase, accountId: string): Promise<void> {
  const erased = `
    delete from sealpost.parked_deliveries as p using sealpost.analyses as a join sealpost.erasures using (account_id)
    where a.account_id = $1 and id = analysis_id and digest = '' and p.delivery_id = a.delivery_id`;
  await tx.query(erased, [accountId]);
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
