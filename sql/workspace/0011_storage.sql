-- What each account's workspace stores, by kind, counted as it comes and goes, and refused beyond the limit of its kind
-- (sealpost.storage_limits). Exact however many write at once: whoever adds to a kind has its row until they commit.
create table workspace.storage (
  account_id uuid not null references workspace.workspaces,
  kind text not null check (kind in ('documents', 'leftovers', 'pages', 'workflows', 'runs')),
  bytes bigint not null check (bytes >= 0),
  primary key (account_id, kind)
) with (fillfactor = 50);

-- Bytes that are stored, or may be, under a key that no document has: an upload's, as soon as it begins, and those of
-- what was moved or given up.
alter table workspace.loose_objects add column bytes bigint not null default 0 check (bytes >= 0);

-- What the run's sources brought it: its own limit follows that. Those that go on already keep the limit they had.
alter table workspace.runs add column brought_bytes bigint not null default 2097152;
alter table workspace.runs alter column brought_bytes set default 0;

-- Leftovers are never refused here: what was begun has to be ended, and a rename asks before it begins.
create function workspace.add_storage(of_account uuid, of_kind text, bytes_more bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  stored bigint;
  most bigint;
begin
  insert into workspace.storage as s (account_id, kind, bytes) values (of_account, of_kind, 0)
  on conflict (account_id, kind) do nothing;
  update workspace.storage as s set bytes = s.bytes + bytes_more
  where s.account_id = of_account and s.kind = of_kind
  returning s.bytes into stored;
  if bytes_more > 0 and of_kind <> 'leftovers' then
    select l.bytes_max into most from sealpost.storage_limits as l where l.kind = of_kind;
    if stored > most then
      perform sealpost.refuse_storage(of_kind, most);
    end if;
  end if;
end
$$;

-- For the tables below: the kind and the bytes of a row, as SQL. In one order of accounts and kinds, whoever it is that
-- changes rows of several.
create function workspace.count_storage() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  added constant text := format('select account_id, %s as kind, %s as bytes from fresh', tg_argv[0], tg_argv[1]);
  taken constant text := format('select account_id, %s as kind, -(%s) as bytes from gone', tg_argv[0], tg_argv[1]);
  part record;
begin
  for part in execute format(
    'select account_id, kind, sum(bytes)::bigint as bytes from (%s) as changed
     group by account_id, kind having sum(bytes) <> 0 order by account_id, kind',
    case tg_op when 'INSERT' then added when 'DELETE' then taken else added || ' union all ' || taken end)
  loop
    perform workspace.add_storage(part.account_id, part.kind, part.bytes);
  end loop;
  return null;
end
$$;

-- A run's row changes several times a step, so nearly always this does nothing.
create function workspace.count_run() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform workspace.add_storage(new.account_id, 'runs',
    new.item_bytes - old.item_bytes + 256 * (new.item_count - old.item_count)::bigint
      + 1024 * (new.node_run_count - old.node_run_count)::bigint);
  return null;
end
$$;

-- A row counts 1 KiB besides its text. So do a run's nodes with their events, and 256 bytes each of its items.
do $$
declare
  part record;
begin
  for part in
    select * from (values
      ('spaces', '''documents''', '1024', false),
      ('folders', '''documents''', '1024', false),
      ('documents', '''documents''', '1024 + case when has_content then file_size else 0 end', true),
      ('loose_objects', 'case when is_reserved then ''documents'' else ''leftovers'' end', 'bytes', true),
      ('pages', '''pages''', '1024 + octet_length(markdown)', true),
      ('page_versions', '''pages''', '1024 + octet_length(markdown)', false),
      ('page_links', '''pages''', '1024', false),
      ('workflows', '''workflows''', '1024 + octet_length(draft::text)', true),
      ('workflow_versions', '''workflows''', '1024 + octet_length(definition::text)', false),
      ('runs', '''runs''',
        '1024 + octet_length(input::text) + item_bytes + 256 * item_count::bigint + 1024 * node_run_count::bigint',
        false)
    ) as counted (name, kind, bytes, is_resized)
  loop
    execute format('lock table workspace.%I in share row exclusive mode', part.name);
    execute format(
      'insert into workspace.storage as s (account_id, kind, bytes)
       select account_id, %s, sum(%s) from workspace.%I group by 1, 2
       on conflict (account_id, kind) do update set bytes = s.bytes + excluded.bytes',
      part.kind, part.bytes, part.name);
    execute format(
      'create trigger storage_added after insert on workspace.%I referencing new table as fresh
       for each statement execute function workspace.count_storage(%L, %L)', part.name, part.kind, part.bytes);
    execute format(
      'create trigger storage_removed after delete on workspace.%I referencing old table as gone
       for each statement execute function workspace.count_storage(%L, %L)', part.name, part.kind, part.bytes);
    if part.is_resized then
      execute format(
        'create trigger storage_resized after update on workspace.%I referencing old table as gone new table as fresh
         for each statement execute function workspace.count_storage(%L, %L)', part.name, part.kind, part.bytes);
    end if;
  end loop;
end
$$;
create trigger storage_resized after update on workspace.runs for each row
when ((old.item_bytes, old.item_count, old.node_run_count)
  is distinct from (new.item_bytes, new.item_count, new.node_run_count))
execute function workspace.count_run();

revoke execute on function workspace.add_storage(uuid, text, bigint) from public;
revoke execute on function workspace.count_storage() from public;
revoke execute on function workspace.count_run() from public;
