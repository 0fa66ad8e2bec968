// Attempts as the log holds them, written straight into it, and what a count over them says.
import { randomUUID } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import type { Outcome } from "../../src/base/model/statuses.ts";

export type EndedAttempt = {
  readonly accountId: string;
  readonly endedAt: Date;
  readonly outcome: Outcome;
  readonly errorCode: string | null;
  /** Null: it is not known where it went. */
  readonly targetUrl: string | null;
  readonly durationMs: number;
};

/** In the partition of today, whenever they ended. */
export async function insertAttempts(
  database: Pool | ClientBase,
  attempts: readonly EndedAttempt[],
): Promise<void> {
  await database.query(
    `insert into sealpost.attempts
       (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, target_url)
     select sealpost.uuid_v7(now()), account_id, 1, 1, ended_at - duration_ms * interval '1 millisecond', ended_at,
       outcome, error_code, target_url
     from json_to_recordset($1) as made (account_id uuid, ended_at timestamptz, duration_ms integer, outcome text,
       error_code text, target_url text)`,
    [
      JSON.stringify(
        attempts.map((one) => ({
          account_id: one.accountId,
          ended_at: one.endedAt,
          duration_ms: one.durationMs,
          outcome: one.outcome,
          error_code: one.errorCode,
          target_url: one.targetUrl,
        })),
      ),
    ],
  );
}

/** One that succeeded at that moment, unless said otherwise. */
export function endedAttempt(endedAt: Date, more: Partial<EndedAttempt> = {}): EndedAttempt {
  return {
    accountId: randomUUID(),
    endedAt,
    outcome: "succeeded",
    errorCode: null,
    targetUrl: "https://hooks.example.com/in",
    durationMs: 40,
    ...more,
  };
}

export type Sums = {
  account_id: string;
  hour: Date;
  outcome: string;
  error_code: string | null;
  attempts: number;
  duration_ms: number;
  first_at: Date;
  last_at: Date;
};

const HOURS = `date_bin('1 hour', moment, '2000-01-01 00:00Z')`;

/** By account, hour and error, from the attempts that ended before the moment. */
export async function countAttempts(database: Pool | ClientBase, before: Date): Promise<Sums[]> {
  const { rows } = await database.query<Sums>(
    `select account_id, ${HOURS} as hour, outcome, error_code, count(*)::integer as attempts,
       sum(round(extract(epoch from ended_at - started_at) * 1000))::integer as duration_ms,
       min(ended_at) as first_at, max(ended_at) as last_at
     from (select *, ended_at as moment from sealpost.attempts where ended_at < $1) as ended
     group by 1, 2, 3, 4 order by 1, 2, 3, 4`,
    [before],
  );
  return rows;
}

/** The same from the activity. */
export async function sumActivity(database: Pool | ClientBase): Promise<Sums[]> {
  const { rows } = await database.query<Sums>(
    `select account_id, ${HOURS} as hour, outcome, error_code, sum(attempts)::integer as attempts,
       sum(duration_ms)::integer as duration_ms, min(first_at) as first_at, max(last_at) as last_at
     from (select *, bucket as moment from sealpost.activity) as counted
     group by 1, 2, 3, 4 order by 1, 2, 3, 4`,
  );
  return rows;
}
