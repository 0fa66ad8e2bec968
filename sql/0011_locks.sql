-- Locks that no other role can hold against us. Any role that connects can take an advisory lock, and sees in pg_locks
-- which ones we take; locking a table or a row takes rights on it, which only the owner has.

-- Locked as a whole by the cluster's one quarantine process (src/base/database/table-lock.ts).
create table sealpost.quarantine_lock ();

-- Its one row is locked by the transaction that tells the dispatchers.
create table sealpost.announcing (
  only_row boolean primary key default true check (only_row)
);
insert into sealpost.announcing default values;

-- As before, but for the lock: one row, which whoever is told to skip sees at once.
create or replace function sealpost.announce_wakeups() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform from sealpost.announcing for update skip locked;
  if found then
    perform pg_notify('jobs:insert', '{"count":1}');
  end if;
  return null;
end
$$;
