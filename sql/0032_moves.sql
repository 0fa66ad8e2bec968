-- Moving an account to another cell, which is another database (src/moves/). The account is closed here, all that is
-- open of it is parked, its rows are copied, and then it appears there in one transaction.

-- Where the account has gone, or is going: the name of a cell, for its callers. Null: it is here. Publishing and writes
-- are refused; reads go on.
alter table sealpost.accounts add column moved_to text check (length(moved_to) between 1 and 100);

-- One for each account that was moved, in both databases, under one id.
--
-- direction     out: this is the source; in: the target
-- step          begun; still (source only: nothing of the account changes any more, and copying may begin); done (it is
--               open at the target); deleted (source only: what was copied is gone)
-- other_cell    the other one's name; null: it has none
-- feed_ends_at  the source's last position: no cursor that is given from then on is beyond it
-- copied        of the target: the key of each table up to which its rows are here
create table sealpost.moves (
  account_id uuid primary key,
  id uuid not null,
  direction text not null check (direction in ('out', 'in')),
  step text not null default 'begun' check (step in ('begun', 'still', 'done', 'deleted')),
  other_cell text,
  feed_ends_at bigint,
  copied json not null default '{}',
  begun_at timestamptz not null default now(),
  ended_at timestamptz,
  check ((step in ('done', 'deleted')) = (ended_at is not null))
);

-- What has attempts to come of an account that is being moved, as it is in open_deliveries or, if is_held, in
-- held_deliveries. In a table of its own no dispatcher finds it, of whichever version, and nothing lets it go.
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

-- Parks at most rows_max of what is open and nobody has, and of what is held. The rest: how many are left, and which of
-- those were cut, because the dispatcher that had them has died. Both tables are read in one statement: a delivery that
-- goes from one to the other meanwhile is in one of them.
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

-- As before, and what is published for an account that has moved is refused:
--   SP007 account_moved
create or replace function sealpost.publication_faults(account_ids uuid[], analyses json[], webhook_urls text[])
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

-- As before, and accounts that have moved are refused like those that never were here.
create or replace function sealpost.publish_each(
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
  fresh uuid[];
  open_ids uuid[];
  open_lanes bigint[];
  known record;
begin
  -- 1. Read and judge everything before anything is stored.
  select
    array_agg((reading).id), array_agg((reading).event), array_agg((reading).digest), array_agg((reading).bytes),
    array_agg(has_target), bool_or(is_paused),
    array_agg(case when not is_refused then sealpost.uuid_v7_of(id_prefix) end),
    array_agg(case when is_refused then 'refused' end)
  into analysis_ids, events, digests, sizes, have_target, is_any_paused, delivery_ids, codes
  from (
    select reading, has_target, is_paused,
      is_not_here or url_fault is not null or (reading).fault is not null as is_refused
    from (
      select
        sealpost.read_analysis(analysis, analysis_bytes_max) as reading,
        coalesce(webhook_url, endpoints.url) is not null as has_target,
        endpoints.paused_at is not null as is_paused,
        -- Not the id: an index that holds all that is asked for may be read in order, too.
        accounts.created_at is null or accounts.moved_to is not null as is_not_here,
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
        account_ids, analyses, webhook_urls, traceparents, analysis_ids, delivery_ids, events, sizes, have_target)
      as input (account_id, analysis, webhook_url, traceparent, analysis_id, delivery_id, event, bytes, has_target)
    where cardinality(fresh) = cardinality(account_ids) or delivery_id = any (fresh)
  ), body as (
    insert into sealpost.bodies (delivery_id, account_id, event, webhook_url, traceparent, analysis)
    select delivery_id, account_id, event, webhook_url,
      substring(traceparent from '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$'),
      analysis
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
    select delivery_id, account_id, sealpost.lane(account_id, webhook_url), at, at + wake_after, bytes
    from added where has_target
    returning delivery_id, lane
  )
  select array_agg(delivery_id), array_agg(lane) into open_ids, open_lanes from opened;

  -- Apart: in the statement above it cost everybody's batches some 5 %.
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

  -- 4. What was known already, be it from this very batch, has to be the same, and is the delivery that it was.
  if cardinality(fresh) < cardinality(account_ids) then
    for known in
      select input.n, input.analysis_id, registry.delivery_id,
        registry.digest = input.digest
          and logged.webhook_url is not distinct from input.webhook_url as is_same
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
      codes[known.n] := case when not known.is_same then 'analysis_conflict' end;
    end loop;
  end if;
end
$$;

-- As before: an account that has moved is sealpost.publish_each's to refuse.
create or replace function sealpost.publish_fresh(account_id uuid, analysis json, traceparent text) returns uuid
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
  reading sealpost.read_analysis;
  new_id constant uuid := sealpost.uuid_v7_of(sealpost.uuid_v7_prefix(now()));
  its_lane bigint;
begin
  select settings.analysis_bytes_max, tasks.id,
    endpoints.url is not null and endpoints.paused_at is null and accounts.moved_to is null
  into bytes_max, deliver, has_target
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
  with body as (
    insert into sealpost.bodies (delivery_id, account_id, event, traceparent, analysis)
    values (new_id, of_account, reading.event, trace, text_of_analysis)
  ), logged as (
    insert into sealpost.deliveries (id, account_id, event, status, analysis_id)
    values (new_id, of_account, reading.event, 'pending', reading.id)
  ), opened as (
    insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, body_bytes)
    values (new_id, of_account, its_lane, now(), now() + interval '15 seconds', reading.bytes)
  )
  -- The wake-up, as add_wakeups writes it.
  insert into graphile_worker._private_jobs (task_id, payload, max_attempts)
  values (
    deliver,
    format('{"ids":["%s"],"accounts":["%s"],"lanes":["%s"]}', new_id, of_account, its_lane)::json,
    32767);
  return new_id;
end
$$;

-- As before, and every write asks here first whether its account has moved. Then even what was answered is not answered
-- again: at the target it is. To processes of the version before the key is in progress.
drop function sealpost.claim_idempotency_keys(uuid[], uuid[], text[]);
create function sealpost.claim_idempotency_keys(account_ids uuid[], key_ids uuid[], idempotency_keys text[])
returns table (
  n bigint, lock bigint, is_ours boolean, is_held boolean,
  fingerprint bytea, status integer, headers json, body bytea, is_sealed boolean, moved_to text)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
  locks bigint[];
  ours boolean[];
begin
  select array_agg(named.lock order by named.n), array_agg(pg_try_advisory_xact_lock(named.lock) order by named.n)
  into locks, ours
  from (
    select input.n, hashtextextended(account_id || ' ' || key_id || ' ' || idempotency_key, 1) as lock
    from unnest(account_ids, key_ids, idempotency_keys) with ordinality
      as input (account_id, key_id, idempotency_key, n)
    offset 0
  ) as named;
  -- A statement of its own, so that it sees what the holder before us committed. An answer is final, with or without
  -- the lock.
  return query
  select input.n, locks[input.n], ours[input.n] and a.moved_to is null,
    coalesce(k.status is null and k.claim_until > now(), false),
    k.fingerprint, case when a.moved_to is null then k.status end, k.headers, k.body, k.is_sealed, a.moved_to
  from unnest(account_ids, key_ids, idempotency_keys) with ordinality
    as input (account_id, key_id, idempotency_key, n)
  left join sealpost.idempotency_keys as k
    on k.account_id = any (array[input.account_id]) and k.key_id = any (array[input.key_id])
      and k.idempotency_key = any (array[input.idempotency_key])
  left join sealpost.accounts as a on a.id = any (array[input.account_id])
  order by input.n;
end
$$;

-- As before, but for accounts that have moved, or of which not all is here yet.
create or replace function sealpost.replay_shares(at timestamptz, items_max integer)
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

-- As before: deliveries of a replay that have an attempt to come, parked ones too.
create or replace function sealpost.count_replay_open(of_replay uuid, of_account uuid) returns integer
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

revoke execute on all functions in schema sealpost from public;
