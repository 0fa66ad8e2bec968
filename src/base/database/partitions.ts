import type { ClientBase, Pool, QueryConfig, QueryResult, QueryResultRow } from "pg";
import pg from "pg";
import { BoundedCache } from "../model/caches.ts";
import { PARTITIONED_TABLES } from "../model/installation.ts";
import { DAY_MS } from "../model/time.ts";
import { ANSWER_MARGIN_MS } from "./timed-client.ts";
import { inTransaction, UNPRUNED } from "./transaction.ts";

/** Later days have names of another length; no id of ours is of one. */
const LAST_DAY = Math.floor(Date.UTC(9999, 11, 31) / DAY_MS);

/** A delivery's created_at is the time in its UUIDv7, in milliseconds since the epoch; it is stored nowhere else. */
export function createdAtMs(deliveryId: string): number {
  return Number.parseInt(deliveryId.slice(0, 8) + deliveryId.slice(9, 13), 16);
}

/** The smallest id of that moment, as sealpost.uuid_v7_floor has it: that is evaluated again for each partition. */
export function idFloor(ms: number): string {
  const hex = ms.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}

/** Partitions are named by the day (UTC) in which their deliveries were made: `deliveries_20261120`. */
export function dayOf(deliveryId: string): string {
  const day = Math.min(Math.floor(createdAtMs(deliveryId) / DAY_MS), LAST_DAY);
  return dayNames.get(day, () => new Date(day * DAY_MS).toISOString().slice(0, 10).replaceAll("-", ""));
}

/** Nearly always the same few days; formatting a date costs more than the rest of `dayOf`. */
const DAYS_MAX = 100;
const dayNames = new BoundedCache<number, string>(DAYS_MAX);

/** Runs a statement that names one day's partitions, or, if they are gone, over the parents, more slowly. */
export async function queryDay<Row extends QueryResultRow>(
  pool: Pool,
  day: string,
  query: {
    readonly name: string;
    readonly text: (partition: (table: string) => string) => string;
    readonly values: readonly unknown[];
  },
): Promise<QueryResult<Row>> {
  const ask = (name: string, ending: string) => {
    const text = texts.get(name, () => query.text((table) => `sealpost.${table}${ending}`));
    return pool.query<Row>({ name, text, values: [...query.values] });
  };
  try {
    const name = `${query.name}_${day}`;
    return await ask(name, `_${day}`);
  } catch (error) {
    if (!(error instanceof pg.DatabaseError && error.code === UNDEFINED_TABLE)) throw error;
    return await ask(query.name, "");
  }
}

const UNDEFINED_TABLE = "42P01";
/** Two statements for each day that has open deliveries. */
const TEXTS_MAX = 200;
const texts = new BoundedCache<string, string>(TEXTS_MAX);

/** For a row that is still to be made, where something else has to know it before. */
export async function newId(database: Pool | ClientBase): Promise<string> {
  const { rows } = await database.query<{ id: string }>("select sealpost.uuid_v7() as id");
  return rows[0]!.id;
}

/** Created ahead, so that a fortnight without a running leader loses nothing. */
const DAYS_AHEAD = 14;

/** Creates the missing day partitions from yesterday to 14 days ahead. Returns how many. */
export async function makePartitions(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ made: number }>(
    "select sealpost.make_partitions((now() at time zone 'UTC')::date - 1, $1) as made",
    [DAYS_AHEAD + 2],
  );
  return rows[0]!.made;
}

/** Creates those that are missing from a day (`2026-11-22`) on, for rows that come from another database. */
export async function makePartitionsSince(pool: Pool, firstDay: string): Promise<void> {
  await pool.query(
    "select sealpost.make_partitions($1::date, greatest((now() at time zone 'UTC')::date - $1::date, 0) + 1)",
    [firstDay],
  );
}

/** The day of the account's oldest delivery or place in the feed; null: it has neither. */
export async function readFirstDay(pool: Pool, accountId: string): Promise<string | null> {
  const { rows } = await pool.query<{ day: string | null }>(
    `select to_char(least(
       (select sealpost.uuid_v7_time(id) from sealpost.deliveries where account_id = $1 order by id limit 1),
       (select to_timestamp(position / 1000000.0) from sealpost.feed where account_id = $1 order by position limit 1)
     ) at time zone 'UTC', 'YYYY-MM-DD') as day`,
    [accountId],
  );
  return rows[0]!.day;
}

export type PartitionedTable = (typeof PARTITIONED_TABLES)[number];
export type DayPartition = { readonly table: PartitionedTable; readonly name: string; readonly day: Date };

/** That ended `retentionMs` before `at` (null: the database's now), detached but not dropped ones too, oldest first. */
export async function findPartitionsOlderThan(
  pool: Pool,
  table: PartitionedTable,
  retentionMs: number,
  at: Date | null,
): Promise<DayPartition[]> {
  const { rows } = await pool.query<{ name: string; day: Date }>(
    // Names first, dates after: unfenced, the planner reads a date out of every name in the catalog.
    `with child as materialized (
       select relname as name from pg_class
       where relnamespace = 'sealpost'::regnamespace and relkind = 'r' and relname ~ ('^' || $1 || '_[0-9]{8}$')
     ), dated as (
       select name, to_date(right(name, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' as day from child
     )
     select name, day from dated
     where day + interval '1 day' <= coalesce($3::timestamptz, now()) - $2::float8 * interval '1 millisecond'
     order by name`,
    [table, retentionMs, at],
  );
  return rows.map(({ name, day }) => ({ table, name, day }));
}

/** Open deliveries of that day, parked ones too; while there are any, it is not dropped. */
export async function countOpenOfDay(pool: Pool, day: Date): Promise<number> {
  const { rows } = await pool.query<{ n: number }>(
    `select count(*)::integer as n
     from (
       select delivery_id from sealpost.open_deliveries
       union all
       select delivery_id from sealpost.parked_deliveries
     ) as open
     where delivery_id >= sealpost.uuid_v7_floor($1)
       and delivery_id < sealpost.uuid_v7_floor($1::timestamptz + interval '1 day')`,
    [day],
  );
  return rows[0]!.n;
}

/**
 * Ends open deliveries of a day whose analyses may not be sent any more, as a claim would: those of receivers that have
 * proven nothing may wait for theirs for days. Not what somebody has. Returns how many.
 */
export async function expireOpenOfDay(pool: Pool, day: Date, rowsMax: number): Promise<number> {
  const expire = (tx: ClientBase) =>
    tx.query<{ n: number }>(
      `with gone as (
       delete from sealpost.open_deliveries where ctid = any (array(
         select ctid from sealpost.open_deliveries
         where delivery_id >= sealpost.uuid_v7_floor($1) and lease_token is null
           and delivery_id < sealpost.uuid_v7_floor($1::timestamptz + interval '1 day')
         order by delivery_id limit $2 for update skip locked))
       returning account_id, delivery_id
     ), told as (
       update sealpost.deliveries as d set status = 'abandoned', reason = 'analysis_expired'
       from gone where d.account_id = gone.account_id and d.id = gone.delivery_id
     )
     select count(*)::integer as n from gone`,
      [day, rowsMax],
    );
  return (await inTransaction(pool, expire, UNPRUNED)).rows[0]!.n;
}

/** A detach waits for every transaction that can still see the day; a report of an hour must not end in a failure. */
const DETACH_MS = 60_000;

/**
 * Drops a day without blocking anybody: all would wait behind a plain DROP, and that behind one open read. It may
 * be cut off anywhere and called again: a detach that was cut off is finished first, because it would block every later
 * one. The signal ends the waiting.
 */
export async function dropPartition(pool: Pool, partition: DayPartition, signal: AbortSignal): Promise<void> {
  const client = await pool.connect();
  const cut = () => void client.end();
  signal.addEventListener("abort", cut);
  try {
    signal.throwIfAborted();
    await client.query("set lock_timeout = '2s'");
    await client.query(`set statement_timeout = ${DETACH_MS}`);
    const { rows } = await client.query<{ is_pending: boolean }>(
      "select inhdetachpending as is_pending from pg_inherits where inhrelid = ('sealpost.' || $1)::regclass",
      [partition.name],
    );
    const [attached] = rows;
    if (attached !== undefined) {
      await client.query({
        text: `alter table sealpost.${partition.table} detach partition sealpost.${partition.name}
          ${attached.is_pending ? "finalize" : "concurrently"}`,
        query_timeout: DETACH_MS + ANSWER_MARGIN_MS,
      } as QueryConfig);
    }
    await client.query(`drop table sealpost.${partition.name}`);
  } finally {
    signal.removeEventListener("abort", cut);
    client.release(true);
  }
}

/** Deletes what days have that are detached, or about to be: a dump has it, while a snapshot keeps them undropped. */
export async function emptyDetached(tx: ClientBase, of: "account_id" | "delivery_id", ids: string[]) {
  if (ids.length === 0) return;
  const days = ids.map((id) => `bodies_${dayOf(id)},attempts_${dayOf(id)}`);
  const are = of === "account_id" ? `~ '^(${PARTITIONED_TABLES.join("|")})_\\d{8}$'` : `= any ('{${days}}')`;
  // Asked after the statements on their tables, which no longer find these days. None, nearly always.
  const { rows } = await tx.query<{ name: string }>(
    `select relname as name from pg_class as c where relnamespace = 'sealpost'::regnamespace and relname ${are}
       and relkind = 'r' and not exists (select from pg_inherits where inhrelid = c.oid and not inhdetachpending)`,
  );
  for (const { name } of rows) {
    await tx.query("savepoint day");
    await tx.query(`delete from sealpost.${name} where ${of} = any ($1)`, [ids]).catch(async (error) => {
      if (error.code !== UNDEFINED_TABLE) throw error;
      await tx.query("rollback to savepoint day");
    });
  }
}

/** A place in the log, in the order of its key. */
export type LogPlace = { readonly accountId: string; readonly id: string };

const NOWHERE = "00000000-0000-0000-0000-000000000000";
const LOG_START: LogPlace = { accountId: NOWHERE, id: NOWHERE };

/**
 * Deletes a day's rows from the registry of analyses before its deliveries are dropped, `deliveriesMax` deliveries at a
 * time. The day's partition tells which, so that publishing pays for no index by delivery.
 *
 * @param after where the last step ended; null: at the start
 * @returns where to go on; null: that was all
 */
export async function forgetAnalysesOfDay(
  pool: Pool,
  day: Date,
  after: LogPlace | null,
  deliveriesMax: number,
): Promise<LogPlace | null> {
  const { accountId, id } = after ?? LOG_START;
  const { rows } = await pool.query<LogPlace>(
    `with step as materialized (
       select account_id, id, analysis_id from sealpost.deliveries
       where id >= sealpost.uuid_v7_floor($1) and id < sealpost.uuid_v7_floor($1::timestamptz + interval '1 day')
         and (account_id, id) > ($2::uuid, $3::uuid)
       order by account_id, id
       limit $4
     ), forgotten as (
       delete from sealpost.analyses a using step
       where a.account_id = step.account_id and a.id = step.analysis_id and a.delivery_id = step.id
     )
     select account_id as "accountId", id from step order by account_id desc, id desc limit 1`,
    [day, accountId, id, deliveriesMax],
  );
  return rows[0] ?? null;
}
