-- Workflows: a draft that is edited, and versions that are published of it and that runs carry out.
create table workspace.workflows (
  account_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  name text not null check (length(name) between 1 and 200),
  summary text not null default '' check (length(summary) <= 1000),
  status text not null default 'ACTIVE' check (status = any (array['ACTIVE'])),
  enabled boolean not null default true,
  -- A definition that passed the checks when it was saved.
  draft jsonb not null,
  -- Counts the saves: whoever saves names the one that they have seen.
  draft_revision integer not null default 1 check (draft_revision > 0),
  draft_updated_at timestamptz not null default now(),
  -- Null: nothing is published.
  current_version integer,
  created_by uuid not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create index workflows_space on workspace.workflows (account_id, space_id, id);

-- version counts each workflow's from 1. A run names what it carries out: nothing of it ever changes.
create table workspace.workflow_versions (
  account_id uuid not null references workspace.workspaces,
  workflow_id uuid not null,
  version integer not null check (version > 0),
  id uuid not null default sealpost.uuid_v7(),
  definition jsonb not null,
  change_note text check (length(change_note) between 1 and 1000),
  created_by uuid not null,
  created_at timestamptz not null default now(),
  primary key (account_id, workflow_id, version),
  unique (account_id, id),
  foreign key (account_id, workflow_id) references workspace.workflows,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
alter table workspace.workflows
  add foreign key (account_id, id, current_version) references workspace.workflow_versions;

create function workspace.keep_version() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'version % of workflow % never changes', old.version, old.workflow_id;
end
$$;
create trigger keep_version before update on workspace.workflow_versions
  for each row execute function workspace.keep_version();
