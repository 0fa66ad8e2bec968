import type { ClientBase, Pool, QueryConfig } from "pg";

/** Made ahead, so that a fortnight without anybody watching loses nothing. */
const DAYS_AHEAD = 14;

/** Makes the missing day partitions from yesterday to 14 days ahead. Returns how many were made. */
export async function makePartitions(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ made: number }>(
    "select sealpost.make_partitions((now() at time zone 'UTC')::date - 1, $1) as made",
    [DAYS_AHEAD + 2],
  );
  return rows[0]!.made;
}

export type PartitionedTable = "deliveries" | "bodies" | "attempts";
export type DayPartition = { readonly table: PartitionedTable; readonly name: string; readonly day: Date };

/**
 * Days that ended at least `retentionMs` before `at` (null: the database's now), oldest first. A day that was detached
 * but not yet dropped, because whoever did it died in between, is one of them.
 */
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

/** Deliveries of that day that still have attempts to come; such a day is not dropped. */
export async function countOpenOfDay(pool: Pool, day: Date): Promise<number> {
  const { rows } = await pool.query<{ n: number }>(
    `select count(*)::integer as n from sealpost.open_deliveries
     where delivery_id >= sealpost.uuid_v7_floor($1)
       and delivery_id < sealpost.uuid_v7_floor($1::timestamptz + interval '1 day')`,
    [day],
  );
  return rows[0]!.n;
}

/** A detach waits for every transaction that can still see the day; a report of an hour must not end in a failure. */
const DETACH_MS = 60_000;

/**
 * Takes a day out of the log without stopping anybody. A plain DROP waits behind one open read, and everything else
 * behind the DROP (2 s measured); detached concurrently it waits for nobody's lock but old transactions. It may end
 * anywhere in between and be called again: a detach that was cut off half-way is finished first, as it would block
 * every later one. The signal ends the waiting.
 */
export async function dropPartition(pool: Pool, partition: DayPartition, signal: AbortSignal): Promise<void> {
  const client = await pool.connect();
  const cut = () => void client.end();
  signal.addEventListener("abort", cut);
  try {
    signal.throwIfAborted();
    await client.query("set lock_timeout = '2s'");
    await client.query(`set statement_timeout = ${DETACH_MS}`);
    const attachment = await findAttachment(client, partition.name);
    if (attachment !== "none") {
      await client.query({
        text: `alter table sealpost.${partition.table} detach partition sealpost.${partition.name}
          ${attachment === "pending" ? "finalize" : "concurrently"}`,
        query_timeout: DETACH_MS,
      } as QueryConfig);
    }
    await client.query(`drop table sealpost.${partition.name}`);
  } finally {
    signal.removeEventListener("abort", cut);
    client.release(true);
  }
}

async function findAttachment(client: ClientBase, name: string): Promise<"attached" | "pending" | "none"> {
  const { rows } = await client.query<{ is_pending: boolean }>(
    "select inhdetachpending as is_pending from pg_inherits where inhrelid = ('sealpost.' || $1)::regclass",
    [name],
  );
  if (rows[0] === undefined) return "none";
  return rows[0].is_pending ? "pending" : "attached";
}

/**
 * Forgets the registry's rows of a day before its deliveries go, in small batches: the day's partition tells which, so
 * that publishing pays for no index by delivery.
 */
export async function forgetAnalysesOfDay(pool: Pool, day: Date, rowsMax: number): Promise<number> {
  const { rowCount } = await pool.query(
    `with gone as (
       select a.account_id, a.id
       from sealpost.deliveries d
       join sealpost.analyses a on a.account_id = d.account_id and a.id = d.analysis_id and a.delivery_id = d.id
       where d.id >= sealpost.uuid_v7_floor($1) and d.id < sealpost.uuid_v7_floor($1::timestamptz + interval '1 day')
       limit $2
       for update of a skip locked
     )
     delete from sealpost.analyses a using gone where a.account_id = gone.account_id and a.id = gone.id`,
    [day, rowsMax],
  );
  return rowCount ?? 0;
}
