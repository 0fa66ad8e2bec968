import type { BenchDatabase } from "../database.ts";

export type StatementLine = {
  readonly text: string;
  readonly calls: number;
  readonly totalMs: number;
  readonly rows: number;
  readonly walBytes: number;
};

/** What each statement has taken inside the server, the most expensive first. Waiting for locks and disks counts. */
export async function readStatements({ pool }: BenchDatabase): Promise<StatementLine[]> {
  const { rows } = await pool.query<{ text: string; calls: number; ms: number; rows: number; wal: number }>(`
/* bench */ select left(regexp_replace(query, '\\s+', ' ', 'g'), 60) as text, sum(calls)::float8 as calls,
  sum(total_exec_time + total_plan_time) as ms, sum(rows)::float8 as rows, sum(wal_bytes)::float8 as wal
from pg_stat_statements
where dbid = (select oid from pg_database where datname = current_database())
  and query not like '/* bench */%' and toplevel
group by 1 order by ms desc`);
  return rows.map(({ text, calls, ms, rows: count, wal }) => {
    return { text, calls, totalMs: ms, rows: count, walBytes: wal };
  });
}
