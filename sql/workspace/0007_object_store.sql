-- Which object store has the documents, and moves that come back to what could not be moved.

-- One row. id: what the store says of itself, under a key of its own; null: nothing has been stored yet. A process
-- whose store says something else, or nothing, has another folder or bucket than the others.
create table workspace.object_store (
  is_only boolean primary key default true check (is_only),
  id uuid
);
insert into workspace.object_store default values;

-- Failed tries since the move was asked for; each one after it comes later.
alter table workspace.moves add column failures integer not null default 0;
