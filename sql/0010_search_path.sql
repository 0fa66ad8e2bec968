-- Names in functions mean what they meant here, whoever calls and whatever stands in `public`.
--
-- Functions in plain SQL had no SET clause, which would keep them from being inlined; their texts were read anew in
-- each caller's search_path. As `begin atomic` they are read once, now, and stay inlined. Each keeps its text,
-- whichever migration wrote it last.
set local search_path = pg_catalog, pg_temp;
do $$
declare
  f record;
begin
  for f in
    select pg_get_functiondef(oid) as definition, prosrc
    from pg_proc
    where pronamespace = 'sealpost'::regnamespace and prosqlbody is null and proconfig is null
      and prolang = (select oid from pg_language where lanname = 'sql')
    order by oid
  loop
    execute format(E'%s\nbegin atomic %s; end',
      left(f.definition, strpos(f.definition, E'\nAS $function$') - 1), rtrim(f.prosrc, E' \n\t;'));
  end loop;
end
$$;
