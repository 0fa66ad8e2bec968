-- The promoter's one step: wake what is due and has nobody at it. That is every retry whose time has come, every
-- replay, every delivery whose dispatcher died (its lease ran out) and every wake-up that a crash lost.
--
-- Returns how many rows it looked at and how many it woke; called again at once while it looked at `rows_max`. Nothing
-- is promoted while waiting_jobs_max wake-ups wait; jobs of other tasks in the same queue are none of ours.
--
-- A lane gets at most `lane_max` wake-ups a step. What it has beyond that is looked at again a second later for every
-- `lane_max` rows before it, so that one lane's million rows are not read over and over in front of everybody else's.
-- (Pushing all of them to the next second was tried on paper: a million index updates a second.)
--
-- What `due` has locked is updated by its place, not by its id: a plan that was made while the table was all but empty
-- joined by id by reading the whole table, and woke 8,000 rows in 45 s instead of 0.2. A row that somebody has changed
-- just before it was locked is in a place that this statement does not see; the next step moves it.
create function sealpost.promote(
  at timestamptz, rows_max integer, lane_max integer, waiting_jobs_max integer, out looked integer, out woken integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  wake_after constant interval := '15 seconds';
  ids uuid[];
  lanes bigint[];
begin
  looked := 0;
  woken := 0;
  if (
    select count(*) from (
      select from graphile_worker._private_jobs
      where is_available and task_id = (select id from graphile_worker._private_tasks where identifier = 'deliver')
      limit waiting_jobs_max) as waiting
  ) >= waiting_jobs_max then
    return;
  end if;
  with due as (
    select ctid as place, delivery_id, lane, wake_at
    from sealpost.open_deliveries
    where wake_at <= at and due_at <= at and (lease_until is null or lease_until <= at)
    order by wake_at
    limit rows_max
    for update skip locked
  ), ranked as (
    select place, delivery_id, lane,
      row_number() over (partition by lane order by wake_at, delivery_id) - 1 as rank
    from due
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + case when rank < lane_max then wake_after else (rank / lane_max) * interval '1 second' end
    from ranked
    where o.ctid = ranked.place
    returning o.delivery_id, o.lane, ranked.rank
  )
  select count(*), array_agg(delivery_id order by rank, delivery_id) filter (where rank < lane_max),
    array_agg(lane order by rank, delivery_id) filter (where rank < lane_max)
  into looked, ids, lanes
  from moved;
  woken := coalesce(cardinality(ids), 0);
  perform sealpost.add_wakeups(ids, lanes);
end
$$;

-- Wake-ups whose worker died keep graphile-worker's lock for four hours. The rows that they meant have long been
-- woken again, so the jobs are swept away. Only ours: the platform may have jobs of its own in the queue, long ones.
create function sealpost.sweep_jobs(at timestamptz, limit_rows integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  swept integer;
begin
  with stuck as (
    select id from graphile_worker._private_jobs
    where locked_at < at - interval '5 minutes'
      and task_id = (select id from graphile_worker._private_tasks where identifier = 'deliver')
    limit limit_rows
    for update skip locked
  )
  delete from graphile_worker._private_jobs as jobs using stuck where jobs.id = stuck.id;
  get diagnostics swept = row_count;
  return swept;
end
$$;

-- Which dispatcher promotes. A lease in a row, not an advisory lock: a stopped process (SIGSTOP, a frozen machine)
-- would keep the lock for as long as its connection lives. Two leaders for a moment do no harm.
create table sealpost.leader (
  only_row boolean primary key default true check (only_row),
  holder uuid not null,
  until timestamptz not null
);

-- The jobs table turns over completely every second under load: the default thresholds, a share of its size, would let
-- it bloat a thousandfold before anybody vacuums.
alter table graphile_worker._private_jobs set (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 10000
);

revoke execute on all functions in schema sealpost from public;
