-- How many documents a space has, counted as they come: to count a million of them takes half a second.

-- Before documents, as everybody who makes one locks its space first.
alter table workspace.spaces add column document_count integer not null default 0 check (document_count >= 0);
lock table workspace.documents in share row exclusive mode;
update workspace.spaces as s set document_count = d.count
from (select account_id, space_id, count(*) from workspace.documents group by account_id, space_id) as d
where s.account_id = d.account_id and s.id = d.space_id;

-- A trigger, because processes of the version before make documents, too.
create function workspace.count_documents() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update workspace.spaces as s
  set document_count = s.document_count + case tg_op when 'INSERT' then d.count else -d.count end
  from (select account_id, space_id, count(*) from changed group by account_id, space_id) as d
  where s.account_id = d.account_id and s.id = d.space_id;
  return null;
end
$$;

create trigger count_added after insert on workspace.documents
referencing new table as changed for each statement execute function workspace.count_documents();
create trigger count_removed after delete on workspace.documents
referencing old table as changed for each statement execute function workspace.count_documents();
