-- Activity: how many attempts ended when, of whom, where and how, added up by the leader while they end, so that a
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

-- The partitions' own table is taken first: whoever writes through it has several days, which would cross with ours.
lock table only sealpost.attempts in share row exclusive mode;

-- What the counting finds new attempts by: rows come in nearly the order of their ends, so a summary of each 256 kB is
-- enough, at a thousandth of a b-tree's size. Made day by day, today's last: see 0021.
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
  end loop;
end
$$;

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

-- A trigger, because processes of the version before write attempts, too. Whoever takes no more than count_activity's
-- lag, less these 5 seconds, to commit an attempt has it counted by when it ended, and everybody else by this.
create trigger note_late_attempt after insert on sealpost.attempts
for each row when (new.ended_at < now() - interval '5 seconds')
execute function sealpost.note_late_attempt();

-- A log that is there already is counted from its beginning.
insert into sealpost.activity_state (counted_to, fold_at)
select case when exists (select from sealpost.attempts) then now() - interval '30 days' else now() end,
  date_bin('1 hour', now() - interval '48 hours', '2000-01-01 00:00Z');

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

revoke execute on function sealpost.note_late_attempt() from public;
revoke execute on function sealpost.count_activity(interval, interval, integer) from public;
revoke execute on function sealpost.fold_activity(interval, integer) from public;
