-- Shares by account first, lane second: in wake-ups, in promoting, in bulk replays. Functions keep their signatures, so
-- that processes of the version before call them as they did.

-- Receivers that have answered at some time. A dispatcher that does not know a lane yet looks here before it takes the
-- receiver for one that may be dead: a deploy with thousands of healthy receivers goes on at full speed.
-- Bounded per account by sealpost.forget_answered_lanes, so that nobody's flood of names evicts a neighbour's.
create table sealpost.answered_lanes (
  account_id uuid not null,
  lane bigint not null,
  answered_at timestamptz not null default now(),
  primary key (account_id, lane)
) with (autovacuum_vacuum_scale_factor = 0.1);

-- Keeps the newest `lanes_max` of each account, and of those the ones that answered within `retention`. Leaves in
-- batches; returns how many went.
create function sealpost.forget_answered_lanes(retention interval, lanes_max integer, rows_max integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  forgotten integer;
begin
  with surplus as (
    select account_id, lane
    from (
      select account_id, lane, answered_at,
        row_number() over (partition by account_id order by answered_at desc, lane) as place
      from sealpost.answered_lanes
    ) as ranked
    where place > lanes_max or answered_at < now() - retention
    limit rows_max
  )
  delete from sealpost.answered_lanes as a using surplus
  where a.account_id = surplus.account_id and a.lane = surplus.lane;
  get diagnostics forgotten = row_count;
  return forgotten;
end
$$;

-- Up to rows_max ids of one lane, from `from_id` on, that are due and that nobody has at hand: they are this caller's
-- to queue. next_id: where more may follow; null: that was all. The promoter waits a second longer for them than for
-- others, by which another dispatcher sees, for that second, that they are taken.
--
-- At most looks_max rows of all lanes are looked at, by the primary key. An index by account and lane would find those
-- of the lane alone, but it costs every publish, and a plan made for an empty table looks single ids up in it by
-- reading all of it.
create function sealpost.take_let_go(
  of_account uuid, of_lane bigint, from_id uuid, rows_max integer, at timestamptz, out ids uuid[], out next_id uuid
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
  taken_for constant interval := '1 second';
  looks_max constant integer := 10000;
begin
  with looked as materialized (
    select ctid as place, delivery_id, account_id, lane
    from sealpost.open_deliveries
    where delivery_id >= from_id
    order by delivery_id
    limit looks_max
  ), page as (
    select place, delivery_id, row_number() over (order by delivery_id) as n
    from looked where account_id = of_account and lane = of_lane
    order by delivery_id
    limit rows_max + 1
  ), free as (
    select o.ctid as place
    from page join sealpost.open_deliveries as o on o.ctid = page.place
    where page.n <= rows_max and o.delivery_id = page.delivery_id
      and o.due_at <= at and (o.lease_until is null or o.lease_until <= at) and o.wake_at <= at + wake_after
    for update of o skip locked
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + wake_after + taken_for
    from free
    where o.ctid = free.place
    returning o.delivery_id
  )
  select (select coalesce(array_agg(delivery_id order by delivery_id), '{}') from moved),
    coalesce(
      (select delivery_id from page where n > rows_max),
      (select delivery_id from looked order by delivery_id offset looks_max - 1 limit 1))
  into ids, next_id;
end
$$;

-- As before, and with each delivery's account, so that a dispatcher shares by account. A wake-up without accounts is of
-- the version before; dispatchers of that version do not look at them.
create or replace function sealpost.add_wakeups(delivery_ids uuid[], lanes bigint[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  deliver integer := (select id from graphile_worker._private_tasks where identifier = 'deliver');
begin
  if cardinality(delivery_ids) > 0 then
    -- Made below and by every dispatcher; somebody may have cleaned up.
    if deliver is null then
      insert into graphile_worker._private_tasks (identifier) values ('deliver') on conflict do nothing;
      deliver := (select id from graphile_worker._private_tasks where identifier = 'deliver');
    end if;
    insert into graphile_worker._private_jobs (task_id, payload, max_attempts)
    select
      deliver,
      json_build_object(
        'ids', delivery_ids[first : least(first + 49, cardinality(delivery_ids))],
        'accounts', array(
          select o.account_id
          from unnest(delivery_ids[first : first + 49]) with ordinality as wanted (id, n)
          left join sealpost.open_deliveries as o on o.delivery_id = any (array[wanted.id])
          order by n),
        'lanes', array(select l::text from unnest(lanes[first : first + 49]) as l)),
      32767
    from generate_series(1, cardinality(delivery_ids), 50) as first;
  end if;
end
$$;

-- As before, with shares by account first: an account gets at most `account_max` wake-ups a step, taken from its lanes
-- in turn, and a lane at most lane_max. What is beyond is looked at again a second later for every share before it.
create or replace function sealpost.promote(
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
  account_max constant integer := 2 * lane_max;
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
    select ctid as place, delivery_id, account_id, lane, wake_at
    from sealpost.open_deliveries
    where wake_at <= at and due_at <= at and (lease_until is null or lease_until <= at)
    order by wake_at
    limit rows_max
    for update skip locked
  ), in_lane as (
    select place, delivery_id, account_id, lane,
      row_number() over (partition by account_id, lane order by wake_at, delivery_id) - 1 as lane_rank
    from due
  ), ranked as (
    select place, delivery_id, lane, lane_rank,
      row_number() over (partition by account_id order by lane_rank, delivery_id) - 1 as account_rank
    from in_lane
  ), shared as (
    select place, delivery_id, lane, account_rank,
      greatest(lane_rank / lane_max, account_rank / account_max) as wait_s
    from ranked
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + case when wait_s = 0 then wake_after else wait_s * interval '1 second' end
    from shared
    where o.ctid = shared.place
    returning o.delivery_id, o.lane, shared.account_rank, shared.wait_s
  )
  select count(*), array_agg(delivery_id order by account_rank, delivery_id) filter (where wait_s = 0),
    array_agg(lane order by account_rank, delivery_id) filter (where wait_s = 0)
  into looked, ids, lanes
  from moved;
  woken := coalesce(cardinality(ids), 0);
  perform sealpost.add_wakeups(ids, lanes);
end
$$;

-- A replay that has started all its items is `delivering` until every one of them has ended; it does no more work here
-- and does not count against its account's budget.
alter table sealpost.replays drop constraint replays_status_check;
alter table sealpost.replays add constraint replays_status_check
  check (status in ('running', 'delivering', 'done', 'cancelled'));
alter table sealpost.replays drop constraint replays_check;
alter table sealpost.replays add constraint replays_check
  check ((status in ('running', 'delivering')) = (ended_at is null));
create index replays_running_account on sealpost.replays (account_id) where status = 'running';

-- One step of the running bulk replays: as many items as their pace allows since the last step, at most items_max in
-- all, shared by account first: accounts take turns, each with an equal share of what is left, those that were served
-- longest ago first; and within an account its replays do. A step is one transaction, so a crash repeats at most what
-- it had not committed. At most two seconds' worth of one replay at once, or a leader that was away would bring a
-- flood. Returns how many items had their turn.
create or replace function sealpost.advance_replays(analysis_retention interval, at timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  items_max constant integer := 1000;
  replay record;
  item record;
  turn record;
  taken integer;
  started integer;
  total integer := 0;
begin
  for replay in
    with running as (
      select id, account_id, rate_per_second, matched - replayed - skipped as left_to_start,
        greatest(paced_at, at - interval '2 seconds') as paced_from
      from sealpost.replays where status = 'running'
      for update skip locked
    ), asked as (
      select running.*,
        least(floor(extract(epoch from at - paced_from) * rate_per_second)::integer, left_to_start) as allowed
      from running
    ), wanting as (
      select *, sum(allowed) over (partition by account_id) as account_asks from asked where allowed >= 1
    ), accounts as (
      -- Max-min fair: whoever asks for less than an equal share of what is left gets it all.
      select account_id, account_asks, min(paced_from) as served_at,
        row_number() over (order by account_asks, account_id) - 1 as smaller,
        sum(account_asks) over (order by account_asks, account_id rows unbounded preceding) - account_asks
          as asked_by_smaller,
        count(*) over () as accounts_count
      from wanting group by account_id, account_asks
    ), levels as (
      select *, (items_max - asked_by_smaller) / (accounts_count - smaller) as level from accounts
    ), shared as (
      -- The level at which what all ask for is cut: that of the smallest account which cannot have all.
      select account_id, served_at,
        least(account_asks, greatest(1, coalesce((
          select min(cut.level) from levels as cut where cut.account_asks > cut.level), items_max)))::integer as share
      from levels
    )
    select wanting.id, wanting.account_id, wanting.rate_per_second, wanting.paced_from,
      least(wanting.allowed, greatest(1, shared.share / (
        select count(*) from wanting as own where own.account_id = wanting.account_id)))::integer as allowed
    from wanting join shared using (account_id)
    order by shared.served_at, wanting.paced_from, wanting.id
  loop
    exit when total >= items_max;
    taken := 0;
    started := 0;
    for item in
      select position, delivery_id from sealpost.replay_items
      where replay_id = replay.id and outcome is null
      order by position
      limit least(replay.allowed, items_max - total)
    loop
      select * into turn
      from sealpost.replay_delivery(replay.account_id, item.delivery_id, analysis_retention, at);
      update sealpost.replay_items
      set outcome = case turn.outcome when 'replayed' then 'replayed' else 'skipped' end, run = turn.next_run
      where replay_id = replay.id and position = item.position;
      taken := taken + 1;
      if turn.outcome = 'replayed' then
        started := started + 1;
      end if;
    end loop;
    total := total + taken;
    update sealpost.replays as r
    set replayed = r.replayed + started, skipped = r.skipped + taken - started,
      paced_at = replay.paced_from + taken::float8 / r.rate_per_second * interval '1 second',
      status = case
        when r.replayed + r.skipped + taken < r.matched then r.status
        when r.replayed + started = 0 then 'done'
        else 'delivering' end,
      ended_at = case when r.replayed + r.skipped + taken >= r.matched and r.replayed + started = 0 then at end,
      count_at = least(r.count_at, at + interval '1 second')
    where r.id = replay.id;
  end loop;
  return total;
end
$$;

-- As before, and a replay that is delivering is done when none of its deliveries has an attempt to come.
create or replace function sealpost.store_count_of_replay(of_replay uuid, at timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  counted record;
begin
  select c.succeeded, c.failed, sealpost.count_replay_open(r.id, r.account_id) as open into counted
  from sealpost.replays as r, lateral sealpost.count_replay(r.id, r.account_id) as c
  where r.id = of_replay;
  update sealpost.replays as r
  set succeeded = counted.succeeded, failed = counted.failed,
    status = case when r.status = 'delivering' and counted.open = 0 then 'done' else r.status end,
    ended_at = case when r.status = 'delivering' and counted.open = 0 then at else r.ended_at end,
    count_at = case
      when r.status = 'running' or (r.status = 'delivering' and counted.open > 0)
        or (counted.succeeded < r.replayed and at <= coalesce(r.ended_at, at) + interval '8 days')
      then r.count_at
    end
  where r.id = of_replay;
end
$$;

-- Deliveries of a replay that have an attempt to come.
create function sealpost.count_replay_open(of_replay uuid, of_account uuid) returns integer
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*)::integer
  from sealpost.replay_items i
  cross join lateral (
    select from sealpost.open_deliveries as o where o.delivery_id = i.delivery_id and o.account_id = of_account offset 0
  ) as d
  where i.replay_id = of_replay and i.outcome = 'replayed'
$$;

revoke execute on all functions in schema sealpost from public;
