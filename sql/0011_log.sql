-- The log: bulk replays of it, and its activity. What processes of the version before call keeps its signature.

-- 1. Erasing.

-- Whether nothing is left of the text. What is large is not read for it.
create function sealpost.is_erased(analysis json) returns boolean
language sql stable parallel safe
begin atomic
  select pg_column_size(analysis) < 16 and analysis::text = 'null';
end;

-- Takes the text of an analysis out of every row, with what receivers answered, which may repeat it, and ends its
-- delivery. An attempt under way is logged as interrupted, as it may arrive: in_flight. Its dispatcher, whose lease is
-- gone, records nothing of it. What an erased delivery is: succeeded, or abandoned as analysis_erased. Its id stays
-- known, whatever is published under it. its_delivery null: there is no such analysis.
create function sealpost.erase_analysis(
  of_account uuid, of_analysis text, out its_delivery uuid, out in_flight boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  its_digest bytea;
  opened sealpost.open_deliveries;
  found_open sealpost.open_deliveries;
  cut integer := 0;
begin
  in_flight := false;
  select delivery_id, digest into its_delivery, its_digest
  from sealpost.analyses where account_id = of_account and id = of_analysis for update;
  if not found or its_digest = '' then
    return;
  end if;
  -- The open row before the log's, as recording does; and once more, for a replay that came in between.
  for pass in 1 .. 2 loop
    delete from sealpost.open_deliveries where delivery_id = its_delivery returning * into found_open;
    if found then
      opened := found_open;
    end if;
    delete from sealpost.held_deliveries where account_id = of_account and delivery_id = its_delivery;
    perform from sealpost.deliveries where account_id = of_account and id = its_delivery for update;
  end loop;
  if opened.lease_token is not null and opened.lease_number is not null then
    cut := 1;
    in_flight := opened.lease_until > clock_timestamp();
    insert into sealpost.attempts
      (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, target_url)
    select opened.delivery_id, of_account, opened.lease_run, opened.lease_number, opened.lease_started_at,
      least(opened.lease_until, clock_timestamp()), 'interrupted', 'interrupted', coalesce(b.webhook_url, (
        select e.url from sealpost.endpoints as e
        where e.account_id = of_account and e.updated_at <= opened.lease_started_at))
    from sealpost.bodies as b where b.delivery_id = opened.delivery_id;
  end if;
  update sealpost.deliveries
  set status = case when status = 'succeeded' then status else 'abandoned' end,
    reason = case when status <> 'succeeded' then 'analysis_erased' end,
    attempts_count = attempts_count + cut,
    last_error_code = case cut when 1 then 'interrupted' else last_error_code end,
    last_status_code = case cut when 0 then last_status_code end
  where account_id = of_account and id = its_delivery;
  update sealpost.attempts set response_headers = null, response_excerpt = null
  where delivery_id = its_delivery and coalesce(response_headers, response_excerpt) is not null;
  update sealpost.bodies set analysis = 'null', reference = null where delivery_id = its_delivery;
  update sealpost.analyses set digest = '' where account_id = of_account and id = of_analysis;
end
$$;

-- 2. Replays.

-- Starts the next run of one delivery. Locks the open row before the log's row, as recording does. An attempt that is
-- under way keeps its lease: the run that begins here starts when that lease is given back or ends. The next run of
-- what is held, or would go to a paused endpoint, is held.
-- outcome: replayed, not_found, not_replayable (pending or succeeded), erased (or forgotten), expired (the analysis is
-- no longer readable), too_often (runs_max runs of it, whoever began them, began within the last hour:
-- RUNS_PER_HOUR_MAX of src/base/model/statuses.ts, and half of them where a user's key asks, which leaves the other
-- half for the account).
-- wakes_lane: the delivery's lane, for its wake-up; null: it needs none, because nothing was started, or is held, or
-- an attempt is under way.
create function sealpost.start_next_run(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, runs_max integer,
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
  is_held boolean := false;
  logged record;
  of_lane bigint;
begin
  select lease_until into opened
  from sealpost.open_deliveries where delivery_id = of_delivery and account_id = of_account for update;
  is_open := found;
  if not is_open then
    perform from sealpost.held_deliveries where account_id = of_account and delivery_id = of_delivery for update;
    is_held := found;
  end if;
  -- Perhaps it was let go just then.
  if not is_open and not is_held then
    select lease_until into opened
    from sealpost.open_deliveries where delivery_id = of_delivery and account_id = of_account for update;
    is_open := found;
  end if;
  select status, reason, run, webhook_url into logged
  from sealpost.deliveries where account_id = of_account and id = of_delivery for update;
  if not found then
    outcome := 'not_found';
    return;
  end if;
  if logged.status not in ('failed', 'abandoned') then
    outcome := 'not_replayable';
    return;
  end if;
  if logged.reason = 'analysis_erased' then
    outcome := 'erased';
    return;
  end if;
  if at >= sealpost.uuid_v7_time(of_delivery) + analysis_retention then
    outcome := 'expired';
    return;
  end if;
  -- One look-up, and only for what was replayed that often.
  if logged.run >= runs_max then
    perform from sealpost.attempts
    where delivery_id = of_delivery and run = logged.run - runs_max + 1 and number = 1
      and started_at > at - interval '1 hour';
    if found then
      outcome := 'too_often';
      return;
    end if;
  end if;

  next_run := logged.run + 1;
  of_lane := sealpost.lane(of_account, logged.webhook_url);
  if is_open then
    update sealpost.open_deliveries
    set run = next_run, attempts_in_run = 0, run_started_at = null, interruptions = 0, due_at = at,
      wake_at = case when lease_until > at then at else at + interval '15 seconds' end
    where delivery_id = of_delivery and account_id = of_account;
  elsif is_held then
    update sealpost.held_deliveries
    set run = next_run, attempts_in_run = 0, interruptions = 0, wait_s = 0, run_age_s = null
    where account_id = of_account and delivery_id = of_delivery;
  elsif sealpost.is_paused(of_account, of_lane) then
    insert into sealpost.held_deliveries (account_id, delivery_id, run, body_bytes)
    select of_account, of_delivery, next_run, octet_length(coalesce(reference, analysis::text))
    from sealpost.bodies where delivery_id = of_delivery;
    is_held := found;
    if not found then
      outcome := 'expired';
      next_run := null;
      return;
    end if;
  else
    insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, run, body_bytes)
    select of_delivery, of_account, of_lane, at, at + interval '15 seconds', next_run,
      octet_length(coalesce(reference, analysis::text))
    from sealpost.bodies where delivery_id = of_delivery;
    if not found then
      outcome := 'expired';
      next_run := null;
      return;
    end if;
  end if;
  update sealpost.deliveries set status = 'pending', reason = null, run = next_run
  where account_id = of_account and id = of_delivery;
  update sealpost.forgetting set look_at = at where delivery_id = of_delivery;
  if not is_held and (opened.lease_until is null or opened.lease_until <= at) then
    wakes_lane := of_lane;
  end if;
  outcome := 'replayed';
end
$$;

-- Starts the next run of one delivery, and wakes it. Of several who replay it at once, those who come too late keep no
-- lock on its row: the winner's wake-up would pass over a locked row, and wait 15 s for the leader.
create function sealpost.replay_delivery(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, runs_max integer,
  out outcome text, out next_run integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  wakes_lane bigint;
begin
  perform from sealpost.deliveries
  where account_id = of_account and id = of_delivery and status not in ('failed', 'abandoned');
  if found then
    -- Its text may be gone by now.
    outcome := case when '' = (
      select digest from sealpost.analyses where account_id = of_account and id = (
        select analysis_id from sealpost.deliveries where account_id = of_account and id = of_delivery)
    ) then 'erased' else 'not_replayable' end;
    return;
  end if;
  -- The end of a block by an exception gives back the locks that were taken in it.
  begin
    select s.outcome, s.next_run, s.wakes_lane into outcome, next_run, wakes_lane
    from sealpost.start_next_run(of_account, of_delivery, analysis_retention, at, runs_max) as s;
    if outcome = 'not_replayable' then
      raise exception using errcode = 'SP000';
    end if;
  exception when sqlstate 'SP000' then
    return;
  end;
  if wakes_lane is not null then
    perform sealpost.add_wakeups(array[of_delivery], array[wakes_lane]);
  end if;
end
$$;

-- For the version before, which may be using it now: so it is replaced, and never dropped.
create or replace function sealpost.replay_delivery(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz,
  out outcome text, out next_run integer
)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select * from sealpost.replay_delivery(of_account, of_delivery, analysis_retention, at, 60)
$$;

-- The running replays that may go on, in the order of their turns, and how many items of each: as many as its pace
-- allows since its last step (paced_from; two seconds' worth at most, or a leader that was away would bring a flood),
-- at most items_max in all. None of accounts that have moved, or of which not all is here yet. Max-min fair (whoever
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
    from sealpost.replays as r
    join sealpost.accounts as a on a.id = r.account_id and a.moved_to is null
    where r.status = 'running'
    for update of r skip locked
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

-- One step of the running bulk replays: at most items_max items, in these shares. A step is one transaction, so a
-- crash repeats at most what it had not committed. What it starts is woken together, 50 deliveries to a wake-up: a
-- wake-up for each would be in the way of everybody's first attempts. Returns how many items had their turn.
create function sealpost.advance_replays(analysis_retention interval, at timestamptz, items_max integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  replay record;
  item record;
  turn record;
  runs_max integer;
  taken integer;
  started integer;
  total integer := 0;
  ids uuid[] := '{}';
  lanes bigint[] := '{}';
begin
  for replay in select * from sealpost.replay_shares(at, items_max)
  loop
    exit when total >= items_max;
    select case when k.user_id is null then 60 else 30 end into runs_max
    from sealpost.replays as r left join sealpost.api_keys as k on k.id = r.created_by_key_id where r.id = replay.id;
    taken := 0;
    started := 0;
    for item in
      select position, delivery_id from sealpost.replay_items
      where replay_id = replay.id and outcome is null
      order by position
      limit least(replay.allowed, items_max - total)
    loop
      select * into turn
      from sealpost.start_next_run(replay.account_id, item.delivery_id, analysis_retention, at, runs_max);
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

-- For dispatchers of the version before: a step a second, and one of what is held.
create or replace function sealpost.advance_replays(analysis_retention interval, at timestamptz) returns integer
language sql volatile
begin atomic
  select sealpost.advance_replays(analysis_retention, at, 1000) + holds.released + holds.expired
  from sealpost.advance_holds(analysis_retention, at, 100, 1000) as holds;
end;

-- How the replayed deliveries of one replay stand now: `failed` have ended without a success, and those that are in
-- neither count have an attempt to come. Of these, `failing` have failed at their last one, most of them by these
-- errors. Up to 100,000 lookups by key; anything else would read the log. The version before has count_replay.
create function sealpost.replay_standing(
  of_replay uuid, of_account uuid,
  out succeeded integer, out failed integer, out failing integer, out failing_causes json
)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  with standing as materialized (
    select d.status, d.last_error_code as error_code, count(*)::integer as deliveries
    from sealpost.replay_items i
    -- The offset keeps this a lookup for each item, whatever the planner thinks of the account.
    cross join lateral (
      select status, last_error_code from sealpost.deliveries
      where account_id = of_account and id = i.delivery_id offset 0) as d
    where i.replay_id = of_replay and i.outcome = 'replayed'
    group by 1, 2
  )
  select coalesce(sum(deliveries) filter (where status = 'succeeded'), 0)::integer,
    coalesce(sum(deliveries) filter (where status = 'abandoned'), 0)::integer,
    coalesce(sum(deliveries) filter (where status = 'failed'), 0)::integer,
    (select coalesce(json_agg(cause), '[]') from (
      select error_code, deliveries from standing where status = 'failed' and error_code is not null
      order by deliveries desc, error_code limit 5) as cause)
  from standing
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
    select from sealpost.open_deliveries as o where o.delivery_id = i.delivery_id and o.account_id = of_account
    union all
    select from sealpost.held_deliveries as h where h.account_id = of_account and h.delivery_id = i.delivery_id
    union all
    select from sealpost.parked_deliveries as p where p.account_id = of_account and p.delivery_id = i.delivery_id
    limit 1
  ) as d
  where i.replay_id = of_replay and i.outcome = 'replayed'
$$;

-- Takes the one replay whose turn it is to be counted for the list, and says when it is counted again. The older or
-- larger a replay, the more seldom: every 5 seconds at first, later after a tenth of its age, and never sooner than a
-- millisecond for each of its items, some 200 times what counting takes. One that is delivering is counted every
-- minute, or it would be done for up to two hours before it said so. It is a transaction of its own, so that one that
-- cannot be counted in time lets the others have their turns. Null: nobody's turn.
create or replace function sealpost.take_replay_to_count(at timestamptz) returns uuid
language sql
set search_path = pg_catalog, pg_temp
as $$
  update sealpost.replays
  set count_at = at + greatest(
    interval '5 seconds',
    case when status = 'delivering' then least((at - created_at) / 10, interval '1 minute')
      else (at - created_at) / 10 end,
    replayed * interval '1 millisecond')
  where id = (
    select id from sealpost.replays where count_at <= at order by count_at, id limit 1 for update skip locked)
  returning id
$$;

-- A replay that is delivering is done when none of its deliveries has an attempt to come. A run has ended a day or so
-- after it began; eight days after a replay has, nothing of it changes.
create or replace function sealpost.store_count_of_replay(of_replay uuid, at timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  counted record;
begin
  select c.*, sealpost.count_replay_open(r.id, r.account_id) as open into counted
  from sealpost.replays as r, lateral sealpost.replay_standing(r.id, r.account_id) as c
  where r.id = of_replay;
  update sealpost.replays as r
  set succeeded = counted.succeeded, failed = counted.failed, failing = counted.failing,
    failing_causes = counted.failing_causes,
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

-- What an account's bulk replays take, or those of one of its users (null: all), at 256 bytes for each delivery: those
-- that were not started go when a replay is cancelled.
create function sealpost.replay_bytes(of_account uuid, of_user uuid) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(sum(1024 + 16 * coalesce(cardinality(r.space_ids), 0)
    + 256 * case r.status when 'cancelled' then r.replayed + r.skipped else r.matched end::bigint), 0)::bigint
  from sealpost.replays as r where r.account_id = of_account and (of_user is null or r.created_by_key_id in (
    select k.id from sealpost.api_keys as k where k.account_id = of_account and k.user_id = of_user));
end;

-- 3. Activity: how many attempts ended when, of whom, where and how, added up by the leader while they end, so that a
-- month of an account, or everybody's last hour, is read in milliseconds.

-- bucket      start of five minutes; of an hour where sealpost.fold_activity has been. Every attempt is in one row.
-- target_host lower case, without a port; '(other)' beyond 50 of an account and bucket, and where it is not known
-- first_at, last_at  when the first and the last of them ended
create table sealpost.activity (
  account_id uuid not null,
  bucket timestamptz not null,
  target_host text collate "C" not null,
  outcome text not null check (
    outcome in
      ('succeeded', 'rejected', 'timed_out', 'unreachable', 'tls_failed', 'target_refused', 'interrupted')),
  error_code text,
  attempts integer not null,
  duration_ms bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  constraint activity_key unique nulls not distinct (account_id, bucket, target_host, outcome, error_code)
) with (fillfactor = 70, autovacuum_analyze_threshold = 100000);
create index activity_bucket on sealpost.activity (bucket, account_id);
create index activity_target_host on sealpost.activity (target_host, account_id);

-- What is written down late, to be counted when it is written: interrupted attempts end when their lease did, which may
-- be hours back, and an outcome may wait for a database that was away.
create table sealpost.late_attempts (
  account_id uuid not null,
  target_url text,
  outcome text not null check (
    outcome in
      ('succeeded', 'rejected', 'timed_out', 'unreachable', 'tls_failed', 'target_refused', 'interrupted')),
  error_code text,
  started_at timestamptz not null,
  ended_at timestamptz not null
);

-- Its one row: everything that ended before counted_to is counted, but for late_attempts. fold_at: the hour that is
-- being made of five minutes; of its accounts, those up to folded_account have been.
create table sealpost.activity_state (
  only_row boolean primary key default true check (only_row),
  counted_to timestamptz not null,
  fold_at timestamptz not null,
  folded_account uuid not null default '00000000-0000-0000-0000-000000000000'
);

create function sealpost.note_late_attempt() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  insert into sealpost.late_attempts (account_id, target_url, outcome, error_code, started_at, ended_at)
  values (new.account_id, new.target_url, new.outcome, new.error_code, new.started_at, new.ended_at);
  return null;
end
$$;

-- One step: counts what ended from counted_to to `lag` ago, at most `span_max` of it, and at most late_max of what was
-- written late. counted_to null: somebody else is at it, who does the same. is_behind: there is more.
--
-- That nothing is counted twice or missed rests on one statement seeing one state. A late attempt that it sees among
-- the others is counted there, and goes; what it sees only later is counted as late.
create function sealpost.count_activity(
  lag interval, span_max interval, late_max integer, out counted_to timestamptz, out is_behind boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  hosts_max constant integer := 50;
  origin constant timestamptz := '2000-01-01 00:00Z';
  upto_max constant timestamptz := clock_timestamp() - lag;
  since timestamptz;
  upto timestamptz;
  fold_to timestamptz;
  taken integer;
begin
  is_behind := false;
  select s.counted_to, s.fold_at into since, fold_to from sealpost.activity_state as s for update skip locked;
  if since is null then
    return;
  end if;
  upto := least(since + span_max, upto_max);
  -- The clock was set back.
  if upto <= since then
    counted_to := since;
    return;
  end if;

  with late as (
    delete from sealpost.late_attempts
    where ended_at >= since and ended_at < upto
      or ctid = any (array(select ctid from sealpost.late_attempts where ended_at < since limit late_max))
    returning *
  ), ended as (
    select account_id, target_url, outcome, error_code, started_at, ended_at
    from sealpost.attempts where ended_at >= since and ended_at < upto
    union all
    select account_id, target_url, outcome, error_code, started_at, ended_at
    from late where ended_at < since
  ), by_url as (
    select account_id,
      date_bin(case when ended_at < fold_to then interval '1 hour' else interval '5 minutes' end, ended_at, origin)
        as bucket,
      target_url, outcome, error_code, count(*) as attempts,
      sum(greatest(extract(epoch from ended_at - started_at) * 1000, 0)) as duration_ms,
      min(ended_at) as first_at, max(ended_at) as last_at
    from ended
    group by 1, 2, 3, 4, 5
  ), named as (
    select *,
      coalesce(
        nullif(left(substring(lower(target_url collate "C") from '^[^:]*://(\[[^]]*\]|[^/?:]*)'), 255), ''), '(other)'
      ) as target_host
    from by_url
  ), places as (
    select account_id, bucket from named group by account_id, bucket
  ), known as (
    select p.account_id, p.bucket, k.target_host
    from places as p
    -- The offset keeps this a lookup for each.
    cross join lateral (
      select distinct target_host from sealpost.activity
      where account_id = p.account_id and bucket = p.bucket and target_host <> '(other)' offset 0
    ) as k
  ), known_of as (
    select account_id, bucket, count(*) as hosts from known group by account_id, bucket
  ), fresh as (
    select account_id, bucket, target_host,
      row_number() over (partition by account_id, bucket order by sum(attempts) desc, target_host)
        + coalesce(max(known_of.hosts), 0) as place
    from named
    left join known_of using (account_id, bucket)
    where target_host <> '(other)'
      and not exists (
        select from known
        where known.account_id = named.account_id and known.bucket = named.bucket
          and known.target_host = named.target_host)
    group by account_id, bucket, target_host
  ), placed as (
    select account_id, bucket,
      case when fresh.place > hosts_max then '(other)' else target_host end as target_host,
      outcome, error_code, attempts, duration_ms, first_at, last_at
    from named
    left join fresh using (account_id, bucket, target_host)
  )
  insert into sealpost.activity as a
    (account_id, bucket, target_host, outcome, error_code, attempts, duration_ms, first_at, last_at)
  select account_id, bucket, target_host, outcome, error_code, sum(attempts), sum(duration_ms), min(first_at),
    max(last_at)
  from placed
  group by account_id, bucket, target_host, outcome, error_code
  on conflict (account_id, bucket, target_host, outcome, error_code) do update
  set
    attempts = a.attempts + excluded.attempts,
    duration_ms = a.duration_ms + excluded.duration_ms,
    first_at = least(a.first_at, excluded.first_at),
    last_at = greatest(a.last_at, excluded.last_at);

  update sealpost.activity_state as s set counted_to = upto;
  counted_to := upto;
  is_behind := upto < upto_max
    or exists (select from sealpost.late_attempts where ended_at < upto limit 1);
end
$$;

-- One step of making hours of five minutes: at most accounts_max accounts of one hour. An hour has 50 hosts of its own,
-- those with the most attempts. False: no hour is over for `after`, or somebody else is at it.
create function sealpost.fold_activity(after interval, accounts_max integer) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  hosts_max constant integer := 50;
  state sealpost.activity_state;
  fold_end timestamptz;
  accounts uuid[];
begin
  select * into state from sealpost.activity_state for update skip locked;
  fold_end := state.fold_at + interval '1 hour';
  if fold_end is null or fold_end > least(state.counted_to, clock_timestamp() - after) then
    return false;
  end if;
  accounts := array(
    select distinct account_id from sealpost.activity
    where bucket >= state.fold_at and bucket < fold_end and account_id > state.folded_account
    order by account_id limit accounts_max);

  -- All are deleted before the first is inserted, because grouping needs all.
  with gone as (
    delete from sealpost.activity
    where bucket >= state.fold_at and bucket < fold_end and account_id = any (accounts)
    returning *
  ), ranked as (
    select account_id, target_host,
      row_number() over (partition by account_id order by sum(attempts) desc, target_host) as place
    from gone where target_host <> '(other)' group by account_id, target_host
  ), placed as (
    select gone.*, case when place > hosts_max then '(other)' else target_host end as hour_host
    from gone left join ranked using (account_id, target_host)
  )
  insert into sealpost.activity
    (account_id, bucket, target_host, outcome, error_code, attempts, duration_ms, first_at, last_at)
  select account_id, state.fold_at, hour_host, outcome, error_code, sum(attempts), sum(duration_ms), min(first_at),
    max(last_at)
  from placed
  group by account_id, hour_host, outcome, error_code;

  if cardinality(accounts) < accounts_max then
    update sealpost.activity_state
    set fold_at = fold_end, folded_account = '00000000-0000-0000-0000-000000000000';
  else
    update sealpost.activity_state set folded_account = accounts[accounts_max];
  end if;
  return true;
end
$$;

revoke execute on all functions in schema sealpost from public;

-- The partitions' own table is taken first: whoever writes through it has several days, which would cross with ours.
lock table only sealpost.attempts in share row exclusive mode;

-- What the counting finds new attempts by: rows come in nearly the order of their ends, so a summary of each 256 kB is
-- enough, at a thousandth of a b-tree's size. Made day by day, today's last: reading a day's attempts keeps those
-- waiting who record some of it.
create index attempts_ended on only sealpost.attempts using brin (ended_at)
  with (pages_per_range = 32, autosummarize = on);
do $$
declare
  child name;
begin
  for child in
    select relname
    from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = 'sealpost.attempts'::regclass
    order by right(relname, 8) <= to_char(now() at time zone 'UTC', 'YYYYMMDD'), relname
  loop
    execute format(
      'create index %I on sealpost.%I using brin (ended_at) with (pages_per_range = 32, autosummarize = on)',
      child || '_ended', child);
    execute format('alter index sealpost.attempts_ended attach partition sealpost.%I', child || '_ended');
    execute format('alter table sealpost.%I alter column response_headers set statistics 0, '
      || 'alter column response_excerpt set statistics 0', child);
  end loop;
end
$$;
-- What receivers answered may repeat what is erased later: statistics keep none of it. Partitions to come are made so.
alter table sealpost.attempts
  alter column response_headers set statistics 0, alter column response_excerpt set statistics 0;

-- A trigger, because processes of the version before write attempts, too. Whoever takes no more than count_activity's
-- lag, less these 5 seconds, to commit an attempt has it counted by when it ended, and everybody else by this.
create trigger note_late_attempt after insert on sealpost.attempts
for each row when (new.ended_at < now() - interval '5 seconds')
execute function sealpost.note_late_attempt();

-- A log that is there already is counted from its beginning.
insert into sealpost.activity_state (counted_to, fold_at)
select case when exists (select from sealpost.attempts) then now() - interval '30 days' else now() end,
  date_bin('1 hour', now() - interval '48 hours', '2000-01-01 00:00Z');
