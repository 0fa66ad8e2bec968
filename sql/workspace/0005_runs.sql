-- Runs of workflows: what their nodes have done and handed on, and what happened when.
create table workspace.runs (
  account_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  workflow_id uuid not null,
  version integer not null,
  status text not null default 'QUEUED'
    check (status in ('QUEUED', 'ACTIVE', 'WAITING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  input json not null,
  -- In normal form; null: its webhook goes to the account's endpoint.
  webhook_url text,
  traceparent text,
  requested_by uuid not null,
  error_code text,
  error_message text,
  error_details json,
  -- Of the webhook that told of its end. Null: there is none.
  delivery_id uuid,
  -- How many there are, and what the items take.
  node_run_count integer not null default 0,
  event_count integer not null default 0,
  item_count integer not null default 0,
  item_bytes bigint not null default 0,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz,
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, workflow_id, version) references workspace.workflow_versions,
  foreign key (account_id, requested_by) references sealpost.users (account_id, id)
);
create index runs_workflow on workspace.runs (account_id, workflow_id, id);
create index runs_unfinished on workspace.runs (account_id, status) where completed_at is null;
create index runs_ended on workspace.runs (completed_at) where completed_at is not null;

-- A node that a run has come to. Each has one in a run, counted from 1 in the order in which they begin.
create table workspace.node_runs (
  account_id uuid not null references workspace.workspaces,
  run_id uuid not null,
  sequence integer not null,
  id uuid not null default sealpost.uuid_v7(),
  node_id text not null check (length(node_id) between 1 and 64),
  status text not null default 'QUEUED'
    check (status in ('QUEUED', 'ACTIVE', 'WAITING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  -- Of the step that is next: 1 and how often it has failed, or was cut.
  attempt integer not null default 1,
  input_count integer not null,
  item_count integer not null default 0,
  error_item_count integer not null default 0,
  error_code text,
  error_message text,
  wake_at timestamptz,
  started_at timestamptz,
  completed_at timestamptz,
  -- How far it is, in the words of its kind; null: at the beginning.
  position json,
  -- Whether its next step may be taken at once; if not, it may at next_at, which is null when it has ended.
  is_ready boolean not null default true,
  next_at timestamptz default now(),
  -- Of the step that is being taken. One that nobody has recorded until next_at was cut.
  lease_token uuid,
  primary key (account_id, run_id, sequence),
  unique (account_id, run_id, node_id),
  foreign key (account_id, run_id) references workspace.runs on delete cascade
);
-- Small: steps leave them when they are taken, or end.
create index node_runs_ready on workspace.node_runs (account_id, next_at) where is_ready;
create index node_runs_later on workspace.node_runs (next_at) where not is_ready and next_at is not null;

-- What a node run hands on. Never changed: a page that was read stays as it is.
create table workspace.node_items (
  account_id uuid not null references workspace.workspaces,
  run_id uuid not null,
  sequence integer not null,
  index integer not null,
  item json not null,
  primary key (account_id, run_id, sequence, index),
  foreign key (account_id, run_id, sequence) references workspace.node_runs on delete cascade
);

-- Never changed either. Whoever has read up to one has missed none before it.
create table workspace.run_events (
  account_id uuid not null references workspace.workspaces,
  run_id uuid not null,
  sequence integer not null,
  kind text not null check (kind in (
    'run.created', 'run.started', 'run.waiting', 'run.succeeded', 'run.failed', 'run.cancelled',
    'node.started', 'node.resumed', 'node.progressed', 'node.waiting', 'node.retried', 'node.succeeded', 'node.failed',
    'node.cancelled')),
  node_id text,
  details json,
  created_at timestamptz not null default now(),
  primary key (account_id, run_id, sequence),
  foreign key (account_id, run_id) references workspace.runs on delete cascade
);
