-- A step of the bulk replays wakes all that it starts together, 50 deliveries to a wake-up. Each had one of its own: a
-- thousand at once, which everybody's next first attempt had to wait for in the queue, up to a second.

-- What sealpost.replay_delivery did, but for the wake-up. wakes_lane: the delivery's lane, for its wake-up; null: it
-- needs none, because nothing was started or an attempt is under way.
create function sealpost.start_next_run(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz,
  out outcome text, out next_run integer, out wakes_lane bigint
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  opened record;
  is_open boolean;
  logged record;
  of_lane bigint;
begin
  select lease_until into opened
  from sealpost.open_deliveries where delivery_id = of_delivery and account_id = of_account for update;
  is_open := found;
  select status, run, webhook_url into logged
  from sealpost.deliveries where account_id = of_account and id = of_delivery for update;
  if not found then
    outcome := 'not_found';
    return;
  end if;
  if logged.status not in ('failed', 'abandoned') then
    outcome := 'not_replayable';
    return;
  end if;
  if at >= sealpost.uuid_v7_time(of_delivery) + analysis_retention then
    outcome := 'expired';
    return;
  end if;

  next_run := logged.run + 1;
  of_lane := sealpost.lane(of_account, logged.webhook_url);
  if is_open then
    update sealpost.open_deliveries
    set run = next_run, attempts_in_run = 0, run_started_at = null, interruptions = 0, due_at = at,
      wake_at = case when lease_until > at then at else at + interval '15 seconds' end
    where delivery_id = of_delivery and account_id = of_account;
  else
    insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, run, body_bytes)
    select of_delivery, of_account, of_lane, at, at + interval '15 seconds', next_run, octet_length(analysis::text)
    from sealpost.bodies where delivery_id = of_delivery;
    if not found then
      outcome := 'expired';
      next_run := null;
      return;
    end if;
  end if;
  update sealpost.deliveries set status = 'pending', reason = null, run = next_run
  where account_id = of_account and id = of_delivery;
  if opened.lease_until is null or opened.lease_until <= at then
    wakes_lane := of_lane;
  end if;
  outcome := 'replayed';
end
$$;

-- As before: starts the next run of one delivery, and wakes it.
create or replace function sealpost.replay_delivery(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, out outcome text, out next_run integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  wakes_lane bigint;
begin
  select s.outcome, s.next_run, s.wakes_lane into outcome, next_run, wakes_lane
  from sealpost.start_next_run(of_account, of_delivery, analysis_retention, at) as s;
  if wakes_lane is not null then
    perform sealpost.add_wakeups(array[of_delivery], array[wakes_lane]);
  end if;
end
$$;

-- As before, with the wake-ups of a step together.
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
  ids uuid[] := '{}';
  lanes bigint[] := '{}';
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

revoke execute on all functions in schema sealpost from public;
