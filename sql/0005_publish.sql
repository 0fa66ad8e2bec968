-- Publishing: the analysis, its delivery and its wake-up, in the caller's transaction or not at all.
--
-- SQLSTATEs of our own (class SP), each naming the refused element in DETAIL as JSON {"index", "code"}:
--   SP001 unknown_account     SP002 invalid_analysis     SP003 analysis_too_large
--   SP004 target_refused      SP005 analysis_conflict    SP006 arguments do not fit together

create function sealpost.publish_fault(state text, element integer, code text, message text, hint text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using
    errcode = state,
    message = message,
    detail = json_build_object('index', element - 1, 'code', code)::text,
    hint = hint;
end
$$;

-- Whether a JSON text is nested more than 512 levels deep. Strings go first, then whatever is not a bracket; what is
-- left is arrays in arrays, for jsonb to look into. (Taking the innermost pairs away, pass after pass, took 2 s for a
-- text of 1 MiB.) Called only for texts with more than 512 opening brackets.
create function sealpost.is_too_deep(analysis text) returns boolean
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  brackets constant text := translate(
    regexp_replace(regexp_replace(analysis, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), '{}', '[]');
begin
  -- The root is level 0.
  return jsonb_path_exists(replace(brackets, '][', '],[')::jsonb, 'strict $.**{512}');
exception
  -- Thousands of levels are too many for PostgreSQL's own stack.
  when statement_too_complex then
    return true;
end
$$;

-- Why a webhook_url is refused, as far as its text tells SQL: null means "not refused here". The dispatcher and the
-- HTTP operation know more (src/target/); this must never refuse what they allow.
-- unsafe: what UNSAFE_ALLOWED_TARGETS lifts the name, address and port rules for.
create function sealpost.webhook_url_fault(url text, unsafe text[]) returns text
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
    host ~ '\.$' or host = 'metadata.goog'
    -- A number is an address, which the full rules read and judge.
    or (strpos(host, '.') = 0 and host !~ '^(?:0x[0-9a-f]*|[0-9]+)$')
    or host ~ (
      '\.(localhost|localdomain|local|internal|intranet|home|home\.arpa|lan|corp|private|'
      || 'test|invalid|alt|onion|arpa)$')
  ) then
    return 'its host name is not a public one';
  end if;
  return null;
end
$$;

-- Who waits for whom: the account and the origin of its webhook_url, or the account's endpoint.
-- A hash collision only makes two lanes share their turns.
create function sealpost.lane(account_id uuid, webhook_url text) returns bigint
language sql immutable parallel safe
as $$
  select hashtextextended(
    account_id::text || coalesce(lower(substring(webhook_url from '^[^:]*://[^/?]*')), ' endpoint'), 0)
$$;

-- Adds the wake-ups of some deliveries, 50 to a job. The job is a wake-up only; the row is the truth. Its
-- max_attempts is the largest there is, because graphile-worker never runs a job again that has used them up.
--
-- The rows are written here and not by graphile_worker.add_jobs, which notifies in every transaction: PostgreSQL lets
-- transactions that notify commit only one after the other, each waiting for the disk of the one before. Where a
-- flush took 2 ms, 24 pipelines published 380 transactions a second through add_jobs, and 2,100 like this.
create function sealpost.add_wakeups(delivery_ids uuid[], lanes bigint[]) returns void
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
        'lanes', array(select l::text from unnest(lanes[first : first + 49]) as l)),
      32767
    from generate_series(1, cardinality(delivery_ids), 50) as first;
  end if;
end
$$;

-- Here, because of publishers that made it at the same time one would wait for the whole transaction of the other.
insert into graphile_worker._private_tasks (identifier) values ('deliver') on conflict do nothing;

-- graphile-worker's cleanup deletes tasks without jobs, and a runner looks a task's id up once, when it starts: with
-- another id for the same name, every dispatcher would find nothing to do until it is restarted.
create function sealpost.keep_task() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return null;
end
$$;
create trigger sealpost_keep_task before delete on graphile_worker._private_tasks
  for each row when (old.identifier = 'deliver') execute function sealpost.keep_task();

-- Tells the dispatchers at the very end of a transaction, unless another one that tells them is just committing: they
-- look again a few milliseconds later (src/dispatch/wakeups.ts), and now and then without being told. Deferred, so
-- that a caller's long transaction does not keep all others from telling; and with the owner's rights, because until
-- PostgreSQL 18 a deferred trigger runs with those of whoever commits.
create function sealpost.announce_wakeups() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The key is the bytes of "sealwake".
  if pg_try_advisory_xact_lock(x'7365616c77616b65'::bigint) then
    perform pg_notify('jobs:insert', '{"count":1}');
  end if;
  return null;
end
$$;
create constraint trigger sealpost_announce_wakeups after insert on graphile_worker._private_jobs
  deferrable initially deferred for each row execute function sealpost.announce_wakeups();

-- The analysis as id and status may be read from it. `json -> 'id'` fails on a text that holds \u0000 or a lone
-- surrogate anywhere, so escapes are blanked to `?`. Null: "id" or "status" stands in it as a member name written with
-- escapes, which a JSON parser would take for one and the blanked copy hides.
create function sealpost.without_escapes(body text) returns json
language plpgsql immutable
as $$
declare
  escape constant text := '\\(?:u[0-9a-fA-F]{4}|.)';
  unslashed constant text := replace(body, '\\', '??');
  plain constant json := regexp_replace(unslashed, escape, '?', 'g')::json;
  decoded json;
begin
  if unslashed ~ '\\u00[67]' then
    decoded := regexp_replace(
      replace(replace(replace(replace(replace(replace(unslashed,
        '\u0069', 'i'), '\u0064', 'd'), '\u0073', 's'), '\u0074', 't'), '\u0061', 'a'), '\u0075', 'u'),
      escape, '?', 'g')::json;
    if (select count(*) from json_object_keys(decoded) as name where name in ('id', 'status'))
      <> (select count(*) from json_object_keys(plain) as name where name in ('id', 'status'))
    then
      return null;
    end if;
  end if;
  return plain;
end
$$;

-- What publishing reads of an analysis, or why it is refused (state, code and fault are null when it is not).
-- digest and bytes are the text's: making a text of a json costs as much as storing it, so it is done once.
create type sealpost.read_analysis as (
  id text, event text, digest bytea, bytes integer, state text, code text, fault text);

create function sealpost.read_analysis(analysis json, bytes_max integer) returns sealpost.read_analysis
language plpgsql immutable
as $$
declare
  body constant text := analysis::text;
  bytes constant integer := octet_length(body);
  readable json := analysis;
  id json;
  status json;
  id_text text;
  fault text;
begin
  if bytes > bytes_max then
    return row(null, null, null, null, 'SP003', 'analysis_too_large',
      format('it has %s bytes, more than the %s that are allowed', bytes, bytes_max))::sealpost.read_analysis;
  end if;
  if analysis is null or json_typeof(analysis) <> 'object' then
    return row(null, null, null, null, 'SP002', 'invalid_analysis', 'it is not a JSON object')::sealpost.read_analysis;
  end if;
  -- 513 levels need 513 opening brackets and as many closing ones: most texts are too short, or have too few.
  if bytes >= 1026
    and bytes - octet_length(replace(replace(body, '[', ''), '{', '')) > 512
    and sealpost.is_too_deep(body)
  then
    return row(null, null, null, null, 'SP002', 'invalid_analysis', 'it is nested more than 512 levels deep')
      ::sealpost.read_analysis;
  end if;
  if strpos(body, '\') > 0 then
    readable := sealpost.without_escapes(body);
  end if;
  id := readable -> 'id';
  status := readable -> 'status';
  id_text := id #>> '{}';
  fault := case
    when readable is null then 'the member name "id" or "status" is written with escapes'
    when id is null then 'it has no member "id"'
    when json_typeof(id) <> 'string' then 'its "id" is not a string'
    when length(id_text) not between 1 and 200 or id_text ~ '[^A-Za-z0-9._:-]' then
      'its "id" is not 1 to 200 characters out of A-Z a-z 0-9 . _ : - (written without escapes)'
    when status is null then 'it has no member "status"'
    when status::text not in ('"succeeded"', '"failed"') then
      'its "status" is neither "succeeded" nor "failed" (written without escapes)'
  end;
  if fault is not null then
    return row(null, null, null, null, 'SP002', 'invalid_analysis', fault)::sealpost.read_analysis;
  end if;
  return row(id_text, 'analysis.' || (status #>> '{}'), sha256(convert_to(body, 'UTF8')), bytes, null, null, null)
    ::sealpost.read_analysis;
end
$$;

-- Raises the error that names the first element which publishing refuses, and why.
create function sealpost.refuse_publication(account_ids uuid[], analyses json[], webhook_urls text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  refused record;
begin
  select input.n, fault.* into refused
  from unnest(account_ids, analyses, webhook_urls) with ordinality as input (account_id, analysis, webhook_url, n)
  cross join sealpost.settings
  left join sealpost.accounts on accounts.id = input.account_id
  cross join lateral sealpost.webhook_url_fault(coalesce(webhook_url, 'https://a.example'), unsafe_allowed_targets)
    as url_fault
  cross join lateral sealpost.read_analysis(analysis, analysis_bytes_max) as reading
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
  order by input.n
  limit 1;
  if not found then
    raise exception using errcode = '40001',
      message = 'an account or a setting was changed while an analysis was published',
      hint = 'Run the transaction again.';
  end if;
  perform sealpost.publish_fault(refused.state, refused.n::integer, refused.code,
    format('analysis at index %s: %s', refused.n - 1, refused.fault), refused.hint);
end
$$;

-- Its joins say `= any (array[…])`, so that an index serves for looking up and never for reading a whole table in
-- order, as a plan made for an empty one would, for as long as the caller's session lives. Without jit: before
-- PostgreSQL 18 a scan that is switched off and needed all the same (of the settings' one row) costs so much that every
-- call would be compiled.
--
-- The one way in, for every caller. at: the moment of publishing (only tests give another than now).
-- Returns delivery ids in input order; the same analysis again returns the delivery that it already is.
create function sealpost.publish(
  account_ids uuid[], analyses json[], webhook_urls text[], is_example boolean, at timestamptz
) returns uuid[]
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
  total constant integer := coalesce(cardinality(account_ids), 0);
  analysis_ids text[];
  events text[];
  digests bytea[];
  sizes integer[];
  id_prefix constant bytea := sealpost.uuid_v7_prefix(at);
  have_target boolean[];
  delivery_ids uuid[];
  is_refused boolean;
  fresh uuid[];
  open_ids uuid[];
  open_lanes bigint[];
  known record;
  -- What has another form is left out: it would go into a header.
  trace constant text := substring(current_setting('sealpost.traceparent', true) from
    '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$');
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

  -- 1. Read and judge everything before anything is stored.
  select
    array_agg((reading).id), array_agg((reading).event), array_agg((reading).digest), array_agg((reading).bytes),
    array_agg(has_target), array_agg(sealpost.uuid_v7_of(id_prefix)),
    bool_or(is_unknown or url_fault is not null or (reading).fault is not null)
  into analysis_ids, events, digests, sizes, have_target, delivery_ids, is_refused
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
  ) as judged;
  if is_refused then
    perform sealpost.refuse_publication(account_ids, analyses, webhook_urls);
  end if;

  -- 2. Register, in one order for everybody (batches in different orders would deadlock). Whoever comes second
  -- waits here for the first to commit, and reads what is known in a statement of its own (4): insert-or-select in
  -- one statement loses that race.
  with registered as (
    insert into sealpost.analyses (account_id, id, delivery_id, digest)
    select account_id, analysis_id, delivery_id, digest
    from unnest(account_ids, analysis_ids, delivery_ids, digests)
      as input (account_id, analysis_id, delivery_id, digest)
    order by account_id, analysis_id
    on conflict (account_id, id) do nothing
    returning delivery_id
  )
  select coalesce(array_agg(delivery_id), '{}') into fresh from registered;

  -- 3. Store what is new. Without any target a delivery ends here, visible in the log, and nothing is woken.
  with added as materialized (
    select *
    from unnest(account_ids, analyses, webhook_urls, analysis_ids, delivery_ids, events, sizes, have_target)
      as input (account_id, analysis, webhook_url, analysis_id, delivery_id, event, bytes, has_target)
    where cardinality(fresh) = total or delivery_id = any (fresh)
  ), body as (
    insert into sealpost.bodies (delivery_id, account_id, event, webhook_url, traceparent, analysis)
    select delivery_id, account_id, event, webhook_url, trace, analysis from added
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
  if cardinality(fresh) < total then
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
      where registry.delivery_id is distinct from input.delivery_id
    loop
      if known.delivery_id is null then
        raise exception using errcode = '40001',
          message = format('analysis at index %s was being forgotten while it was published again', known.n - 1),
          hint = 'Run the transaction again.';
      end if;
      if not known.is_same then
        perform sealpost.publish_fault('SP005', known.n::integer, 'analysis_conflict',
          format('analysis at index %s: "%s" was already published with another text or webhook_url',
            known.n - 1, known.analysis_id),
          'An analysis id stands for one result: publish a new result under a new id.');
      end if;
      delivery_ids[known.n] := known.delivery_id;
    end loop;
  end if;

  return delivery_ids;
end
$$;

-- For the pipeline's role, which gets EXECUTE on these two and nothing else. Its session may read backslashes in string
-- literals as it likes; the functions behind these are written for the standard's way. traceparent: set it for the
-- transaction with `select set_config('sealpost.traceparent', '00-…', true)`, and it goes out with the webhook.
create function sealpost.publish_analyses(account_ids uuid[], analyses json[], webhook_urls text[]) returns uuid[]
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $$ select sealpost.publish(account_ids, analyses, webhook_urls, false, now()) $$;

create function sealpost.publish_analysis(account_id uuid, analysis json, webhook_url text default null) returns uuid
language sql volatile security definer
set search_path = pg_catalog, pg_temp
set standard_conforming_strings = on
as $$ select (sealpost.publish(array[account_id], array[analysis], array[webhook_url], false, now()))[1] $$;

revoke execute on all functions in schema sealpost from public;
