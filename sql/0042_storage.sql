-- What an account may store, by kind, and what of it is not counted elsewhere: stored answers and what was published.

-- migrate writes the limits (src/base/model/storage.ts). Of a kind that has no row, or null, there may be any amount.
create table sealpost.storage_limits (
  kind text primary key
    check (kind in ('analyses', 'replays', 'answers', 'documents', 'leftovers', 'pages', 'workflows', 'runs')),
  bytes_max bigint check (bytes_max > 0)
);

-- Refuses what would bring an account beyond a limit; the API makes a problem of it.
create function sealpost.refuse_storage(of_kind text, bytes_max bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'SP009',
    message = format('the account may store %s bytes of the kind "%s", and this is more', bytes_max, of_kind),
    detail = json_build_object('kind', of_kind, 'bytesMax', bytes_max),
    hint = 'Remove what is not needed, or raise ACCOUNT_STORAGE_BYTES_MAX and run migrate again.';
end
$$;
revoke execute on function sealpost.refuse_storage(text, bigint) from public;

-- Answers that are stored for their Idempotency-Keys, added up by the day (UTC). Publishing's are not: they are small,
-- and many more than an account's other writes. user_id: for whom the keys acted; the account's own id: all of them.
create table sealpost.answer_bytes (
  account_id uuid not null,
  day date not null,
  user_id uuid not null,
  bytes bigint not null,
  primary key (account_id, day, user_id)
) with (fillfactor = 50);

-- Called last in a transaction: until it ends, the account's other writes wait here. A user may have as much as is left
-- for all others: however many take what they can, something is. of_user: null where a key acts for none.
create function sealpost.count_answer(of_account uuid, of_user uuid, bytes_more bigint, is_refused boolean) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  counted uuid;
  stored bigint;
  taken bigint := 0;
  most bigint;
begin
  foreach counted in array array_remove(array[of_account, of_user], null) loop
    insert into sealpost.answer_bytes as a (account_id, day, user_id, bytes)
    values (of_account, (now() at time zone 'UTC')::date, counted, bytes_more)
    on conflict (account_id, day, user_id) do update set bytes = a.bytes + excluded.bytes
    returning a.bytes into stored;
    taken := taken + stored;
  end loop;
  select l.bytes_max into most from sealpost.storage_limits as l where l.kind = 'answers';
  if is_refused and taken > most then
    perform sealpost.refuse_storage('answers', most);
  end if;
end
$$;
revoke execute on function sealpost.count_answer(uuid, uuid, bigint, boolean) from public;

-- What an account's bulk replays take, at 256 bytes for each delivery: those that were not started go when a replay is
-- cancelled.
create function sealpost.replay_bytes(of_account uuid) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(sum(1024 + 16 * coalesce(cardinality(r.space_ids), 0)
    + 256 * case r.status when 'cancelled' then r.replayed + r.skipped else r.matched end::bigint), 0)::bigint
  from sealpost.replays as r where r.account_id = of_account;
end;
revoke execute on function sealpost.replay_bytes(uuid) from public;

-- What was published, by the day it was counted. bytes: of the analyses as they are stored. attempt_bytes: of the
-- attempts of the deliveries of that day, which the log keeps as long as these; an attempt that is written down later
-- than others of its time, such as one that was interrupted, may be missing.
create table sealpost.published (
  account_id uuid not null,
  day date not null,
  analyses bigint not null default 0,
  bytes bigint not null default 0,
  attempt_bytes bigint not null default 0,
  primary key (account_id, day)
) with (fillfactor = 50);

-- Its one row: what was published with a serial up to here is counted, and attempts that ended before ended_to.
create table sealpost.published_state (
  only_row boolean primary key default true check (only_row),
  serial bigint not null default 0,
  ended_to timestamptz not null default now(),
  counted_at timestamptz not null default now()
);
insert into sealpost.published_state default values;

-- Whether the account has published what it may, and is refused more until some of it is forgotten. Only where the
-- operator has set a limit.
alter table sealpost.accounts add column is_full boolean not null default false;
create index accounts_full on sealpost.accounts (id) where is_full;

-- For how many days bodies and the log are kept, the day under way included: partitions are dropped by whole days.
create function sealpost.days_kept(out bodies integer, out log integer)
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select ceil(coalesce(s.analysis_retention_ms, 604800000) / 86400000.0)::integer + 1,
    ceil(coalesce(s.log_retention_ms, 2592000000) / 86400000.0)::integer + 1
  from sealpost.settings as s;
end;
revoke execute on function sealpost.days_kept() from public;

-- What an account's analyses take, with so much for each one's rows in the log, and their attempts.
create function sealpost.published_bytes(of_account uuid, log_bytes integer) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(
    sum(p.bytes) filter (where p.day > (now() at time zone 'UTC')::date - kept.bodies)
      + sum(p.analyses * log_bytes + p.attempt_bytes), 0)::bigint
  from sealpost.published as p cross join sealpost.days_kept() as kept
  where p.account_id = of_account and p.day > (now() at time zone 'UTC')::date - kept.log;
end;
revoke execute on function sealpost.published_bytes(uuid, integer) from public;

-- One step: counts at most rows_max of what was published since, and attempts that ended since, up to `lag` ago, by
-- 256 bytes and their texts, because a receiver's answer makes one ten times as large as another. It judges the
-- accounts of both, and those that were full. A serial that may still be committed is waited for: nothing published is
-- missed or counted twice. Neither publishing nor recording does anything for it: on a row they would queue.
create function sealpost.count_published(rows_max integer, log_bytes integer, lag interval, out is_behind boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  since bigint;
  upto bigint;
  reached bigint;
  touched uuid[];
  ended_from timestamptz;
  ended_upto timestamptz;
  attempted uuid[];
  most bigint;
begin
  is_behind := false;
  select s.serial, s.ended_to into since, ended_from from sealpost.published_state as s for update skip locked;
  if since is null then
    return;
  end if;
  select least(steps.serial, (select min(lower(g.serials)) - 1 from unnest(steps.gaps) as g)) into upto
  from sealpost.feed_steps as steps order by steps.step desc limit 1;
  upto := greatest(upto, since);

  with fresh as (
    select serial, account_id, pg_column_size(analysis) as bytes from sealpost.bodies
    where serial > since and serial <= upto order by serial limit rows_max
  ), added as (
    insert into sealpost.published as p (account_id, day, analyses, bytes)
    select account_id, (now() at time zone 'UTC')::date, count(*), sum(bytes) from fresh group by account_id
    on conflict (account_id, day) do update
    set analyses = p.analyses + excluded.analyses, bytes = p.bytes + excluded.bytes
    returning account_id
  )
  select case when count(*) = rows_max then max(serial) else upto end, count(*) = rows_max,
    (select array_agg(account_id) from added)
  into reached, is_behind, touched
  from fresh;

  ended_upto := greatest(ended_from, least(ended_from + interval '5 minutes', clock_timestamp() - lag));
  is_behind := is_behind or ended_upto = ended_from + interval '5 minutes';
  with added as (
    insert into sealpost.published as p (account_id, day, attempt_bytes)
    select account_id, (sealpost.uuid_v7_time(delivery_id) at time zone 'UTC')::date,
      sum(256 + coalesce(pg_column_size(target_url), 0) + coalesce(pg_column_size(response_headers), 0)
        + coalesce(pg_column_size(response_excerpt), 0))
    from sealpost.attempts where ended_at >= ended_from and ended_at < ended_upto group by 1, 2
    on conflict (account_id, day) do update set attempt_bytes = p.attempt_bytes + excluded.attempt_bytes
    returning account_id
  )
  select array_agg(account_id) into attempted from added;
  touched := touched || attempted;
  update sealpost.published_state set serial = reached, ended_to = ended_upto, counted_at = clock_timestamp();

  select l.bytes_max into most from sealpost.storage_limits as l where l.kind = 'analyses';
  if most is null and not exists (select from sealpost.accounts where is_full) then
    return;
  end if;
  -- An account that is being moved is somebody else's now: it is judged next time.
  update sealpost.accounts as a
  set is_full = judged.is_full
  from (
    select id, coalesce(sealpost.published_bytes(id, log_bytes) >= most, false) as is_full
    from (
      select id from sealpost.accounts where is_full or id = any (touched) order by id for no key update skip locked
    ) as free
  ) as judged
  where a.id = judged.id and a.is_full <> judged.is_full;
end
$$;
revoke execute on function sealpost.count_published(integer, integer, interval) from public;

-- Written by who is asked whether the database can be written to: a new file, and room in it.
create unlogged table sealpost.write_probe (filler bytea);
alter table sealpost.write_probe alter column filler set storage plain;
