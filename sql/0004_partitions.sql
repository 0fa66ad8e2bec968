-- Day partitions: made ahead here, dropped by the dispatcher's leader (DETACH … CONCURRENTLY cannot run inside a
-- function). CREATE … PARTITION OF would take a lock on the parent that waits behind every open read, and everything
-- else behind it; a table made apart and then attached does not. Its CHECK spares ATTACH the scan.
--
-- A day is analyzed only once it has some size. By the usual thresholds all tables of a young day were analyzed with
-- every 10 percent more, for a second of every ten in a busy morning, and our plans go by the index anyhow. Vacuum
-- keeps its thresholds: totals are counted in indexes, which it makes readable alone.

create function sealpost.make_partitions(first_day date, days integer) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
  parent text;
  key_column text;
  day date;
  child text;
  made integer := 0;
begin
  for parent, key_column in values ('deliveries', 'id'), ('bodies', 'delivery_id'), ('attempts', 'delivery_id') loop
    for day in select first_day + n from generate_series(0, days - 1) as n loop
      child := parent || '_' || to_char(day, 'YYYYMMDD');
      continue when to_regclass('sealpost.' || child) is not null;
      execute format(
        'create table sealpost.%I (like sealpost.%I including defaults including constraints, '
          || 'constraint partition_bounds check (%I >= %L and %I < %L)) '
          || 'with (autovacuum_analyze_threshold = 100000)',
        child, parent,
        key_column, sealpost.uuid_v7_floor(day::timestamp at time zone 'UTC'),
        key_column, sealpost.uuid_v7_floor((day + 1)::timestamp at time zone 'UTC'));
      execute format(
        'alter table sealpost.%I attach partition sealpost.%I for values from (%L) to (%L)',
        parent, child,
        sealpost.uuid_v7_floor(day::timestamp at time zone 'UTC'),
        sealpost.uuid_v7_floor((day + 1)::timestamp at time zone 'UTC'));
      execute format('alter table sealpost.%I drop constraint partition_bounds', child);
      made := made + 1;
    end loop;
  end loop;
  return made;
end
$$;

-- From yesterday (a publisher's transaction may have begun before midnight) to 14 days ahead.
select sealpost.make_partitions((now() at time zone 'UTC')::date - 1, 16);
