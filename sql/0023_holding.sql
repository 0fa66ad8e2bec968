-- Holding: while an endpoint is paused, what would go there waits in a table of its own, where no dispatcher finds it,
-- of whichever version: claims, promoting, gauges and alerts read open_deliveries. A delivery that has an attempt to
-- come is in one of the two. (Rows that stay where they are, due in a thousand years, were the other way: a tenant's
-- millions of held rows would have been in the way of everybody's claims, sweeps and vacuums.)

-- paused_at    null: not paused
-- gather_at    when its waiting deliveries are (next) looked for; null: they have all been found
-- gather_from  from which id on
alter table sealpost.endpoints
  add column paused_at timestamptz,
  add column gather_at timestamptz,
  add column gather_from uuid;
create index endpoints_paused on sealpost.endpoints (account_id) where paused_at is not null;
create index endpoints_gather on sealpost.endpoints (gather_at) where gather_at is not null;

-- wait_s     seconds until its next attempt would have been due when the endpoint was paused; 0: it was due
-- run_age_s  seconds since the run's first attempt, at that moment; null before it
-- Both clocks stand still. The rest is as in open_deliveries. Ids are in order of age.
create table sealpost.held_deliveries (
  account_id uuid not null,
  delivery_id uuid not null,
  wait_s float8 not null default 0,
  run_age_s float8,
  run integer not null default 1,
  attempts_in_run integer not null default 0,
  interruptions integer not null default 0,
  body_bytes integer not null,
  primary key (account_id, delivery_id)
) with (autovacuum_vacuum_scale_factor = 0.05);

-- Whether what is in this lane is held. A test event that is sent while the endpoint is paused has a lane of its own.
create function sealpost.is_paused(of_account uuid, of_lane bigint) returns boolean
language sql stable
begin atomic
  select exists (
    select from sealpost.endpoints as e
    where e.account_id = of_account and e.paused_at is not null and sealpost.lane(of_account, null) = of_lane);
end;

-- Takes these out of the dispatchers' reach, as far as their endpoint is paused and nobody has them. The caller has
-- locked them. What was cut in quarantine stays: the next claim ends it without an attempt.
create function sealpost.hold(delivery_ids uuid[]) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  held integer;
begin
  with taken as (
    delete from sealpost.open_deliveries as o
    using unnest(delivery_ids) as wanted (id), sealpost.endpoints as e
    where o.delivery_id = any (array[wanted.id])
      and e.account_id = any (array[o.account_id]) and e.paused_at is not null
      and o.lane = sealpost.lane(o.account_id, null)
      and o.lease_token is null and (o.lease_alone and o.lease_run = o.run) is not true
    returning o.*, e.paused_at
  )
  insert into sealpost.held_deliveries as h
    (account_id, delivery_id, wait_s, run_age_s, run, attempts_in_run, interruptions, body_bytes)
  -- A run that has not begun is due at once: perhaps it was replayed after the pause.
  select account_id, delivery_id,
    case when run_started_at is null then 0 else greatest(extract(epoch from due_at - paused_at), 0) end,
    extract(epoch from paused_at - case when run_started_at is not null then least(run_started_at, paused_at) end),
    run, attempts_in_run, interruptions, body_bytes
  from taken
  on conflict (account_id, delivery_id) do update
  set wait_s = excluded.wait_s, run_age_s = excluded.run_age_s, run = excluded.run,
    attempts_in_run = excluded.attempts_in_run, interruptions = excluded.interruptions;
  get diagnostics held = row_count;
  return held;
end
$$;

-- What a claim has leased of a paused endpoint: published or due before anybody saw that it is paused. No attempt was
-- made. If the endpoint has been resumed meanwhile, it stays due.
create function sealpost.hold_leased(delivery_ids uuid[], token uuid, at timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  freed uuid[];
begin
  with mine as (
    select delivery_id from sealpost.open_deliveries
    where delivery_id = any (delivery_ids) and lease_token = token
    order by delivery_id
    for update
  ), given_back as (
    update sealpost.open_deliveries as o
    set lease_token = null, lease_until = null, lease_number = null, lease_alone = false, wake_at = at,
      run_started_at = nullif(o.run_started_at, o.lease_started_at)
    from mine
    where o.delivery_id = any (array[mine.delivery_id])
    returning o.delivery_id
  )
  select array_agg(delivery_id) into freed from given_back;
  return sealpost.hold(coalesce(freed, '{}'));
end
$$;

-- Holds what an endpoint's pause finds waiting from `from_id` on, in open_deliveries' own order: at most looks_max
-- rows of everybody's are looked at. An index by account would cost every publish. next_id: where more may follow;
-- null: that was all. What is in flight, or locked by a claim, ends as if nothing had happened; what of it fails is
-- held when it is due again (sealpost.promote), or found by the second look a minute later.
create function sealpost.gather(of_account uuid, from_id uuid, looks_max integer, out next_id uuid)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  its_lane constant bigint := sealpost.lane(of_account, null);
  found_ids uuid[];
begin
  with looked as materialized (
    select ctid as place, delivery_id, account_id, lane, lease_token
    from sealpost.open_deliveries
    where delivery_id >= from_id
    order by delivery_id
    limit looks_max
  ), waiting as (
    select o.delivery_id
    from looked join sealpost.open_deliveries as o on o.ctid = looked.place
    where looked.account_id = of_account and looked.lane = its_lane and looked.lease_token is null
      and o.delivery_id = looked.delivery_id and o.lease_token is null
    for update of o skip locked
  )
  select (select array_agg(delivery_id) from waiting),
    (select delivery_id from looked order by delivery_id offset looks_max - 1 limit 1)
  into found_ids, next_id;
  perform sealpost.hold(coalesce(found_ids, '{}'));
end
$$;

-- Nothing more of the account's endpoint is started from now on. What waits is gathered at once as far as it is found
-- among looks_max rows, the rest by the leader. False: there is no endpoint.
create function sealpost.pause_endpoint(of_account uuid, looks_max integer) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  next_id uuid;
begin
  update sealpost.endpoints
  set paused_at = now(), gather_at = now(), gather_from = null
  where account_id = of_account and paused_at is null;
  if not found then
    return exists (select from sealpost.endpoints where account_id = of_account);
  end if;
  next_id := sealpost.gather(of_account, '00000000-0000-0000-0000-000000000000', looks_max);
  update sealpost.endpoints
  set gather_from = next_id, gather_at = case when next_id is null then now() + interval '1 minute' else now() end
  where account_id = of_account;
  return true;
end
$$;

-- What is held goes out from now on, oldest first, at the leader's pace (sealpost.advance_holds). False: no endpoint.
create function sealpost.resume_endpoint(of_account uuid) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update sealpost.endpoints set paused_at = null, gather_at = null, gather_from = null where account_id = of_account;
  return found;
end
$$;

-- One step of the leader. Gathers for endpoints that were just paused; abandons held deliveries whose analysis has
-- expired; lets go what is held of endpoints that are no longer paused: oldest first, at most account_max of an
-- account and rows_max in all, in equal shares. The pace is the leader's: a step has no memory, so a leader that was
-- away brings no flood. released and expired: how many; is_gathering: there is more to be looked through.
--
-- Whose deliveries are held is read from the table itself, a probe for each account: a publisher whose transaction saw
-- the pause may commit long after the resume.
create function sealpost.advance_holds(
  analysis_retention interval, at timestamptz, account_max integer, rows_max integer,
  out released integer, out expired integer, out is_gathering boolean
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
  looks_max constant integer := 10000;
  gathered_max constant integer := 5;
  -- Nobody's receiver is behind these, but whoever publishes much into a pause makes as many.
  expired_max constant integer := 1000;
  kept_from constant uuid := sealpost.uuid_v7_floor(at - analysis_retention);
  paused record;
  holder record;
  next_id uuid;
  ended integer;
  let_go uuid[];
  ids uuid[] := '{}';
  lanes bigint[] := '{}';
begin
  released := 0;
  expired := 0;
  is_gathering := false;
  for paused in
    select account_id, paused_at, gather_at, gather_from from sealpost.endpoints
    where gather_at <= at
    order by gather_at
    limit gathered_max
    for update skip locked
  loop
    next_id := sealpost.gather(
      paused.account_id, coalesce(paused.gather_from, '00000000-0000-0000-0000-000000000000'), looks_max);
    is_gathering := is_gathering or next_id is not null;
    -- A minute after the pause, what was in flight has ended: that look is the last.
    update sealpost.endpoints
    set gather_from = next_id,
      gather_at = case
        when next_id is not null then at
        when paused.gather_at < paused.paused_at + interval '1 minute' then paused.paused_at + interval '1 minute'
      end
    where account_id = paused.account_id;
  end loop;

  for holder in
    with recursive accounts as (
      (select h.account_id, h.delivery_id from sealpost.held_deliveries as h order by 1, 2 limit 1)
      union all
      select next.account_id, next.delivery_id
      from accounts cross join lateral (
        select h.account_id, h.delivery_id from sealpost.held_deliveries as h
        where h.account_id > accounts.account_id order by 1, 2 limit 1
      ) as next
    ), turns as (
      select a.account_id, a.delivery_id < kept_from as has_expired, e.paused_at is null as is_let_go
      from accounts as a left join sealpost.endpoints as e on e.account_id = any (array[a.account_id])
    )
    select turns.*, greatest(1, least(account_max, rows_max / count(*) over ()))::integer as share
    from turns where has_expired or is_let_go
    order by random()
    limit rows_max
  loop
    if holder.has_expired then
      with gone as (
        select delivery_id from sealpost.held_deliveries
        where account_id = holder.account_id and delivery_id < kept_from
        order by delivery_id
        limit expired_max - expired
        for update skip locked
      ), taken as (
        delete from sealpost.held_deliveries as h
        using gone
        where h.account_id = holder.account_id and h.delivery_id = any (array[gone.delivery_id])
        returning h.delivery_id
      )
      update sealpost.deliveries as d set status = 'abandoned', reason = 'analysis_expired'
      from taken
      where d.account_id = holder.account_id and d.id = any (array[taken.delivery_id])
        and d.status = any (array['pending', 'failed']);
      get diagnostics ended = row_count;
      expired := expired + ended;
    end if;
    continue when not holder.is_let_go;

    with chosen as (
      select delivery_id from sealpost.held_deliveries
      where account_id = holder.account_id and delivery_id >= kept_from
      order by delivery_id
      limit holder.share
      for update skip locked
    ), taken as (
      delete from sealpost.held_deliveries as h
      using chosen
      where h.account_id = holder.account_id and h.delivery_id = any (array[chosen.delivery_id])
      returning h.*
    ), opened as (
      insert into sealpost.open_deliveries (
        delivery_id, account_id, lane, due_at, wake_at, run_started_at, run, attempts_in_run, interruptions, body_bytes)
      select delivery_id, account_id, sealpost.lane(account_id, null),
        at + wait_s * interval '1 second',
        at + case when wait_s = 0 then 15 else wait_s end * interval '1 second',
        at - run_age_s * interval '1 second', run, attempts_in_run, interruptions, body_bytes
      from taken
      on conflict (delivery_id) do nothing
      returning delivery_id, due_at
    )
    select array_agg(delivery_id order by delivery_id) filter (where due_at <= at),
      released + count(*)
    into let_go, released
    from opened;
    ids := ids || let_go;
    lanes := lanes || array_fill(sealpost.lane(holder.account_id, null), array[coalesce(cardinality(let_go), 0)]);
  end loop;
  perform sealpost.add_wakeups(ids, lanes);
end
$$;

-- As before, but for paused endpoints: takes nothing of them.
create or replace function sealpost.take_let_go(
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
  if sealpost.is_paused(of_account, of_lane) then
    ids := '{}';
    return;
  end if;
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

revoke execute on all functions in schema sealpost from public;
