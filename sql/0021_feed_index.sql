-- What the sequencing of the feed finds new events by. Made day by day, today's last: reading a day's bodies keeps
-- those waiting who publish into it, and made for all days at once, it would for as long as all of them together.
create index bodies_serial on only sealpost.bodies (serial);
do $$
declare
  child name;
begin
  for child in
    select relname
    from pg_inherits join pg_class on pg_class.oid = inhrelid
    where inhparent = 'sealpost.bodies'::regclass
    order by right(relname, 8) <= to_char(now() at time zone 'UTC', 'YYYYMMDD'), relname
  loop
    execute format('create index %I on sealpost.%I (serial)', child || '_serial', child);
    execute format('alter index sealpost.bodies_serial attach partition sealpost.%I', child || '_serial');
  end loop;
end
$$;
