-- The short way of 0018 for everybody who publishes one analysis: the API does, too, when nobody else asks meanwhile.

-- As before. Its text is inlined only where it is immutable like the function: what is extracted from a time with a
-- zone is not. A call of its own took 25 to 40 microseconds.
create or replace function sealpost.uuid_v7_prefix(at timestamptz) returns bytea
language sql immutable parallel safe
begin atomic
  select substring(int8send((extract(epoch from at at time zone 'UTC') * 1000000)::bigint / 1000) from 3)
    || substring(int4send(
      (x'7000'::int
        | (((extract(epoch from at at time zone 'UTC') * 1000000)::bigint % 1000) * 4096 / 1000)::int)) from 3);
end;

-- Publishes a good new analysis for an account with an endpoint, straight into the tables. Null for whatever else it
-- is (a refusal, an analysis that is known, no target, a paused endpoint): then nothing was stored, and
-- sealpost.publish_each has the answer.
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
  reading sealpost.read_analysis;
  new_id constant uuid := sealpost.uuid_v7_of(sealpost.uuid_v7_prefix(now()));
  its_lane bigint;
begin
  select settings.analysis_bytes_max, tasks.id, endpoints.url is not null and endpoints.paused_at is null
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

-- As before, by way of it. A webhook_url has to be judged.
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

revoke execute on function sealpost.publish_fresh(uuid, json, text) from public;
