-- What delivery needs: shares, publishing, promoting, holding. Functions that processes of the version before call
-- keep their signatures, and work for them.

-- 1. Tables beside open_deliveries.

-- Receivers that have answered at some time. A dispatcher that does not know a lane yet looks here before it takes the
-- receiver for one that may be dead: a deploy with thousands of healthy receivers goes on at full speed.
-- Bounded per account by sealpost.forget_answered_lanes, so that nobody's flood of names evicts a neighbour's.
create table sealpost.answered_lanes (
  account_id uuid not null,
  lane bigint not null,
  answered_at timestamptz not null default now(),
  primary key (account_id, lane)
) with (autovacuum_vacuum_scale_factor = 0.1);

-- Receivers: an account's origins. One is proven while it has answered 2xx to a signed POST in the last 30 days; until
-- then its attempts take turns (sealpost.take_turn), so that nobody is flooded who did not ask for webhooks.
--
-- proven_since  since when; waiting for that has used up none of a run's window
-- next_at       when it may be asked for a turn again; null: proven
-- busy_until    an attempt is under way until then at the latest
-- address       where that one went, or would have gone
--
-- An origin that is an address is none of these, and only has a next_at: when attempts of the account for which it is a
-- further address may have a turn there again, while others wait.
create table sealpost.receivers (
  account_id uuid not null,
  origin text not null,
  proven_at timestamptz,
  proven_since timestamptz,
  next_at timestamptz,
  busy_until timestamptz,
  address text,
  primary key (account_id, origin)
) with (autovacuum_vacuum_scale_factor = 0.1);
create index receivers_waiting on sealpost.receivers (address, next_at) where next_at is not null;
create index receivers_resting on sealpost.receivers (account_id, next_at) where next_at is not null;
create index receivers_old on sealpost.receivers (next_at) where next_at is not null;
create index receivers_proven on sealpost.receivers (proven_at) where next_at is null;

-- When the next unproven receiver at an address may have an attempt, of whichever account. The address is one of IPv4,
-- a /64 of IPv6, or a host name where a proxy looks names up.
create table sealpost.receiver_addresses (
  address text primary key,
  next_at timestamptz not null
);

-- URLs whose receiver wants nothing from the account: it has answered 410 with `webhook-refuse: 1`. Lifted while it was
-- lifted after that.
create table sealpost.refusals (
  account_id uuid not null,
  url text not null,
  refused_at timestamptz not null default now(),
  lifted_at timestamptz,
  primary key (account_id, url)
);

-- While an endpoint is paused, what would go there waits in a table of its own, where no dispatcher finds it, of
-- whichever version: claims, promoting, gauges and alerts read open_deliveries. (Rows that stay where they are, due in
-- a thousand years, were the other way: a tenant's millions of held rows would have been in the way of everybody's
-- claims, sweeps and vacuums.)
--
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

-- 2. Locks that no other role can hold against us. Any role that connects can take an advisory lock, and sees in
-- pg_locks which ones we take; locking a table or a row takes rights on it, which only the owner has.

-- Locked as a whole by the cluster's one quarantine process (src/base/database/table-lock.ts).
create table sealpost.quarantine_lock ();

-- Its one row is locked by the transaction that tells the dispatchers.
create table sealpost.announcing (
  only_row boolean primary key default true check (only_row)
);
insert into sealpost.announcing default values;

-- Tells the dispatchers at the very end of a transaction, unless another one that tells them is just committing: they
-- look again a few milliseconds later (src/delivery/wakeups.ts), and now and then without being told. The first job of
-- a transaction is told with what it wakes, if that is a single delivery: it can be claimed before its job is fetched.
-- With the owner's rights, because until PostgreSQL 18 a deferred trigger runs with those of whoever commits.
create or replace function sealpost.announce_wakeups() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from sealpost.announcing for update skip locked;
  if not found then
    return null;
  end if;
  if current_setting('sealpost.told', true) is not distinct from pg_current_xact_id()::text
    or json_typeof(new.payload -> 'lanes') is distinct from 'array' or json_array_length(new.payload -> 'lanes') <> 1
  then
    perform pg_notify('jobs:insert', '{"count":1}');
  else
    perform set_config('sealpost.told', pg_current_xact_id()::text, true);
    perform pg_notify('jobs:insert', format('{"count":1,"job":"%s","wakes":%s}', new.id, new.payload));
  end if;
  return null;
end
$$;

-- 3. Ids and lanes. Names in functions have to mean what they mean here, whoever calls and whatever stands in
-- `public`. A SET clause would keep functions in plain SQL from being inlined; the text of a `begin atomic` is read
-- once, now.

-- Inlined only where its text is immutable like the function: what is extracted from a time with a zone is not. A call
-- of its own took 25 to 40 microseconds.
create or replace function sealpost.uuid_v7_prefix(at timestamptz) returns bytea
language sql immutable parallel safe
begin atomic
  select substring(int8send((extract(epoch from at at time zone 'UTC') * 1000000)::bigint / 1000) from 3)
    || substring(int4send(
      (x'7000'::int
        | (((extract(epoch from at at time zone 'UTC') * 1000000)::bigint % 1000) * 4096 / 1000)::int)) from 3);
end;
create or replace function sealpost.uuid_v7_of(prefix bytea) returns uuid
language sql volatile parallel safe
begin atomic
  select encode(overlay(uuid_send(gen_random_uuid()) placing prefix from 1), 'hex')::uuid;
end;
create or replace function sealpost.uuid_v7(at timestamptz default clock_timestamp()) returns uuid
language sql volatile parallel safe
begin atomic
  select sealpost.uuid_v7_of(sealpost.uuid_v7_prefix(at));
end;

-- The smallest UUIDv7 of a moment: the bound of a partition, of a time filter, of a retention sweep.
create or replace function sealpost.uuid_v7_floor(at timestamptz) returns uuid
language sql immutable parallel safe
begin atomic
  select encode(
    substring(int8send(floor(extract(epoch from at) * 1000)::bigint) from 3) || '\x70008000000000000000'::bytea,
    'hex')::uuid;
end;

-- When a UUIDv7 was made, to the millisecond: a delivery's created_at is read from its id and stored nowhere else.
create or replace function sealpost.uuid_v7_time(id uuid) returns timestamptz
language sql immutable parallel safe
begin atomic
  select to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0);
end;

-- The origin of a target's URL, as its text says it, in lower case and without :443. An internationalized name stays as
-- it is spelled.
create function sealpost.origin(url text) returns text
language sql immutable parallel safe
begin atomic
  select 'https://' || regexp_replace(lower(split_part(split_part(url, '/', 3), '?', 1) collate "C"), ':443$', '');
end;

-- Whether that origin is as an attempt's would be: of a host that is spelled otherwise (not in ASCII, percent-encoded,
-- a number) nobody knows here.
create function sealpost.is_normalized_origin(origin text) returns boolean
language sql immutable parallel safe
begin atomic
  select origin ~ '^https://([a-z0-9_-]+[.])*[a-z][a-z0-9_-]*[.]?(:[1-9][0-9]*)?$';
end;

-- Who waits for whom: the account and the origin of its webhook_url, or the account's endpoint.
-- A hash collision only makes two lanes share their turns.
create or replace function sealpost.lane(account_id uuid, webhook_url text) returns bigint
language sql immutable parallel safe
begin atomic
  select hashtextextended(
    account_id::text || coalesce(lower(substring(webhook_url from '^[^:]*://[^/?]*')), ' endpoint'), 0);
end;

-- 4. Wake-ups.

-- Adds the wake-ups of some deliveries, 50 to a job, with each delivery's account, so that a dispatcher shares by
-- account. The job is a wake-up only; the row is the truth. Its max_attempts is the largest there is, because
-- graphile-worker never runs a job again that has used them up.
--
-- run_at: now, not when the transaction began, so that a look may begin where the last one ended (`JobsBound` in
-- src/base/database/graphile-worker.ts).
--
-- The rows are written here and not by graphile_worker.add_jobs, which notifies in every transaction: PostgreSQL lets
-- transactions that notify commit only one after the other, each waiting for the disk of the one before. Where a
-- flush took 2 ms, 24 pipelines published 380 transactions a second through add_jobs, and 2,100 like this.
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
    insert into graphile_worker._private_jobs (task_id, run_at, payload, max_attempts)
    select
      deliver,
      clock_timestamp(),
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

-- For events without a delivery to wake (no target, a paused endpoint): whoever gives them their places in the feed is
-- told as with any other, by a job, which nobody has to do anything for.
create function sealpost.announce_events() returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  insert into graphile_worker._private_jobs (task_id, run_at, payload)
  select id, clock_timestamp(), '{"ids":[],"accounts":[],"lanes":[]}'
  from graphile_worker._private_tasks where identifier = 'deliver'
$$;

-- The promoter's one step: wakes what is due and has nobody at it. That is every retry whose time has come, every
-- replay, every delivery whose dispatcher died (its lease ran out) and every wake-up that a crash lost. What is due of
-- a paused endpoint is held instead: it was in flight when its endpoint was paused, and failed, or was published while
-- it was being paused.
--
-- Returns how many rows it looked at and how many it woke; called again at once while it looked at rows_max. Nothing
-- is promoted while waiting_jobs_max wake-ups wait (looked is null); jobs of other tasks in the same queue are none of
-- ours.
--
-- Rows with a wake_at before wake_from and jobs before jobs_from are not looked for: in front of the first that is
-- alive both indexes have the entries of all that are gone for as long as anybody holds a snapshot.
--
-- Shared by account first: an account gets at most `account_max` wake-ups a step, taken from its lanes in turn, and a
-- lane at most `lane_max`. What is beyond is looked at again a second later for every share before it, so that one
-- lane's million rows are not read over and over in front of everybody else's. (Pushing all of them to the next second
-- was tried on paper: a million index updates a second.) Nor sooner than after a sixteenth of the time that they have
-- been due, up to a minute: 300,000 of a receiver that hangs, looked at every five seconds, made everybody's retries 13
-- s late. (An index of what has just become due, read first, was tried, too: every retry would write it.)
--
-- A receiver that has proven nothing gets ten attempts a minute, so nearly everything for it stays due for as long as
-- analyses are kept. While such a lane rests between its turns, a step wakes a few of its rows, and looks at them again
-- once they have been due for twice as long, after four minutes at the latest; at the others in two to four minutes.
-- Looked at every few seconds, 300,000 of them left no time for anybody else's, whether they were of one lane or of
-- hundreds. Once the receiver is proven, sealpost.take_let_go finds them. Asking costs a look-up, so a lane is asked
-- about only if its first row in the step has been looked at before.
--
-- What `due` has locked is updated by its place, not by its id: a plan that was made while the table was all but empty
-- joined by id by reading the whole table, and woke 8,000 rows in 45 s instead of 0.2. A row that somebody has changed
-- just before it was locked is in a place that this statement does not see; the next step moves it.
create function sealpost.promote(
  at timestamptz, rows_max integer, lane_max integer, waiting_jobs_max integer, wake_from timestamptz,
  jobs_from timestamptz, out looked integer, out woken integer
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
  few constant integer := greatest(1, lane_max / 20);
  is_any_paused constant boolean := exists (select from sealpost.endpoints where paused_at is not null);
  places tid[];
  ids uuid[];
  lanes bigint[];
  to_hold uuid[];
begin
  woken := 0;
  if (
    select count(*) from (
      select from graphile_worker._private_jobs
      where is_available and priority = 0 and run_at >= jobs_from
        and task_id = (select id from graphile_worker._private_tasks where identifier = 'deliver')
      limit waiting_jobs_max) as waiting
  ) >= waiting_jobs_max then
    return;
  end if;
  -- A statement that locks rows must not read partitions: UNPRUNED in src/base/database/transaction.ts.
  places := array(
    select ctid from sealpost.open_deliveries
    where wake_at >= wake_from and wake_at <= at and due_at <= at and (lease_until is null or lease_until <= at)
    order by wake_at
    limit rows_max
    for update skip locked);
  with due as (
    select ctid as place, delivery_id, account_id, lane, wake_at, due_at,
      -- What was cut in quarantine cannot be held: it is woken, to end.
      case when is_any_paused and lease_token is null and lane = sealpost.lane(account_id, null)
        and (lease_alone and lease_run = run) is not true then
        exists (select from sealpost.endpoints as e where e.account_id = o.account_id and e.paused_at is not null)
      else false end as is_paused
    from sealpost.open_deliveries as o where ctid = any (places)
  ), in_lane as (
    select place, delivery_id, account_id, lane, wake_at, due_at,
      row_number() over (partition by account_id, lane order by wake_at, delivery_id) - 1 as lane_rank
    from due where not is_paused
  ), aimed as materialized (
    select in_lane.*, case when lane_rank = 0 and wake_at > due_at then sealpost.origin(coalesce(
      case when in_lane.lane <> sealpost.lane(in_lane.account_id, null) then (
        select b.webhook_url from sealpost.bodies as b where b.delivery_id = in_lane.delivery_id limit 1) end,
      (select e.url from sealpost.endpoints as e where e.account_id = any (array[in_lane.account_id])))) end as origin
    from in_lane
  ), asked as (
    -- One that is not normalized rests if any receiver of the account does, until it is proven as it is spelled.
    select aimed.*, aimed.origin is not null and (exists (
      select from sealpost.receivers as r
      where r.account_id = any (array[aimed.account_id]) and r.next_at > at - interval '1 minute'
        and r.origin = any (array[aimed.origin])
    ) or not sealpost.is_normalized_origin(aimed.origin) and exists (
      select from sealpost.receivers as r
      where r.account_id = any (array[aimed.account_id]) and r.next_at > at - interval '1 minute'
    ) and not exists (
      select from sealpost.receivers as r
      where r.account_id = any (array[aimed.account_id]) and r.origin = any (array[aimed.origin]) and r.next_at is null
    )) as is_first_resting
    from aimed
  ), ranked as (
    select place, delivery_id, lane, lane_rank, due_at,
      row_number() over (partition by account_id order by lane_rank, delivery_id) - 1 as account_rank,
      bool_or(is_first_resting) over (partition by account_id, lane) as is_resting
    from asked
  ), shared as (
    select place, delivery_id, lane, due_at, account_rank, is_resting,
      greatest(lane_rank / case when is_resting then few else lane_max end, account_rank / account_max) as wait_s
    from ranked
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + case
      when is_resting then least(
        (120 + 120 * random()) * interval '1 second',
        case when wait_s = 0 then greatest(at - shared.due_at, wake_after) end)
      when wait_s > 0 then greatest(wait_s * interval '1 second', least((at - shared.due_at) / 16, interval '1 minute'))
      else wake_after end
    from shared
    where o.ctid = shared.place
    returning o.delivery_id, o.lane, shared.account_rank, shared.wait_s
  )
  select (select count(*) from due),
    array_agg(delivery_id order by account_rank, delivery_id) filter (where wait_s = 0),
    array_agg(lane order by account_rank, delivery_id) filter (where wait_s = 0),
    (select array_agg(delivery_id) from due where is_paused)
  into looked, ids, lanes, to_hold
  from moved;
  woken := coalesce(cardinality(ids), 0);
  perform sealpost.add_wakeups(ids, lanes);
  if to_hold is not null then
    perform sealpost.hold(to_hold);
  end if;
end
$$;

-- For leaders of the version before.
create or replace function sealpost.promote(
  at timestamptz, rows_max integer, lane_max integer, waiting_jobs_max integer, out looked integer, out woken integer
)
language sql volatile
begin atomic
  select coalesce(p.looked, 0), p.woken
  from sealpost.promote(at, rows_max, lane_max, waiting_jobs_max, '-infinity', '-infinity') as p;
end;

-- looked_from: the wake_at from which on the leader looks for what is due; null: from the first. For the gauges.
alter table sealpost.leader add column looked_from timestamptz;

-- Makes of_holder the leader, or lets it stay the leader, for `lease` from now, unless another one is: then `leads` is
-- false. What there is for the leader to do is told in the same breath, since most of the time it is nothing: whether
-- rows are due, and whether anything is to be done in paced steps (bulk replays, what is held). Nothing is lost with
-- it.
create function sealpost.lead(
  of_holder uuid, lease interval, wake_from timestamptz, out leads boolean, out is_due boolean, out is_paced boolean,
  out at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  insert into sealpost.leader as l (holder, until, looked_from)
  values (of_holder, now() + lease, case when isfinite(wake_from) then wake_from end)
  on conflict (only_row) do update set holder = excluded.holder, until = excluded.until,
    looked_from = coalesce(excluded.looked_from, l.looked_from)
  -- Beyond one lease it is of a clock that has been set back. Not from now(): who has begun before the holder, and
  -- waited for it, would take its lease for such a one.
  where l.holder = excluded.holder or l.until < now() or l.until > clock_timestamp() + lease;
  leads := found;
  at := now();
  is_due := leads and exists (
    select from sealpost.open_deliveries
    where wake_at >= wake_from and wake_at <= now() and due_at <= now()
      and (lease_until is null or lease_until <= now()));
  is_paced := leads and (
    exists (select from sealpost.replays where status = 'running')
    or exists (select from sealpost.replays where count_at <= now())
    or exists (select from sealpost.endpoints where gather_at <= now())
    or exists (select from sealpost.held_deliveries));
end
$$;

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

-- Forgets receivers whose proof is over, or that have asked for no turn for an hour, and addresses nobody waits at.
-- Leaves in batches; returns how many went.
create function sealpost.forget_receivers(rows_max integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  most integer;
  forgotten integer;
begin
  delete from sealpost.receivers where ctid = any (array(
    select ctid from sealpost.receivers where next_at < now() - interval '1 hour'
    order by next_at limit rows_max for update skip locked));
  get diagnostics most = row_count;
  delete from sealpost.receivers where ctid = any (array(
    select ctid from sealpost.receivers where next_at is null and proven_at < now() - interval '30 days'
    order by proven_at limit rows_max for update skip locked));
  get diagnostics forgotten = row_count;
  most := greatest(most, forgotten);
  delete from sealpost.receiver_addresses where ctid = any (array(
    select ctid from sealpost.receiver_addresses where next_at < now() - interval '1 hour'
    limit rows_max for update skip locked));
  get diagnostics forgotten = row_count;
  return greatest(most, forgotten);
end
$$;

-- Whether an attempt at a receiver may connect to the address now, which takes the turn for `lease` at most, or in how
-- many milliseconds to ask again. A proven receiver needs no turn. `is_further`: another address for the same attempt.
--
-- Of one receiver: one at a time, and `receiver_every` from one to the next. Of one address: `address_every`. Nobody
-- queues there, as whoever came with a thousand names would fill the queue: each is told to come again after so long
-- that all of an account's together come as often as those of any other account, and all accounts' twice as often as
-- there are turns; retries half as often as first attempts. A new name comes behind those of others that wait. An
-- attempt that comes with a further address asks when it likes, for any of a thousand names that begin elsewhere. So
-- while others wait there, all such attempts of an account together get one turn in as many as there are accounts.
-- (To let them wait for good was the other way: a name whose first address is dead would use up its attempts.)
create function sealpost.take_turn(
  whose uuid, of_origin text, at_address text, is_first boolean, is_further boolean,
  lease interval, receiver_every interval, address_every interval,
  out is_proven boolean, out wait_ms float8
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  look_again constant interval := '1 second';
  waiting_max constant integer := 2000;
  -- Of one account, and fewer once there are more than 20: together they are half of those that are counted.
  kept_max integer := 50;
  wait_max constant interval := '20 minutes';
  receiver sealpost.receivers;
  address_at timestamptz;
  is_from_elsewhere boolean;
  is_new boolean;
  own integer;
  others integer;
  accounts integer;
  at timestamptz;
  wait interval;
begin
  if at_address like '%:%' then
    at_address := network(set_masklen(at_address::inet, 64));
  end if;
  insert into sealpost.receivers (account_id, origin, next_at)
  select whose, of_origin, '-infinity'
  where not exists (select from sealpost.accounts where id = whose and erased_at is not null)
  on conflict do nothing;
  select * into receiver from sealpost.receivers where account_id = whose and origin = of_origin for update;
  -- Of an erased account: whoever waits for its turn finds the delivery gone.
  if not found then
    is_proven := false;
    wait_ms := extract(epoch from look_again) * 1000;
    return;
  end if;
  is_proven := receiver.proven_at is not null and receiver.proven_at > now() - interval '30 days';
  if is_proven then
    return;
  end if;
  insert into sealpost.receiver_addresses (address, next_at) values (at_address, '-infinity') on conflict do nothing;
  select next_at into address_at from sealpost.receiver_addresses where address = at_address for update;
  at := clock_timestamp();
  -- What is further ahead than any is ever set is of a clock that has been set back. It is as after a turn now, no
  -- sooner: the last one may only just have begun.
  if greatest(receiver.next_at, receiver.busy_until) > at + wait_max then
    update sealpost.receivers
    set next_at = case when next_at > at + wait_max then at + receiver_every else next_at end,
      busy_until = case when busy_until > at + wait_max then at + lease else busy_until end
    where account_id = whose and origin = of_origin
    returning * into receiver;
  end if;
  if address_at > at + address_every then
    address_at := at + address_every;
    update sealpost.receiver_addresses set next_at = address_at where address = at_address;
  end if;
  is_from_elsewhere := receiver.address is distinct from at_address and not is_further;
  is_new := is_from_elsewhere and receiver.address is null;
  if is_from_elsewhere or is_further or address_at > at then
    select count(*) filter (where account_id = whose), count(*) filter (where account_id <> whose),
      greatest(1, count(distinct account_id))
    into own, others, accounts
    from (
      select account_id from sealpost.receivers
      where address = at_address and next_at > at - interval '1 minute' order by next_at limit waiting_max
    ) as those;
    kept_max := least(kept_max, greatest(1, waiting_max / (2 * accounts)));
  end if;
  wait := case
    when receiver.busy_until > at and not is_further then look_again
    when receiver.next_at > at and not is_further then receiver.next_at - at
    -- Whoever has waited comes before another account's new name.
    when address_at > at or is_new and others > 0 or is_further and others > 0 and exists (
      select from sealpost.receivers
      where account_id = whose and origin = at_address and next_at > at
        and next_at <= at + (waiting_max + 1) * address_every)
    then
      -- Spread behind the bound: who were all told the same would come together, and all but one for nothing.
      least(wait_max / 1.5, greatest(1, own) * accounts * address_every * case when is_first then 0.5 else 1 end)
        * (0.5 + random())
  end;
  if wait is null then
    update sealpost.receiver_addresses set next_at = at + address_every where address = at_address;
    update sealpost.receivers
    set proven_at = null, next_at = at + receiver_every, busy_until = at + lease, address = at_address
    where account_id = whose and origin = of_origin;
    if is_further and others > 0 then
      insert into sealpost.receivers (account_id, origin, next_at)
      values (whose, at_address, at + (accounts + (own = 0)::integer) * address_every)
      on conflict (account_id, origin) do update set next_at = excluded.next_at;
    end if;
    return;
  end if;
  wait_ms := extract(epoch from wait) * 1000;
  -- Once all that are counted are taken, an account's names take up no more than that: those beyond ask as often
  -- without a place, and get none. So everybody is counted, and an account's names come as often as another's one.
  if not is_further and own - (not is_from_elsewhere)::integer >= kept_max and own + others >= waiting_max then
    update sealpost.receivers set next_at = greatest(next_at, at + wait), address = null
    where account_id = whose and origin = of_origin;
  elsif is_further then
    -- So that others know of the account; more of them would hide who else waits.
    update sealpost.receivers set address = at_address
    where account_id = whose and origin = of_origin and own < kept_max;
  else
    update sealpost.receivers
    set next_at = greatest(next_at, at + wait), address = at_address
    where account_id = whose and origin = of_origin and not coalesce(busy_until > at, false);
  end if;
end
$$;

-- The attempt is over. A 2xx proves the receiver, also as of_url spells it. Of an account, the newest 100,000 proofs
-- are kept; who has more is found out now and then.
create function sealpost.end_turn(whose uuid, of_origin text, of_url text, is_proof boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if not is_proof then
    update sealpost.receivers set busy_until = null where account_id = whose and origin = of_origin;
    return;
  end if;
  insert into sealpost.receivers as r (account_id, origin, proven_at, proven_since)
  select distinct whose, spelled, now(), coalesce((
    select r.proven_since from sealpost.receivers as r
    where r.account_id = whose and r.origin = of_origin and r.next_at is null), now())
  from unnest(array[of_origin, sealpost.origin(of_url)]) as spelled
  where not exists (select from sealpost.accounts where id = whose and erased_at is not null)
    -- Never in another's name.
    and (spelled = of_origin or not sealpost.is_normalized_origin(spelled))
  order by spelled
  on conflict (account_id, origin) do update set
    proven_since = case when r.next_at is null then r.proven_since else now() end,
    proven_at = excluded.proven_at, next_at = null, busy_until = null, address = null;
  if random() < 0.001 then
    delete from sealpost.receivers where account_id = whose and origin in (
      select origin from sealpost.receivers
      where account_id = whose and next_at is null order by proven_at desc offset 100000);
  end if;
end
$$;

-- Receivers that have succeeded in the last 30 days need no other proof after an upgrade. Five minutes of the log at a
-- time, the newest first; false: that was all.
create function sealpost.prove_from_log() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  until timestamptz;
begin
  select coalesce(proven_from, now()) into until from sealpost.settings for update;
  if until <= now() - interval '30 days' or not exists (
    select from sealpost.attempts where delivery_id < sealpost.uuid_v7_floor(until)) then
    return false;
  end if;
  insert into sealpost.receivers as r (account_id, origin, proven_at)
  select account_id, sealpost.origin(target_url), max(ended_at)
  from sealpost.attempts
  where delivery_id >= sealpost.uuid_v7_floor(until - interval '5 minutes')
    and delivery_id < sealpost.uuid_v7_floor(until) and outcome = 'succeeded'
  group by 1, 2
  order by 1, 2
  on conflict (account_id, origin) do update
    set proven_at = greatest(r.proven_at, excluded.proven_at), next_at = null, busy_until = null, address = null;
  update sealpost.settings set proven_from = until - interval '5 minutes';
  return true;
end
$$;

-- 5. Reading what is published. It takes little of PostgreSQL's time, whatever the text is made of: regular
-- expressions take half a microsecond for each match, and a caller decides how many of those there are.

-- Whether a JSON text is nested more than 512 levels deep. Called only for texts with more than 512 opening brackets.
create or replace function sealpost.is_too_deep(analysis text) returns boolean
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Without escapes every second quote ends a string. What is outside of strings comes first, then every other one.
  unescaped constant text := replace(replace(analysis, '\\', ''), '\"', '');
  brackets text;
  shorter text;
  levels_left integer := 512;
begin
  if strpos(unescaped, '"') > 0 then
    brackets := regexp_replace(unescaped, '"[^"]*"', '', 'g');
  else
    brackets := unescaped;
  end if;
  -- The first characters are found first. What is left out is all else that JSON has outside of strings.
  brackets := translate(brackets, '[]{},0123456789.: -+eEtrufalsn' || E'\n\t\r', '[][]');
  -- Each pass takes the innermost pairs away, and with them exactly one level. Only a text with more pairs than levels
  -- can be too deep; most end here.
  loop
    if length(brackets) <= 2 * levels_left then
      return false;
    end if;
    shorter := replace(brackets, '[]', '');
    -- Long chains would take a pass for each level: those are left to the JSON parser.
    exit when length(shorter) > length(brackets) * 0.8;
    brackets := shorter;
    levels_left := levels_left - 1;
  end loop;
  -- The root is level 0.
  return jsonb_path_exists(
    replace(brackets, '][', '],[')::jsonb, format('strict $.**{%s}', levels_left)::jsonpath);
exception
  -- Thousands of levels are too many for PostgreSQL's own stack.
  when statement_too_complex then
    return true;
end
$$;

-- The analysis as id and status may be read from it. `json -> 'id'` fails on a text that holds \u0000 or a lone
-- surrogate anywhere, so backslashes are blanked to `?`, which neither id nor status may hold. Null: "id" or "status"
-- stands in it as a member name written with escapes, which a JSON parser would take for one and the blanked copy
-- hides.
create or replace function sealpost.without_escapes(body text) returns json
language plpgsql immutable
as $$
declare
  -- After these two no backslash stands before a backslash or a quote: each can be blanked by itself.
  unslashed constant text := replace(replace(body, '\\', '??'), '\"', '??');
  plain constant json := translate(unslashed, '\', '?')::json;
  decoded json;
begin
  if strpos(unslashed, '\u006') > 0 or strpos(unslashed, '\u007') > 0 then
    decoded := translate(
      replace(replace(replace(replace(replace(replace(unslashed,
        '\u0069', 'i'), '\u0064', 'd'), '\u0073', 's'), '\u0074', 't'), '\u0061', 'a'), '\u0075', 'u'),
      '\', '?')::json;
    if (select count(*) from json_object_keys(decoded) as name where name in ('id', 'status'))
      <> (select count(*) from json_object_keys(plain) as name where name in ('id', 'status'))
    then
      return null;
    end if;
  end if;
  return plain;
end
$$;

-- Why a webhook_url is refused, as far as its text tells SQL: null means "not refused here". The dispatcher and the
-- HTTP operation know more (src/egress/rules/); this must never refuse what they allow.
-- unsafe: what UNSAFE_ALLOWED_TARGETS lifts the name, address and port rules for.
create or replace function sealpost.webhook_url_fault(url text, unsafe text[]) returns text
language plpgsql immutable parallel safe
as $$
declare
  authority text;
  host text;
  port text;
begin
  if length(url) > 2048 then
    return 'it is longer than 2048 characters';
  end if;
  if url ~ '[\x01-\x20\x7f]' then
    return 'it contains white space or control characters';
  end if;
  if strpos(url, '\') > 0 then
    return 'it contains a backslash';
  end if;
  if url !~* '^https://[^/\\]' then
    return 'it does not begin with https:// and a host name';
  end if;
  if strpos(url, '#') > 0 then
    return 'it has a fragment (#…), which is never sent';
  end if;
  authority := lower(substring(url from '^[^:]*://([^/?]*)'));
  if strpos(authority, '@') > 0 then
    return 'it carries a user name or a password';
  end if;
  port := substring(authority from ':([0-9]+)$');
  host := case when port is null then rtrim(authority, ':') else substring(authority from '^(.*):[0-9]+$') end;
  if exists (
    select from unnest(unsafe) as lifted
    where lifted = host || ':' || coalesce(ltrim(port, '0'), '443')
      or (
        lifted like '*.%'
        and right(host || ':' || coalesce(ltrim(port, '0'), '443'), length(lifted) - 1) = substr(lifted, 2))
  ) then
    return null;
  end if;
  if port is not null and (
    length(ltrim(port, '0')) > 9 or (port::integer < 1024 and port::integer <> 443) or port::integer > 65535
    or port::integer in (1433, 1521, 2049, 2181, 2375, 2376, 2377, 2378, 2379, 2380, 3306, 3389, 4369, 5432, 5671,
      5672, 5900, 5984, 6379, 6443, 6660, 6661, 6662, 6663, 6664, 6665, 6666, 6667, 6668, 6669, 6697, 8086, 8500,
      9042, 9092, 9200, 9300, 10250, 10255, 11211, 15672, 25672, 27017, 27018, 27019, 50000)
  ) then
    return format('port %s is not allowed (443, or 1024 and above except known services)', port);
  end if;
  if host ~ '^\[' then
    if host !~ '^\[[23][0-9a-f]{3}:[0-9a-f:.]*\]$' then
      return 'its address is not public';
    end if;
    return null;
  end if;
  -- Only canonical dotted quads: 010.0.0.1 is octal to a browser, decimal to inet.
  if host ~ '^(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})$' then
    if host ~ '^(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})\.){3}(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})$'
      and not host::inet <<= any (array[
        '0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12',
        '192.0.0.0/24', '192.0.2.0/24', '192.31.196.0/24', '192.52.193.0/24', '192.88.99.0/24', '192.168.0.0/16',
        '192.175.48.0/24', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4',
        '168.63.129.16/32']::inet[])
    then
      return null;
    end if;
    return 'its address is not public';
  end if;
  -- Anything but plain ASCII may turn into other characters when it is parsed: not judged here.
  if host ~ '^[a-z0-9._-]+$' and (
    host ~ '\.$'
    -- A number is an address, which the full rules read and judge.
    or (strpos(host, '.') = 0 and host !~ '^(?:0x[0-9a-f]*|[0-9]+)$')
    or host ~ (
      '\.(localhost|localdomain|local|internal|intranet|home|lan|corp|mail|private|svc|consul|'
      || 'test|example|invalid|alt|onion|arpa)$')
    or host ~ '(^|\.)metadata\.(goog|tencentyun\.com|platformequinix\.com|packet\.net)$'
    or host ~ '(^|\.)api\.metadata\.cloud\.ibm\.com$'
  ) then
    return 'its host name is not a public one';
  end if;
  return null;
end
$$;

-- 6. Publishing. SQLSTATEs besides those of 0005_publish.sql: SP007 account_moved, SP008 account_full.

-- What was published for an endpoint that forgets, and has not been erased yet. look_at: when it is looked at next,
-- whether it was delivered.
create table sealpost.forgetting (
  delivery_id uuid primary key,
  account_id uuid not null,
  look_at timestamptz not null
);
create index forgetting_look_at on sealpost.forgetting (account_id, look_at);

-- What a webhook has in place of the analysis; null where no URL is given. None of these needs an escape in JSON.
create function sealpost.reference_of(analysis_id text, event text, url text) returns text
language sql immutable parallel safe
begin atomic
  select '{"id":"' || analysis_id || '","status":"' || substr(event, 10) || '","url":"' || url || analysis_id || '"}';
end;

-- What publishing refuses of these, and why, in their order. n counts from 1.
create function sealpost.publication_faults(account_ids uuid[], analyses json[], webhook_urls text[])
returns table (n bigint, state text, code text, fault text, hint text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
  select input.n, fault.state, fault.code, fault.fault, fault.hint
  from unnest(account_ids, analyses, webhook_urls) with ordinality as input (account_id, analysis, webhook_url, n)
  cross join sealpost.settings
  left join sealpost.accounts on accounts.id = input.account_id
  cross join lateral sealpost.webhook_url_fault(
    coalesce(input.webhook_url, 'https://example.com'), unsafe_allowed_targets) as url_fault
  cross join lateral sealpost.read_analysis(input.analysis, analysis_bytes_max) as reading
  cross join lateral (
    select 'SP001' as state, 'unknown_account' as code,
      format('there is no account %s', coalesce(input.account_id::text, 'null')) as fault,
      'Create the account first: sealpost account create --name NAME' as hint
    where accounts.id is null
    union all
    select 'SP007', 'account_moved',
      format('account %s has moved to the cell "%s"', input.account_id, accounts.moved_to),
      'Publish it there: what was published here is known there.'
    where accounts.moved_to is not null
    union all
    select 'SP008', 'account_full',
      format('account %s has published as many bytes as it may store', input.account_id),
      'Wait until older ones are forgotten, or raise ACCOUNT_ANALYSES_BYTES_MAX and run migrate again.'
    where accounts.is_full
      and not exists (select from sealpost.analyses as a where a.account_id = accounts.id and a.id = (reading).id)
    union all
    select 'SP004', 'target_refused', 'its webhook_url is refused: ' || url_fault,
      'Give a public https:// URL: sealpost target check tells what it thinks of one.'
    where url_fault is not null
    union all
    select reading.state, reading.code, reading.fault,
      case reading.code
        when 'analysis_too_large' then 'Publish a smaller analysis, or raise ANALYSIS_BYTES_MAX and run migrate again.'
        else 'Send the analysis as a JSON object with a string "id" and "status": "succeeded" or "failed".'
      end
    where reading.fault is not null
    limit 1
  ) as fault
  order by input.n;
end
$$;

-- Raises the error that names the first element which publishing refuses, and why.
create or replace function sealpost.refuse_publication(account_ids uuid[], analyses json[], webhook_urls text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  refused record;
begin
  select * into refused
  from sealpost.publication_faults(account_ids, analyses, webhook_urls) as faults order by faults.n limit 1;
  if not found then
    raise exception using errcode = '40001',
      message = 'an account or a setting was changed while an analysis was published',
      hint = 'Run the transaction again.';
  end if;
  perform sealpost.publish_fault(refused.state, refused.n::integer, refused.code,
    format('analysis at index %s: %s', refused.n - 1, refused.fault), refused.hint);
end
$$;

-- The way in for every caller. Each element is published or refused alone: delivery_ids has null where codes says why
-- not, 'refused' (publication_faults says what for) or 'analysis_conflict'. The same analysis again is the delivery
-- that it already is, and codes says 'known', or 'known_of_space' where a run has published it. Whatever an erased
-- account publishes is 'known', under an id that follows from its own, and nothing is stored. What would go to a paused
-- endpoint is held from the start; test events go out all the same, in a lane of their own. at: the moment of
-- publishing (only tests give another than now).
--
-- Its joins say `= any (array[…])`, so that an index serves for looking up and never for reading a whole table in
-- order, as a plan made for an empty one would, for as long as the caller's session lives. Without jit: before
-- PostgreSQL 18 a scan that is switched off and needed all the same (of the settings' one row) costs so much that
-- every call would be compiled.
create function sealpost.publish_each(
  account_ids uuid[], analyses json[], webhook_urls text[], traceparents text[], is_example boolean, at timestamptz,
  out delivery_ids uuid[], out codes text[])
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  -- When the promoter first looks. A claim whose lease ends sooner pulls it there, so that the lease of a dispatcher
  -- that dies is always noticed within a sweep of its end.
  wake_after constant interval := '15 seconds';
  id_prefix constant bytea := sealpost.uuid_v7_prefix(at);
  analysis_ids text[];
  events text[];
  digests bytea[];
  sizes integer[];
  have_target boolean[];
  is_any_paused boolean;
  references_to_send text[];
  forgotten_after boolean[];
  fresh uuid[];
  open_ids uuid[];
  open_lanes bigint[];
  known record;
begin
  -- 1. Read and judge everything before anything is stored. What has no id from here on is left alone until the end.
  select
    array_agg((reading).id), array_agg((reading).event), array_agg((reading).digest), array_agg((reading).bytes),
    array_agg(has_target), bool_or(is_paused),
    array_agg(sealpost.reference_of((reading).id, (reading).event, reference_url)), array_agg(is_forgotten),
    array_agg(case when not is_refused and not is_erased then sealpost.uuid_v7_of(id_prefix) end),
    array_agg(case when is_refused then 'refused' when is_erased then 'known' end)
  into analysis_ids, events, digests, sizes, have_target, is_any_paused, references_to_send, forgotten_after,
    delivery_ids, codes
  from (
    select reading, has_target, is_paused, reference_url, is_forgotten, is_erased,
      is_not_here or url_fault is not null or (reading).fault is not null or case when is_full then
        not exists (
          select from sealpost.analyses as a
          where a.account_id = any (array[read_once.account_id]) and a.id = (reading).id)
      else false end as is_refused
    from (
      select
        sealpost.read_analysis(analysis, analysis_bytes_max) as reading,
        coalesce(webhook_url, endpoints.url) is not null as has_target,
        endpoints.paused_at is not null as is_paused,
        case when webhook_url is null and endpoints.sends_references then analyses_url end as reference_url,
        webhook_url is null and endpoints.forgets_after_success as is_forgotten,
        -- Not the id: an index that holds all that is asked for may be read in order, too.
        accounts.created_at is null or accounts.moved_to is not null as is_not_here,
        accounts.erased_at is not null as is_erased,
        input.account_id, accounts.is_full,
        case when webhook_url is not null then
          sealpost.webhook_url_fault(webhook_url, unsafe_allowed_targets)
        end as url_fault
      from unnest(account_ids, analyses, webhook_urls) with ordinality
        as input (account_id, analysis, webhook_url, n)
      cross join sealpost.settings
      left join sealpost.accounts on accounts.id = any (array[input.account_id])
      left join sealpost.endpoints on endpoints.account_id = any (array[input.account_id])
      order by n
      offset 0
    ) as read_once
    offset 0
  ) as judged;

  -- 2. Register, in one order for everybody (batches in different orders would deadlock). Whoever comes second
  -- waits here for the first to commit, and reads what is known in a statement of its own (4): insert-or-select in
  -- one statement loses that race.
  with registered as (
    insert into sealpost.analyses (account_id, id, delivery_id, digest)
    select account_id, analysis_id, delivery_id, digest
    from unnest(account_ids, analysis_ids, delivery_ids, digests)
      as input (account_id, analysis_id, delivery_id, digest)
    where delivery_id is not null
    order by account_id, analysis_id
    on conflict (account_id, id) do nothing
    returning delivery_id
  )
  select coalesce(array_agg(delivery_id), '{}') into fresh from registered;

  -- 3. Store what is new. Without any target a delivery ends here, visible in the log, and nothing is woken. A
  -- traceparent of another form is left out: it would go into a header.
  with added as materialized (
    select *
    from unnest(
        account_ids, analyses, webhook_urls, traceparents, analysis_ids, delivery_ids, events, sizes, have_target,
        references_to_send)
      as input (
        account_id, analysis, webhook_url, traceparent, analysis_id, delivery_id, event, bytes, has_target, reference)
    where cardinality(fresh) = cardinality(account_ids) or delivery_id = any (fresh)
  ), body as (
    insert into sealpost.bodies (delivery_id, account_id, event, webhook_url, traceparent, analysis, reference)
    select delivery_id, account_id, event, webhook_url,
      substring(traceparent from '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'),
      analysis, reference
    from added
  ), logged as (
    insert into sealpost.deliveries
      (id, account_id, is_example, event, status, reason, analysis_id, webhook_url)
    select delivery_id, account_id, is_example, event,
      case when has_target then 'pending' else 'abandoned' end,
      case when not has_target then 'no_target' end,
      analysis_id, webhook_url
    from added
  ), opened as (
    insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, body_bytes)
    select delivery_id, account_id, sealpost.lane(account_id, webhook_url), at, at + wake_after,
      coalesce(octet_length(reference), bytes)
    from added where has_target
    returning delivery_id, lane
  )
  select array_agg(delivery_id), array_agg(lane) into open_ids, open_lanes from opened;

  -- Apart: in the statement above the next two cost everybody's batches some 5 %.
  if array_position(forgotten_after, true) is not null then
    insert into sealpost.forgetting (delivery_id, account_id, look_at)
    select delivery_id, account_id, at from unnest(account_ids, delivery_ids, forgotten_after)
      as input (account_id, delivery_id, is_forgotten)
    where is_forgotten and delivery_id = any (fresh);
  end if;
  if is_any_paused then
    if is_example then
      update sealpost.open_deliveries as o set lane = sealpost.lane(o.account_id, 'test-event://endpoint')
      where o.delivery_id = any (open_ids) and sealpost.is_paused(o.account_id, o.lane);
    else
      perform sealpost.hold(open_ids);
    end if;
    select array_agg(o.delivery_id), array_agg(o.lane) into open_ids, open_lanes
    from sealpost.open_deliveries as o where o.delivery_id = any (open_ids);
  end if;

  perform sealpost.add_wakeups(open_ids, open_lanes);
  if open_ids is null and cardinality(fresh) > 0 then
    perform sealpost.announce_events();
  end if;

  -- 4. What was known already, be it from this very batch, has to be the same, unless it was erased, and is the
  -- delivery that it was. Where that was committed before the standby had it (a restart ends the wait), whoever
  -- publishes it again must wait instead; and only a commit that has written something does.
  if cardinality(fresh) < cardinality(account_ids) then
    perform pg_logical_emit_message(true, 'sealpost', '');
    for known in
      select input.n, input.analysis_id, registry.delivery_id,
        registry.digest = ''
          or registry.digest = input.digest and logged.webhook_url is not distinct from input.webhook_url as is_same,
        logged.space_id is not null as is_of_space
      from unnest(account_ids, digests, webhook_urls, analysis_ids, delivery_ids) with ordinality
        as input (account_id, digest, webhook_url, analysis_id, delivery_id, n)
      left join sealpost.analyses as registry
        on registry.account_id = any (array[input.account_id]) and registry.id = input.analysis_id
      left join sealpost.deliveries as logged
        on logged.account_id = any (array[registry.account_id]) and logged.id = registry.delivery_id
      where input.delivery_id is not null and registry.delivery_id is distinct from input.delivery_id
    loop
      if known.delivery_id is null then
        raise exception using errcode = '40001',
          message = format('analysis at index %s was being forgotten while it was published again', known.n - 1),
          hint = 'Run the transaction again.';
      end if;
      delivery_ids[known.n] := case when known.is_same then known.delivery_id end;
      codes[known.n] := case
        when not known.is_same then 'analysis_conflict' when known.is_of_space then 'known_of_space' else 'known' end;
    end loop;
    for i in 1 .. cardinality(account_ids) loop
      if delivery_ids[i] is null and codes[i] = 'known' then
        delivery_ids[i] := encode(
          substr(sha256(convert_to(account_ids[i] || ' ' || analysis_ids[i], 'UTF8')), 1, 16), 'hex')::uuid;
      end if;
    end loop;
  end if;
end
$$;

-- All of them or none. traceparent: that of the transaction, for each.
create or replace function sealpost.publish(
  account_ids uuid[], analyses json[], webhook_urls text[], is_example boolean, at timestamptz
) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  total constant integer := coalesce(cardinality(account_ids), 0);
  result record;
  first_refused integer;
begin
  if total <> coalesce(cardinality(analyses), 0) or total <> coalesce(cardinality(webhook_urls), 0) then
    perform sealpost.publish_fault('SP006', 1, 'invalid_request',
      format('publish_analyses got %s account ids, %s analyses and %s webhook_urls',
        total, coalesce(cardinality(analyses), 0), coalesce(cardinality(webhook_urls), 0)),
      'Give three arrays of the same length, with null where an analysis has no webhook_url of its own.');
  end if;
  if total = 0 then
    return '{}';
  end if;
  result := sealpost.publish_each(account_ids, analyses, webhook_urls,
    array_fill(current_setting('sealpost.traceparent', true), array[total]), is_example, at);
  if array_position(result.codes, 'refused') is not null then
    perform sealpost.refuse_publication(account_ids, analyses, webhook_urls);
  end if;
  first_refused := array_position(result.codes, 'analysis_conflict');
  if first_refused is not null then
    perform sealpost.publish_fault('SP005', first_refused, 'analysis_conflict',
      format('analysis at index %s: "%s" was already published with another text or webhook_url',
        first_refused - 1, (sealpost.read_analysis(analyses[first_refused], 2147483647)).id),
      'An analysis id stands for one result: publish a new result under a new id.');
  end if;
  return result.delivery_ids;
end
$$;

-- One analysis, which is what pipelines publish most, with as little work as there can be in the caller's transaction.
-- Publishes a good new analysis for an account with an endpoint, straight into the tables. Null for whatever else it
-- is (a refusal, an analysis that is known, no target, a paused endpoint, an erased account): then nothing was stored,
-- and sealpost.publish_each has the answer.
create function sealpost.publish_fresh(account_id uuid, analysis json, traceparent text) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  of_account alias for $1;
  text_of_analysis alias for $2;
  trace alias for $3;
  bytes_max integer;
  deliver integer;
  has_target boolean;
  reference_url text;
  is_forgotten boolean;
  reading sealpost.read_analysis;
  new_id constant uuid := sealpost.uuid_v7_of(sealpost.uuid_v7_prefix(now()));
  its_lane bigint;
  reference text;
begin
  select settings.analysis_bytes_max, tasks.id,
    endpoints.url is not null and endpoints.paused_at is null and accounts.moved_to is null
      and accounts.erased_at is null and not accounts.is_full,
    case when endpoints.sends_references then settings.analyses_url end, endpoints.forgets_after_success
  into bytes_max, deliver, has_target, reference_url, is_forgotten
  from sealpost.settings
  join sealpost.accounts on accounts.id = of_account
  join graphile_worker._private_tasks as tasks on tasks.identifier = 'deliver'
  left join sealpost.endpoints on endpoints.account_id = of_account
  where settings.only_row;
  if has_target then
    reading := sealpost.read_analysis(text_of_analysis, bytes_max);
  end if;
  if reading.id is null then
    return null;
  end if;

  insert into sealpost.analyses (account_id, id, delivery_id, digest)
  values (of_account, reading.id, new_id, reading.digest)
  on conflict on constraint analyses_pkey do nothing;
  if not found then
    return null;
  end if;

  if trace is not null then
    trace := substring(trace from '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$');
  end if;
  its_lane := sealpost.lane(of_account, null);
  reference := sealpost.reference_of(reading.id, reading.event, reference_url);
  if is_forgotten then
    insert into sealpost.forgetting (delivery_id, account_id, look_at) values (new_id, of_account, now());
  end if;
  with body as (
    insert into sealpost.bodies (delivery_id, account_id, event, traceparent, analysis, reference)
    values (new_id, of_account, reading.event, trace, text_of_analysis, reference)
  ), logged as (
    insert into sealpost.deliveries (id, account_id, event, status, analysis_id)
    values (new_id, of_account, reading.event, 'pending', reading.id)
  ), opened as (
    insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, body_bytes)
    values (new_id, of_account, its_lane, now(), now() + interval '15 seconds',
      coalesce(octet_length(reference), reading.bytes))
  )
  -- The wake-up, as add_wakeups writes it.
  insert into graphile_worker._private_jobs (task_id, run_at, payload, max_attempts)
  values (
    deliver,
    clock_timestamp(),
    format('{"ids":["%s"],"accounts":["%s"],"lanes":["%s"]}', new_id, of_account, its_lane)::json,
    32767);
  return new_id;
end
$$;

-- What the API's requests to publish come to, in one statement, which is one round trip and one commit: claims their
-- Idempotency-Keys, publishes each by itself, and stores its answer, which is answers_before, the delivery's id and
-- answers_after. Any of it that fails undoes all. In input order, codes are null for what is new, else
--   'key'                       its key is good no more
--   'busy'                      its Idempotency-Key is claimed or answered: sealpost.claim_idempotency_keys says how
--   'not_asked'                 there was no analysis to publish, and nothing is stored
--   'known', 'known_of_space'   it was published before, and is answered, too; 'full' where there is no room for that
--                               within answers_max
--   'analysis_conflict', 'refused'   as sealpost.publish_each says; a user's 'known_of_space' is a conflict
create function sealpost.publish_writes(
  account_ids uuid[], key_ids uuid[], user_ids uuid[], idempotency_keys text[], fingerprints bytea[],
  analyses json[], webhook_urls text[], traceparents text[], answers_before text[], answers_after text[],
  of_operation text, status integer, headers json, answer_bytes bigint, lock_wait_ms integer,
  out delivery_ids uuid[], out codes text[], out answers_max bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  total constant integer := cardinality(account_ids);
  todo integer[];
  published record;
  known integer[];
  refused bigint[];
begin
  perform set_config('lock_timeout', lock_wait_ms::text, true);
  select
    array_agg(case
      when not claim.is_key_good then 'key'
      when not claim.is_ours or claim.is_held or claim.status is not null then 'busy'
      when analyses[claim.n] is null then 'not_asked'
      end order by claim.n)
  into codes
  from sealpost.claim_idempotency_keys(account_ids, key_ids, idempotency_keys) as claim;
  delivery_ids := array_fill(null::uuid, array[total]);

  todo := array_positions(codes, null);
  if cardinality(todo) = 0 then
    return;
  elsif total = 1 and webhook_urls[1] is null then
    delivery_ids[1] := sealpost.publish_fresh(account_ids[1], analyses[1], traceparents[1]);
  end if;
  if delivery_ids[todo[1]] is null then
    if cardinality(todo) = total then
      published := sealpost.publish_each(account_ids, analyses, webhook_urls, traceparents, false, now());
    else
      published := sealpost.publish_each(
        array(select account_ids[n] from unnest(todo) as n), array(select analyses[n] from unnest(todo) as n),
        array(select webhook_urls[n] from unnest(todo) as n), array(select traceparents[n] from unnest(todo) as n),
        false, now());
    end if;
    for i in 1 .. cardinality(todo) loop
      delivery_ids[todo[i]] := published.delivery_ids[i];
      codes[todo[i]] := case
        when published.codes[i] = 'known_of_space' and user_ids[todo[i]] is not null then 'analysis_conflict'
        else published.codes[i] end;
    end loop;
    -- What is new counts as published; what is known changes nothing, but leaves an answer all the same.
    known := array(select n from unnest(todo) as n where codes[n] in ('known', 'known_of_space'));
    if cardinality(known) > 0 then
      refused := sealpost.count_answers(
        array(select account_ids[n] from unnest(known) as n), array(select user_ids[n] from unnest(known) as n),
        array_fill(answer_bytes, array[cardinality(known)]));
      for i in 1 .. cardinality(known) loop
        if refused[i] is not null then
          codes[known[i]] := 'full';
          answers_max := refused[i];
        end if;
      end loop;
    end if;
  end if;

  insert into sealpost.idempotency_keys
    (account_id, key_id, idempotency_key, operation_key, fingerprint, status, headers, body, is_sealed)
  select account_ids[n], key_ids[n], idempotency_keys[n], of_operation, fingerprints[n], publish_writes.status,
    publish_writes.headers, convert_to(answers_before[n] || delivery_ids[n] || answers_after[n], 'UTF8'), false
  from unnest(todo) as n
  where codes[n] is null or codes[n] in ('known', 'known_of_space')
  on conflict (account_id, key_id, idempotency_key) do update
  set operation_key = excluded.operation_key, fingerprint = excluded.fingerprint, created_at = excluded.created_at,
    claim_token = null, claim_until = null, status = excluded.status, headers = excluded.headers, body = excluded.body,
    is_sealed = false;
end
$$;

-- For the pipeline's role. A webhook_url has to be judged.
create or replace function sealpost.publish_analysis(
  account_id uuid, analysis json, webhook_url text default null
) returns uuid
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $$
declare
  delivery_id uuid;
begin
  if webhook_url is null then
    delivery_id := sealpost.publish_fresh(
      account_id, analysis, nullif(current_setting('sealpost.traceparent', true), ''));
  end if;
  if delivery_id is null then
    delivery_id := (sealpost.publish(array[account_id], array[analysis], array[webhook_url], false, now()))[1];
  end if;
  return delivery_id;
end
$$;

-- 7. Holding.

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
    -- Since it was due it has only waited.
    case when run_started_at is not null then
      greatest(extract(epoch from least(paused_at, due_at) - run_started_at), 0) end,
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

-- The delivery, if it has a webhook_url of its own and may not go there any more; no row otherwise. Here it always may:
-- the workspace, whose runs have URLs of people, puts its answer in place of this one. Each claim asks, in whose
-- statement it is inlined: whatever happens before an attempt, in a retry or a replay, counts, and nothing has to be
-- found and changed when somebody is removed.
create function sealpost.closed_url(of_account uuid, of_delivery uuid) returns setof uuid
language sql stable
begin atomic
  select of_delivery where false;
end;

-- What a claim has leased for a URL that is closed goes to the account's endpoint from now on, in its lane. No attempt
-- was made. The attempts that were made keep their URL.
create function sealpost.send_to_endpoint(of_deliveries uuid[], token uuid, at timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_partition_pruning = off -- UNPRUNED in src/base/database/transaction.ts
set jit = off
as $$
declare
  ids uuid[];
  lanes bigint[];
begin
  with mine as (
    select delivery_id from sealpost.open_deliveries
    where delivery_id = any (of_deliveries) and lease_token = token
    order by delivery_id
    for update
  ), given_back as (
    update sealpost.open_deliveries as o
    set lane = sealpost.lane(o.account_id, null), lease_token = null, lease_until = null, lease_number = null,
      lease_alone = false, wake_at = at + interval '15 seconds',
      -- The window begins anew, as the wait for the closed URL's consent may have been longer.
      run_started_at = null
    from mine
    where o.delivery_id = any (array[mine.delivery_id])
    returning o.delivery_id, o.account_id, o.lane
  ), unaddressed as (
    -- As if it had been published for the endpoint.
    update sealpost.bodies as b
    set webhook_url = null,
      reference = case when e.sends_references then sealpost.reference_of(d.analysis_id, b.event, s.analyses_url) end
    from given_back
    cross join sealpost.settings as s
    join sealpost.deliveries as d
      on d.account_id = any (array[given_back.account_id]) and d.id = given_back.delivery_id
    left join sealpost.endpoints as e on e.account_id = any (array[given_back.account_id])
    where b.delivery_id = any (array[given_back.delivery_id])
  ), forgotten as (
    insert into sealpost.forgetting (delivery_id, account_id, look_at)
    select delivery_id, given_back.account_id, at from given_back
    join sealpost.endpoints as e on e.account_id = any (array[given_back.account_id])
    where e.forgets_after_success
    on conflict do nothing
  ), told as (
    update sealpost.deliveries as d set webhook_url = null
    from given_back where d.account_id = any (array[given_back.account_id]) and d.id = given_back.delivery_id
  )
  select array_agg(delivery_id), array_agg(lane) into ids, lanes from given_back;
  perform sealpost.add_wakeups(ids, lanes);
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
set enable_partition_pruning = off -- UNPRUNED in src/base/database/transaction.ts
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

-- Ids of lanes, up to rows_max of each and from its `from_id` on, that are due and that nobody has at hand: they are
-- this caller's to queue, and none of a paused endpoint. next_id: where more may follow; null: that was all. The
-- promoter waits a second longer for them than for others, by which another dispatcher sees, for that second, that they
-- are taken; what it has put off for longer is nobody's.
--
-- At most looks_max rows of all lanes are looked at, by the primary key, from where the first lane's are: what a lane
-- has before and behind those waits until it comes first. An index by account and lane would find those of one lane
-- alone, but it costs every publish, and a plan made for an empty table looks single ids up in it by reading all of it.
create function sealpost.take_let_go(
  of_accounts uuid[], of_lanes bigint[], from_ids uuid[], rows_max integer[], at timestamptz
)
returns table (number bigint, ids uuid[], next_id uuid)
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
  return query
  with asked as materialized (
    select a.n, a.account_id, a.lane, a.from_id, a.rows_max
    from unnest(of_accounts, of_lanes, from_ids, rows_max) with ordinality as a (account_id, lane, from_id, rows_max, n)
    where not sealpost.is_paused(a.account_id, a.lane)
  ), looked as materialized (
    select ctid as place, delivery_id, account_id, lane
    from sealpost.open_deliveries
    where delivery_id >= from_ids[1]
    order by delivery_id
    limit looks_max
  ), page as materialized (
    select a.n, a.rows_max, l.place, l.delivery_id, row_number() over (partition by a.n order by l.delivery_id) as nth
    from looked as l
    join asked as a on a.account_id = l.account_id and a.lane = l.lane
    where l.delivery_id >= a.from_id and a.from_id >= from_ids[1]
  ), free as (
    select o.ctid as place, page.n
    from page join sealpost.open_deliveries as o on o.ctid = page.place
    where page.nth <= page.rows_max and o.delivery_id = page.delivery_id
      and o.due_at <= at and (o.lease_until is null or o.lease_until <= at)
      and (o.wake_at <= at + wake_after or o.wake_at > at + wake_after + 2 * taken_for)
    for update of o skip locked
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + wake_after + taken_for
    from free
    where o.ctid = free.place
    returning free.n, o.delivery_id
  ), further as materialized (
    select page.n, delivery_id from page where nth = page.rows_max + 1
  ), last as materialized (
    select delivery_id from looked order by delivery_id offset looks_max - 1 limit 1
  )
  select a.n,
    array(select delivery_id from moved where moved.n = a.n order by delivery_id),
    case
      when a.from_id < from_ids[1] then a.from_id
      when further.delivery_id is not null then further.delivery_id
      when last.delivery_id is not null then greatest(last.delivery_id, a.from_id)
    end
  from asked as a left join further on further.n = a.n left join last on true;
end
$$;

-- 8. Parking: the account moves to another cell.

-- What has attempts to come of an account that is being moved to another cell, as it is in open_deliveries or, if
-- is_held, in held_deliveries. For the same reason in a table of its own: nothing lets it go. A delivery that has an
-- attempt to come is in one of the three.
create table sealpost.parked_deliveries (
  account_id uuid not null,
  delivery_id uuid not null,
  is_held boolean not null,
  lane bigint,
  due_at timestamptz,
  run_started_at timestamptz,
  lease_run integer,
  lease_alone boolean,
  wait_s float8,
  run_age_s float8,
  run integer not null,
  attempts_in_run integer not null,
  interruptions integer not null,
  body_bytes integer not null,
  primary key (account_id, delivery_id),
  check (is_held = (due_at is null))
);

-- Parks at most rows_max of what is open and nobody has, and of what is held. The rest: how many are left, and which
-- of those were cut, because the dispatcher that had them has died. Both tables are read in one statement: a delivery
-- that goes from one to the other meanwhile is in one of them.
create function sealpost.park_deliveries(of_account uuid, rows_max integer, out rest integer, out cut uuid[])
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  with free as (
    select delivery_id from sealpost.open_deliveries
    where account_id = of_account and lease_token is null
    order by delivery_id
    limit rows_max
    for update skip locked
  ), taken as (
    delete from sealpost.open_deliveries as o using free where o.delivery_id = any (array[free.delivery_id])
    returning o.*
  )
  insert into sealpost.parked_deliveries (
    account_id, delivery_id, is_held, lane, due_at, run_started_at, lease_run, lease_alone, run, attempts_in_run,
    interruptions, body_bytes)
  select account_id, delivery_id, false, lane, due_at, run_started_at, lease_run, lease_alone, run, attempts_in_run,
    interruptions, body_bytes
  from taken;

  with held as (
    select delivery_id from sealpost.held_deliveries
    where account_id = of_account
    order by delivery_id
    limit rows_max
    for update skip locked
  ), taken as (
    delete from sealpost.held_deliveries as h using held
    where h.account_id = of_account and h.delivery_id = any (array[held.delivery_id])
    returning h.*
  )
  insert into sealpost.parked_deliveries (
    account_id, delivery_id, is_held, wait_s, run_age_s, run, attempts_in_run, interruptions, body_bytes)
  select account_id, delivery_id, true, wait_s, run_age_s, run, attempts_in_run, interruptions, body_bytes
  from taken;

  select count(*), coalesce(array_agg(delivery_id) filter (where lease_until <= clock_timestamp()), '{}')
  into rest, cut
  from (
    select delivery_id, lease_until from sealpost.open_deliveries where account_id = of_account
    union all
    select delivery_id, null from sealpost.held_deliveries where account_id = of_account
  ) as still_there;
end
$$;

-- Puts back what is parked; what is due is the promoter's to wake. Returns how many.
create function sealpost.unpark_deliveries(of_account uuid) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  unparked integer;
begin
  with taken as (
    delete from sealpost.parked_deliveries where account_id = of_account returning *
  ), opened as (
    insert into sealpost.open_deliveries (
      delivery_id, account_id, lane, due_at, wake_at, run_started_at, lease_run, lease_alone, run, attempts_in_run,
      interruptions, body_bytes)
    select delivery_id, account_id, lane, due_at, greatest(due_at, now()), run_started_at, lease_run, lease_alone, run,
      attempts_in_run, interruptions, body_bytes
    from taken where not is_held
  ), held as (
    insert into sealpost.held_deliveries (
      account_id, delivery_id, wait_s, run_age_s, run, attempts_in_run, interruptions, body_bytes)
    select account_id, delivery_id, wait_s, run_age_s, run, attempts_in_run, interruptions, body_bytes
    from taken where is_held
  )
  select count(*) into unparked from taken;
  return unparked;
end
$$;

-- 9. What is altered of tables that are in use: last, because everybody waits until this file has ended.

-- A step of the replays waits here before it has locked anything: within it, recording would wait for it in turn.
lock table sealpost.replays in exclusive mode;

-- Which replay started a delivery's run. Each item is written once and changed once, so this costs two entries.
create index replay_items_delivery on sealpost.replay_items (delivery_id);

-- paused_at    null: not paused
-- gather_at    when its waiting deliveries are (next) looked for; null: they have all been found
-- gather_from  from which id on
alter table sealpost.endpoints
  add column paused_at timestamptz,
  add column gather_at timestamptz,
  add column gather_from uuid;
create index endpoints_paused on sealpost.endpoints (account_id) where paused_at is not null;
create index endpoints_gather on sealpost.endpoints (gather_at) where gather_at is not null;

-- sends_references      what is published for it is sent as a reference, whose URL begins with settings.analyses_url
-- forgets_after_success what is published for it is erased some time after it was delivered
-- signs_standard        the account's webhooks have the headers of Standard Webhooks, too
-- sealed_headers        its own headers as JSON, sealed like secrets; null: it has none
alter table sealpost.endpoints
  add column sends_references boolean not null default false,
  add column forgets_after_success boolean not null default false,
  add column signs_standard boolean not null default false,
  add column sealed_headers bytea,
  add constraint endpoints_options check (not (forgets_after_success and sends_references));
alter table sealpost.settings add column analyses_url text not null default '/v1/analyses/';

-- What webhooks have in place of the analysis, fixed when it was published; null: the analysis itself. That is null in
-- JSON once it was erased.
alter table sealpost.bodies add column reference text;

-- Whether what is in this lane is held. A test event that is sent while the endpoint is paused has a lane of its own.
create function sealpost.is_paused(of_account uuid, of_lane bigint) returns boolean
language sql stable
begin atomic
  select exists (
    select from sealpost.endpoints as e
    where e.account_id = of_account and e.paused_at is not null and sealpost.lane(of_account, null) = of_lane);
end;

-- delivering         all its items have been started, and some have an attempt to come: it does nothing here any more,
--                    and does not count against its account's budget
-- created_by         in the audit log's words; null: a process of the version before
-- created_by_key_id  null: the command line, or a process of the version before
-- created_by_viewer  whose session of the console it was; null: nobody's
-- space_ids          the spaces of all that it has. Null: not known, as of those that a version before makes. What was
--                    made until now has none.
-- failing            as last counted, like succeeded; see sealpost.replay_standing
alter table sealpost.replays
  drop constraint replays_status_check,
  add constraint replays_status_check check (status in ('running', 'delivering', 'done', 'cancelled')),
  drop constraint replays_check,
  add constraint replays_check check ((status in ('running', 'delivering')) = (ended_at is null)),
  add column note text check (char_length(note) <= 500),
  add column created_by_key_id uuid,
  add column created_by text check (created_by in ('key', 'staff_key', 'staff', 'command_line')),
  add column created_by_viewer text,
  add column space_ids uuid[] default '{}',
  add column failing integer not null default 0,
  add column failing_causes json not null default '[]';
alter table sealpost.replays alter column space_ids drop default;
create index replays_running_account on sealpost.replays (account_id) where status = 'running';

revoke execute on all functions in schema sealpost from public;
