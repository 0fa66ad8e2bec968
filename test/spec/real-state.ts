// What a database holds of an account and its deliveries, in the specification's terms.
import type pg from "pg";
import type { Value } from "./quint.ts";

/** Of each delivery's number, its id. */
export type Ids = ReadonlyMap<number, string>;

/** Takes the wake-ups away: those that are new, by number. */
export async function readState(pool: pg.Pool, accountId: string, ids: Ids, epochMs: number) {
  const values = [accountId, [...ids.values()], new Date(epochMs)];
  const { rows } = await pool.query({ name: "look", text: LOOK, values });
  const { woken, ...real } = rows[0].found;
  const newlyWoken = [...ids].flatMap(([n, id]) => (woken.includes(id) ? [n] : []));
  return { real, newlyWoken };
}

/** What the specification says that it is. */
export function stateOf(cell: Value, ids: Ids) {
  return {
    account: cell.account,
    paused: cell.paused,
    gather: cell.gather,
    rows: [...ids]
      .filter(([n]) => cell.log[n].created >= 0)
      .map(([n, id]) => rowOf(id, cell, n))
      .sort((x, y) => (x.id < y.id ? -1 : 1)),
  };
}

export const tokenOf = (token: number) => `00000000-0000-4000-8000-${String(token).padStart(12, "0")}`;

function rowOf(id: string, { rows, log, attempts }: Value, n: number) {
  const { wake, until, leaseRun, token, ofRun, ...row } = rows[n];
  const { created, ofRun: logRun, ...logged } = log[n];
  return {
    id,
    ...logged,
    run: logRun,
    ...row,
    rowRun: ofRun,
    wake,
    until,
    leaseRun,
    token: token === 0 ? "" : tokenOf(token),
    attempts: attempts.items
      .filter(({ delivery }: Value) => delivery === n)
      .map((one: Value) => `${one.ofRun}/${one.number} ${one.outcome}`)
      .sort(),
    attemptsInRun: row.attempts,
  };
}

/** What the database holds of an account and its deliveries, in the specification's terms. Takes the wake-ups away. */
const LOOK = `
with taken as (
  delete from graphile_worker._private_jobs
  where task_id = (select id from graphile_worker._private_tasks where identifier = 'deliver')
  returning payload
)
select json_build_object(
  'account', coalesce((
    select case when moved_to is null then 'open' else 'closed' end from sealpost.accounts where id = $1), 'absent'),
  'paused', coalesce((select tick(paused_at) from sealpost.endpoints where account_id = $1), -1),
  'gather', coalesce((select tick(gather_at) from sealpost.endpoints where account_id = $1), -1),
  'move', coalesce((select step from sealpost.moves where account_id = $1), ''),
  'woken', array(select json_array_elements_text(payload -> 'ids') from taken),
  'rows', coalesce((
    select json_agg(json_build_object(
      'id', d.id, 'status', d.status, 'reason', coalesce(d.reason, ''), 'run', d.run, 'count', d.attempts_count,
      'place', case when o.delivery_id is not null then 'open' when h.delivery_id is not null then 'held'
        when p.is_held then 'parked held' when p.delivery_id is not null then 'parked' else '' end,
      'due', coalesce(tick(o.due_at), tick(p.due_at), -1),
      'wake', coalesce(tick(o.wake_at), -1),
      'started', coalesce(tick(o.run_started_at), tick(p.run_started_at), -1),
      'token', coalesce(o.lease_token::text, ''),
      'until', coalesce(tick(o.lease_until), -1),
      'leaseRun', case when o.lease_token is not null then o.lease_run else 0 end,
      'number', coalesce(o.lease_number, 0),
      'alone', coalesce(
        case when o.lease_alone then o.lease_run end, case when p.lease_alone then p.lease_run end, 0),
      'rowRun', coalesce(o.run, h.run, p.run, 0),
      'attemptsInRun', coalesce(o.attempts_in_run, h.attempts_in_run, p.attempts_in_run, 0),
      'cuts', coalesce(o.interruptions, h.interruptions, p.interruptions, 0),
      'wait', coalesce(h.wait_s, p.wait_s, -15) / 15,
      'age', coalesce(h.run_age_s, p.run_age_s, -15) / 15,
      'attempts', coalesce((
        select json_agg(a.run || '/' || a.number || ' ' || a.outcome order by a.run, a.number)
        from sealpost.attempts as a where a.delivery_id = d.id), '[]')
    ) order by d.id)
    from sealpost.deliveries as d
    left join sealpost.open_deliveries as o on o.delivery_id = d.id
    left join sealpost.held_deliveries as h on h.delivery_id = d.id and h.account_id = $1
    left join sealpost.parked_deliveries as p on p.delivery_id = d.id and p.account_id = $1
    where d.account_id = $1 and d.id = any ($2::uuid[])
  ), '[]')
) as found`
  .replaceAll(/tick\(([a-z_.]+)\)/g, "(extract(epoch from $1 - ~) / 15)::float8")
  .replaceAll("~", "$3::timestamptz");
