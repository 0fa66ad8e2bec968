// One moment of a run: what was recorded by then, and what it has cost. Two of them make a measurement.
import type { BenchDatabase } from "../database.ts";
import { cpuMicroseconds, memoryMib, parentOf, serverCpuMicroseconds } from "./processes.ts";

export type Snapshot = {
  /** Attempts in the log. */
  readonly recorded: number;
  /** The database's clock when they were counted. */
  readonly atMs: number;
  readonly walBytes: number;
  readonly databaseBytes: number;
  /** Statements that clients sent, by all but the publisher and this benchmark. NaN: the server does not count them. */
  readonly statements: number;
  /** CPU in microseconds by who spent it. */
  readonly cpu: ReadonlyMap<string, number>;
  readonly dispatcherRssMib: number;
};

export type Watched = {
  readonly database: BenchDatabase;
  readonly dispatcherPids: readonly number[];
  /** Absent: nothing is published over HTTP. */
  readonly apiPid?: number;
  readonly receiverPid: number;
  readonly publisherPid: number | null;
};

const COUNT = `
select
  extract(epoch from clock_timestamp())::float8 * 1000 as at_ms,
  (select count(*) from sealpost.attempts)::float8 as recorded,
  pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as wal_bytes,
  pg_database_size(current_database())::float8 as database_bytes`;

// The publisher has a role of its own; what this benchmark asks begins with a mark.
const STATEMENTS = `
/* bench */ select coalesce(sum(calls), 0)::float8 as calls
from pg_stat_statements s
where s.dbid = (select oid from pg_database where datname = current_database())
  and s.userid = (select usesysid from pg_user where usename = current_user)
  and s.query not like '/* bench */%' and s.toplevel`;

const BACKENDS = `
/* bench */ select pid, case when backend_type = 'client backend' then application_name else backend_type end as name
from pg_stat_activity`;

export async function takeSnapshot(watched: Watched): Promise<Snapshot> {
  const { pool } = watched.database;
  type Counted = Record<"recorded" | "at_ms" | "wal_bytes" | "database_bytes", number>;
  const counted = await pool.query<Counted>(`/* bench */ ${COUNT}`);
  const statements = watched.database.countsStatements
    ? await pool.query<{ calls: number }>(STATEMENTS)
    : null;
  const backends = await pool.query<{ pid: number; name: string }>(BACKENDS);
  const { recorded, at_ms, wal_bytes, database_bytes } = counted.rows[0]!;
  return {
    recorded,
    atMs: at_ms,
    walBytes: wal_bytes,
    databaseBytes: database_bytes,
    statements: statements?.rows[0]?.calls ?? Number.NaN,
    cpu: readCpu(watched, new Map(backends.rows.map((row) => [row.pid, row.name]))),
    dispatcherRssMib: watched.dispatcherPids.reduce((sum, pid) => sum + memoryMib(pid).now, 0),
  };
}

function readCpu(watched: Watched, names: ReadonlyMap<number, string>): Map<string, number> {
  const [anyBackend] = [...names.keys()];
  const server = serverCpuMicroseconds(
    parentOf(anyBackend!),
    (pid) => `PostgreSQL: ${names.get(pid) ?? "ended"}`,
  );
  const cpu = new Map(server);
  const dispatchers = watched.dispatcherPids.reduce((sum, pid) => sum + cpuMicroseconds(pid), 0);
  cpu.set("dispatcher", dispatchers);
  if (watched.apiPid !== undefined) cpu.set("serve", cpuMicroseconds(watched.apiPid));
  cpu.set("receiver", cpuMicroseconds(watched.receiverPid));
  if (watched.publisherPid !== null) cpu.set("publisher", cpuMicroseconds(watched.publisherPid));
  return cpu;
}

export type Measured = {
  readonly deliveries: number;
  readonly perSecond: number;
  readonly walBytes: number;
  readonly statements: number;
  /** Microseconds per delivery, the greatest first. */
  readonly cpu: ReadonlyMap<string, number>;
};

/** What lies between two moments; all but the rate is per delivery. */
export function between(first: Snapshot, last: Snapshot): Measured {
  const deliveries = last.recorded - first.recorded;
  return {
    deliveries,
    perSecond: (deliveries * 1000) / (last.atMs - first.atMs),
    walBytes: (last.walBytes - first.walBytes) / deliveries,
    statements: (last.statements - first.statements) / deliveries,
    cpu: cpuBetween(first, last, deliveries),
  };
}

/** Microseconds of CPU that each took, for each of `count`, the greatest first. */
export function cpuBetween(first: Snapshot, last: Snapshot, count: number): ReadonlyMap<string, number> {
  const cpu = [...last.cpu]
    .map(([name, spent]) => [name, (spent - (first.cpu.get(name) ?? 0)) / count] as const)
    .sort(([, left], [, right]) => right - left);
  return new Map(cpu);
}

/** Of what `cpuBetween` gives, the database's processes as one. This benchmark's own questions are left out. */
export function cpuByProcess(cpu: ReadonlyMap<string, number>): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const [name, spent] of cpu) {
    if (name === "PostgreSQL: bench") continue;
    const process = name.startsWith("PostgreSQL") ? "PostgreSQL" : name;
    sums.set(process, (sums.get(process) ?? 0) + spent);
  }
  return sums;
}
