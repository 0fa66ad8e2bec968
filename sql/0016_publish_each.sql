-- Publishing for several callers in one transaction: each analysis is judged alone, and has an answer of its own.

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

-- The one way in, for every caller. Each element is published or refused alone: delivery_ids has null where codes says
-- why not, 'refused' (publication_faults says what for) or 'analysis_conflict'. The same analysis again is the delivery
-- that it already is. at: the moment of publishing (only tests give another than now).
--
-- Its joins say `= any (array[…])`, so that an index serves for looking up and never for reading a whole table in
-- order, as a plan made for an empty one would, for as long as the caller's session lives. Without jit: before
-- PostgreSQL 18 a scan that is switched off and needed all the same (of the settings' one row) costs so much that every
-- call would be compiled.
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
  fresh uuid[];
  open_ids uuid[];
  open_lanes bigint[];
  known record;
begin
  -- 1. Read and judge everything before anything is stored.
  select
    array_agg((reading).id), array_agg((reading).event), array_agg((reading).digest), array_agg((reading).bytes),
    array_agg(has_target), array_agg(case when not is_refused then sealpost.uuid_v7_of(id_prefix) end),
    array_agg(case when is_refused then 'refused' end)
  into analysis_ids, events, digests, sizes, have_target, delivery_ids, codes
  from (
    select reading, has_target, is_unknown or url_fault is not null or (reading).fault is not null as is_refused
    from (
      select
        sealpost.read_analysis(analysis, analysis_bytes_max) as reading,
        coalesce(webhook_url, endpoints.url) is not null as has_target,
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

revoke execute on function
  sealpost.publication_faults(uuid[], json[], text[]),
  sealpost.publish_each(uuid[], json[], text[], text[], boolean, timestamptz)
  from public;
