-- A step of the bulk replays is shared max-min fairly, as it was meant to be. The level at which what all ask for is
-- cut was taken from the largest account that is cut; it is that of the smallest. Beside two greedy accounts or more,
-- everybody's replays went on by one item a step.

-- The running replays that may go on, in the order of their turns, and how many items of each: as many as its pace
-- allows since its last step (paced_from; two seconds' worth at most), at most items_max in all. Max-min fair (whoever
-- asks for less than an equal share of what is left gets it all) by account first, and within an account by replay.
-- Where that is less than one item, those served longest ago get one. served_at, unlike paced_from, tells them apart.
create function sealpost.replay_shares(at timestamptz, items_max integer)
returns table (id uuid, account_id uuid, rate_per_second integer, paced_from timestamptz, allowed integer)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  with running as (
    select r.id, r.account_id, r.rate_per_second, r.matched - r.replayed - r.skipped as left_to_start,
      r.paced_at as served_at, greatest(r.paced_at, at - interval '2 seconds') as paced_from
    from sealpost.replays as r where r.status = 'running'
    for update skip locked
  ), asking as (
    select * from (
      select running.*,
        least(floor(extract(epoch from at - running.paced_from) * running.rate_per_second)::integer, left_to_start)
          as asks
      from running
    ) as asked
    where asks >= 1
  ), accounts as (
    select a.account_id, sum(a.asks) as asks, max(a.served_at) as served_at from asking as a group by a.account_id
  ), account_levels as (
    -- What is left beside all the smaller ones, divided equally.
    select a.*, row_number() over smaller_first as place,
      (items_max - (sum(a.asks) over smaller_first - a.asks)) / (count(*) over () - row_number() over smaller_first + 1)
        as level
    from accounts as a
    window smaller_first as (order by a.asks, a.account_id rows unbounded preceding)
  ), account_shares as (
    -- All are cut at the level of the smallest that cannot have all.
    select l.account_id, l.served_at as account_served_at, greatest(1, floor(least(l.asks, (
      select cut.level from account_levels as cut where cut.asks > cut.level order by cut.place limit 1)))) as share
    from account_levels as l
  ), levels as (
    select a.*, s.account_served_at, s.share, row_number() over smaller_first as place,
      row_number() over (partition by a.account_id order by a.served_at, a.id) as turn,
      (s.share - (sum(a.asks) over smaller_first - a.asks))
        / (count(*) over (partition by a.account_id) - row_number() over smaller_first + 1) as level
    from asking as a join account_shares as s on s.account_id = a.account_id
    window smaller_first as (partition by a.account_id order by a.asks, a.id rows unbounded preceding)
  ), cuts as (
    select distinct on (l.account_id) l.account_id, l.level
    from levels as l where l.asks > l.level order by l.account_id, l.place
  )
  select l.id, l.account_id, l.rate_per_second, l.paced_from,
    greatest(1, floor(least(l.asks, c.level)))::integer
  from levels as l left join cuts as c on c.account_id = l.account_id
  where l.turn <= l.share
  order by l.account_served_at, l.served_at, l.id;
end
$$;

-- As before, with these shares, and at most items_max items.
create function sealpost.advance_replays(analysis_retention interval, at timestamptz, items_max integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  replay record;
  item record;
  turn record;
  taken integer;
  started integer;
  total integer := 0;
  ids uuid[] := '{}';
  lanes bigint[] := '{}';
begin
  for replay in select * from sealpost.replay_shares(at, items_max)
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
      from sealpost.start_next_run(replay.account_id, item.delivery_id, analysis_retention, at);
      update sealpost.replay_items
      set outcome = case turn.outcome when 'replayed' then 'replayed' else 'skipped' end, run = turn.next_run
      where replay_id = replay.id and position = item.position;
      taken := taken + 1;
      if turn.outcome = 'replayed' then
        started := started + 1;
      end if;
      if turn.wakes_lane is not null then
        ids := ids || item.delivery_id;
        lanes := lanes || turn.wakes_lane;
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
  perform sealpost.add_wakeups(ids, lanes);
  return total;
end
$$;

-- For dispatchers of the version before: a step a second.
create or replace function sealpost.advance_replays(analysis_retention interval, at timestamptz) returns integer
language sql volatile
begin atomic
  select sealpost.advance_replays(analysis_retention, at, 1000);
end;

revoke execute on all functions in schema sealpost from public;
