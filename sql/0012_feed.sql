-- The feed: everything that was published, for each account in one order that never changes behind a reader.
--
-- Ids and serials are given before a transaction commits, so neither is an order to read by: whoever has read up to one
-- never learns of a smaller one that commits late. Readers follow positions instead, which one process at a time gives
-- to events that have committed (sealpost.sequence_events).
--
-- What lost: an xid horizon, which one idle transaction anywhere in the cluster holds for everybody, and which survives
-- neither a restore nor a move; a queue of its own to take events from, which costs every publisher a row and cannot be
-- cleaned while an old transaction is open; a mark on the delivery, whose update would get into the way of its claim.

-- position: microseconds since 1970 at which the event was sequenced, or a little more, so that no two are equal; it
-- says how old a cursor is, and a database that was restored to an earlier state goes on beyond all that it ever gave.
create table sealpost.feed (
  account_id uuid not null,
  position bigint not null,
  delivery_id uuid not null,
  primary key (account_id, position)
) partition by range (position);

-- How far a reader has come who keeps no cursor itself, under a name of its own. updated_at, key_id: when, and with
-- which key, it last said so. other_seen_at: when two readers were last seen to have the name.
create table sealpost.feed_consumers (
  account_id uuid not null,
  name text not null,
  position bigint not null,
  updated_at timestamptz not null,
  key_id uuid not null,
  other_seen_at timestamptz,
  primary key (account_id, name)
);

-- Serials that were seen to be missing, and the transactions that could still commit them.
create type sealpost.feed_gap as (serials int8multirange, holders text[]);

-- Each step of the sequencing, the last one being its state: everything up to position is in the feed, of all serials
-- up to `serial` only those in gaps may still come, and up to lease_until the holder alone makes steps. Steps are added
-- and never updated: of a row that is updated ten times a second an old transaction would keep every version, and every
-- reader would have to pass them all. caught_up_at: until when nothing that had committed was left.
create table sealpost.feed_steps (
  step bigint primary key,
  holder uuid not null,
  lease_until timestamptz not null,
  position bigint not null,
  serial bigint not null,
  gaps sealpost.feed_gap[] not null default '{}',
  caught_up_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
insert into sealpost.feed_steps (step, holder, lease_until, position, serial, caught_up_at)
values (0, '00000000-0000-0000-0000-000000000000', now(), (extract(epoch from now()) * 1000000)::bigint, 0, now());

-- Days ahead, of the log and, by their microseconds, of the feed: see 0004_partitions.sql.
create or replace function sealpost.make_partitions(first_day date, days integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  parent text;
  key_column text;
  day date;
  child text;
  bounds text[];
  made integer := 0;
begin
  for parent, key_column in
    values ('deliveries', 'id'), ('bodies', 'delivery_id'), ('attempts', 'delivery_id'), ('feed', 'position')
  loop
    for day in select first_day + n from generate_series(0, days - 1) as n loop
      child := parent || '_' || to_char(day, 'YYYYMMDD');
      continue when to_regclass('sealpost.' || child) is not null;
      select array_agg(
        case
          when parent = 'feed' then (extract(epoch from midnight) * 1000000)::bigint::text
          else sealpost.uuid_v7_floor(midnight)::text
        end order by midnight)
      into bounds
      from unnest(array[day, day + 1]) as one_day
      cross join lateral (select one_day::timestamp at time zone 'UTC' as midnight) as its;
      execute format(
        'create table sealpost.%I (like sealpost.%I including defaults including constraints, '
          || 'constraint partition_bounds check (%I >= %L and %I < %L)) '
          || 'with (autovacuum_analyze_threshold = 100000)',
        child, parent, key_column, bounds[1], key_column, bounds[2]);
      execute format(
        'alter table sealpost.%I attach partition sealpost.%I for values from (%L) to (%L)',
        parent, child, bounds[1], bounds[2]);
      execute format('alter table sealpost.%I drop constraint partition_bounds', child);
      -- What receivers answered may repeat what was erased since: statistics keep none of it.
      if parent = 'attempts' then
        execute format('alter table sealpost.%I alter column response_headers set statistics 0, '
          || 'alter column response_excerpt set statistics 0', child);
      end if;
      made := made + 1;
    end loop;
  end loop;
  return made;
end
$$;
select sealpost.make_partitions((now() at time zone 'UTC')::date - 1, 16);

-- One step: gives positions to what has committed, and tells the accounts' readers. Returns whether the caller is the
-- one that makes steps; is_full: there is more. To be called again, by whoever it may be, when something was published,
-- and every few seconds.
--
-- Of the serials up to the newest one that has committed, some are missing: rolled back, or not committed yet. Whoever
-- may still commit one holds a lock on `bodies`, from before it took the serial until its commit can be seen, and
-- everybody may read who that is. So a gap is looked at again when one of those that held the lock at its discovery has
-- ended, and is given up when all have. The order of reading matters: holders first, rows after, and a commit in
-- between is seen in the rows. An idle transaction holds up nothing but its own gaps.
create function sealpost.sequence_events(
  of_holder uuid, lease interval, rows_max integer, out leads boolean, out sequenced integer, out is_full boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
  accounts_per_notice constant integer := 200;
  steps_kept constant integer := 1000;
  last sealpost.feed_steps;
  at constant timestamptz := clock_timestamp();
  newest bigint;
  reached bigint;
  found_serials bigint[] := '{}';
  found_accounts uuid[] := '{}';
  found_deliveries uuid[] := '{}';
  missing int8multirange := '{}';
  open_gaps sealpost.feed_gap[];
  holding text[];
  suspects int8multirange;
  late_serials bigint[] := '{}';
  late_accounts uuid[];
  late_deliveries uuid[];
  taken int8multirange;
  base bigint;
begin
  leads := false;
  sequenced := 0;
  is_full := false;
  select * into last from sealpost.feed_steps order by step desc limit 1;
  -- A lease that is longer than leases are was given before the clock was set back.
  if last.holder <> of_holder and last.lease_until > at and last.lease_until <= clock_timestamp() + lease then
    return;
  end if;
  leads := true;
  reached := last.serial;
  open_gaps := last.gaps;

  -- 1. What has committed beyond the newest serial of the last step.
  select last_value into newest from sealpost.event_serials;
  if newest > last.serial then
    select coalesce(array_agg(serial order by serial), '{}'), coalesce(array_agg(account_id order by serial), '{}'),
      coalesce(array_agg(delivery_id order by serial), '{}')
    into found_serials, found_accounts, found_deliveries
    from (
      select serial, account_id, delivery_id from sealpost.bodies
      where serial > last.serial order by serial limit rows_max
    ) as fresh;
    is_full := cardinality(found_serials) = rows_max;
    if cardinality(found_serials) > 0 then
      reached := found_serials[cardinality(found_serials)];
    end if;
    if reached - last.serial > cardinality(found_serials) then
      missing := int8multirange(int8range(last.serial, reached, '(]'))
        - (select range_agg(int8range(s, s, '[]')) from unnest(found_serials) as s);
    end if;
  end if;

  -- 2. What was missing, where that may have changed.
  if cardinality(open_gaps) > 0 or not isempty(missing) then
    -- A prepared transaction goes on under another name: each may be any that was there before.
    holding := array(
      select distinct virtualtransaction from pg_locks
      where relation = 'sealpost.bodies'::regclass and mode = 'RowExclusiveLock' and granted
        and database = (select oid from pg_database where datname = current_database())
      order by 1);
    open_gaps := array(
      select row(serials, array(
        select h from unnest(holding) with ordinality as held (h, n) where h = any (holders) or h like '-1/%' order by n
      ))::sealpost.feed_gap
      from unnest(last.gaps) with ordinality as known (serials, holders, n) order by n);
    if not isempty(missing) then
      open_gaps := open_gaps || row(missing, holding)::sealpost.feed_gap;
    end if;
    select coalesce(range_agg(now_gap.serials), '{}') into suspects
    from unnest(open_gaps) with ordinality as now_gap (serials, holders, n)
    left join unnest(last.gaps) with ordinality as last_gap (serials, holders, n) on last_gap.n = now_gap.n
    where last_gap.holders is distinct from now_gap.holders;
    select coalesce(array_agg(serial), '{}'), array_agg(account_id), array_agg(delivery_id)
    into late_serials, late_accounts, late_deliveries
    from (
      select found.*
      from unnest(suspects) as part
      cross join lateral (
        select serial, account_id, delivery_id from sealpost.bodies
        where serial >= lower(part) and serial < upper(part)
      ) as found
      limit rows_max
    ) as late;
    -- Nobody is called "again", so where not all was taken, the next step looks again.
    select coalesce(range_agg(int8range(s, s, '[]')), '{}') into taken from unnest(late_serials) as s;
    open_gaps := array(
      select row(range_agg(serials), holders)::sealpost.feed_gap
      from (
        select serials - taken as serials,
          case when cardinality(late_serials) = rows_max then holders || 'again'::text else holders end as holders
        from unnest(open_gaps)
      ) as left_over
      where not isempty(serials) and holders <> '{}'
      group by holders order by holders);
    is_full := is_full or cardinality(late_serials) = rows_max;
    found_serials := found_serials || late_serials;
    found_accounts := found_accounts || late_accounts;
    found_deliveries := found_deliveries || late_deliveries;
  end if;

  -- 3. The step. Of two that make the same, only one does: the other waits here for the first to commit.
  sequenced := cardinality(found_serials);
  if sequenced = 0 and reached = last.serial and open_gaps = last.gaps then
    if last.holder = of_holder and last.lease_until - at > lease / 2 and last.lease_until <= at + lease then
      return;
    end if;
    perform set_config('synchronous_commit', 'off', true);
  end if;
  base := greatest(last.position, (extract(epoch from at) * 1000000)::bigint);
  insert into sealpost.feed_steps (step, holder, lease_until, position, serial, gaps, caught_up_at)
  values (last.step + 1, of_holder, at + lease, base + sequenced, reached, open_gaps,
    case when is_full then last.caught_up_at else at end)
  on conflict (step) do nothing;
  if not found then
    leads := false;
    sequenced := 0;
    is_full := false;
    return;
  end if;
  if (last.step + 1) % steps_kept = 0 then
    delete from sealpost.feed_steps
    where step > last.step - 3 * steps_kept and step <= last.step - steps_kept;
  end if;

  if sequenced > 0 then
    insert into sealpost.feed (account_id, position, delivery_id)
    select account_id, base + row_number() over (order by serial), delivery_id
    from unnest(found_accounts, found_deliveries, found_serials) as event (account_id, delivery_id, serial);
    perform pg_notify('sealpost_feed', string_agg(account_id::text, ' '))
    from (
      select account_id, (row_number() over () - 1) / accounts_per_notice as part
      from (select distinct unnest(found_accounts) as account_id) as told
    ) as parted
    group by part;
  end if;
end
$$;
revoke execute on function sealpost.sequence_events(uuid, interval, integer) from public;

-- A replay whose last deliveries the version before started, in the step before its function was replaced by
-- 0011_log.sql: it left the end to its next step, which ours does not make for a replay with nothing to start.
update sealpost.replays
set status = case when replayed > 0 then 'delivering' else 'done' end,
  ended_at = case when replayed = 0 then now() end, count_at = now()
where status = 'running' and replayed + skipped >= matched;

-- What the sequencing finds new events by. Everybody who publishes waits while the last statement reads, so days that
-- are over come before it, one by one. (Somebody's transaction may still be of yesterday.)
do $$
declare
  child name;
begin
  for child in
    select relname
    from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = 'sealpost.bodies'::regclass
      and right(relname, 8) < to_char(now() at time zone 'UTC' - interval '1 day', 'YYYYMMDD')
    order by relname
  loop
    execute format('create index %I on sealpost.%I (serial)', child || '_serial_idx', child);
  end loop;
end
$$;
create index bodies_serial on sealpost.bodies (serial);
