-- Publishing refuses what is new for an account that is full. It is known from a row that publishing reads in any case.

-- As before, and:
--   SP008 account_full
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

-- As before; what is known already is no more than there is.
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
        -- Not the id: an index that holds all that is asked for may be read in order, too.
        accounts.created_at is null or accounts.moved_to is not null as is_not_here,
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

-- As before: an account that is full is sealpost.publish_each's to refuse.
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
    endpoints.url is not null and endpoints.paused_at is null and accounts.moved_to is null and not accounts.is_full
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
