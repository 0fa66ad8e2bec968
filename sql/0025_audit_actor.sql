-- Who changed something. Every write through the API but publishing has a row now, and so has every change from the
-- command line; these may concern no account (a staff key). Rows without an actor are of version 1.0, running or gone:
-- their keys say what they are.
alter table sealpost.audit_log
  alter column account_id drop not null,
  add column actor text check (actor in ('key', 'staff_key', 'command_line')),
  -- The key's, at that time; null: it has none.
  add column actor_name text;
