-- Whoever wakes or opens a delivery knows of paused endpoints: see 0023_holding.sql. Functions keep their signatures.

-- As before, and what is due and held takes no wake-up: it is held. That is what failed after it was in flight when its
-- endpoint was paused, and what was published while it was being paused.
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
  is_any_paused constant boolean := exists (select from sealpost.endpoints where paused_at is not null);
  ids uuid[];
  lanes bigint[];
  to_hold uuid[];
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
    select ctid as place, delivery_id, account_id, lane, wake_at,
      case when is_any_paused and lease_token is null and lane = sealpost.lane(account_id, null) then
        exists (select from sealpost.endpoints as e where e.account_id = o.account_id and e.paused_at is not null)
      else false end as is_paused
    from sealpost.open_deliveries as o
    where wake_at <= at and due_at <= at and (lease_until is null or lease_until <= at)
    order by wake_at
    limit rows_max
    for update skip locked
  ), in_lane as (
    select place, delivery_id, account_id, lane,
      row_number() over (partition by account_id, lane order by wake_at, delivery_id) - 1 as lane_rank
    from due where not is_paused
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

-- As before, and what would go to a paused endpoint is held from the start. Test events go out all the same, in a lane
-- of their own, which is not held.
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
      is_unknown or url_fault is not null or (reading).fault is not null as is_refused
    from (
      select
        sealpost.read_analysis(analysis, analysis_bytes_max) as reading,
        coalesce(webhook_url, endpoints.url) is not null as has_target,
        endpoints.paused_at is not null as is_paused,
        -- Not the id: an index that holds all that is asked for may be read in order, too.
        accounts.created_at is null as is_unknown,
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

-- As before, and the next run of what is held, or would go to a paused endpoint, is held.
create or replace function sealpost.start_next_run(
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
  elsif is_held then
    update sealpost.held_deliveries
    set run = next_run, attempts_in_run = 0, interruptions = 0, wait_s = 0, run_age_s = null
    where account_id = of_account and delivery_id = of_delivery;
  elsif sealpost.is_paused(of_account, of_lane) then
    insert into sealpost.held_deliveries (account_id, delivery_id, run, body_bytes)
    select of_account, of_delivery, next_run, octet_length(analysis::text)
    from sealpost.bodies where delivery_id = of_delivery;
    is_held := found;
    if not found then
      outcome := 'expired';
      next_run := null;
      return;
    end if;
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
  if not is_held and (opened.lease_until is null or opened.lease_until <= at) then
    wakes_lane := of_lane;
  end if;
  outcome := 'replayed';
end
$$;

-- As before: deliveries of a replay that have an attempt to come, held ones too.
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
    limit 1
  ) as d
  where i.replay_id = of_replay and i.outcome = 'replayed'
$$;

-- For dispatchers of the version before: a step a second, and one of what is held.
create or replace function sealpost.advance_replays(analysis_retention interval, at timestamptz) returns integer
language sql volatile
begin atomic
  select sealpost.advance_replays(analysis_retention, at, 1000) + holds.released + holds.expired
  from sealpost.advance_holds(analysis_retention, at, 100, 1000) as holds;
end;

-- A replay whose last deliveries the version before started, in the step before its function was replaced: it left the
-- end to its next step, which ours does not make for a replay with nothing to start.
update sealpost.replays
set status = case when replayed > 0 then 'delivering' else 'done' end,
  ended_at = case when replayed = 0 then now() end, count_at = now()
where status = 'running' and replayed + skipped >= matched;

revoke execute on all functions in schema sealpost from public;
