-- The workspace: spaces, their documents and pages, and workflows with their runs. Every key begins with the account,
-- and so does every list's index.
create schema workspace;
revoke all on schema workspace from public;

-- 1. Spaces.

-- An account's one workspace, made with its first space.
create table workspace.workspaces (
  account_id uuid primary key references sealpost.accounts,
  id uuid not null unique default sealpost.uuid_v7()
);

create table workspace.spaces (
  account_id uuid not null references workspace.workspaces,
  id uuid not null default sealpost.uuid_v7(),
  owner_id uuid not null,
  name text not null check (length(name) between 1 and 200),
  storage_prefix text not null unique,
  -- Counted as they come: to count a million of them takes half a second.
  document_count integer not null default 0 check (document_count >= 0),
  created_at timestamptz not null default now(),
  -- Here and below, of what is in the bin (see 7): which deletion took it. Null: it is not there.
  bin_id uuid,
  primary key (account_id, id),
  foreign key (account_id, owner_id) references sealpost.users (account_id, id)
);
-- Prefixes end in these digits, so a space can take any name without getting another's prefix.
create unique index spaces_prefix_digits on workspace.spaces (right(id::text, 12));

-- The owner is one of them, always as ADMIN. Users list their spaces by the key, spaces their members by the index.
create table workspace.space_members (
  account_id uuid not null,
  user_id uuid not null,
  space_id uuid not null,
  role text not null check (role in ('ADMIN', 'EDITOR', 'VIEWER')),
  created_at timestamptz not null default now(),
  -- The space's: who looks for its members meets none of one that is in the bin.
  bin_id uuid,
  primary key (account_id, user_id, space_id),
  foreign key (account_id, user_id) references sealpost.users (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces on delete cascade
);
create unique index space_members_space on workspace.space_members (account_id, space_id, user_id);

-- 2. Documents.

-- parent_id null: at the top of its space.
create table workspace.folders (
  account_id uuid not null,
  space_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  parent_id uuid,
  name text not null check (length(name) between 1 and 200),
  created_by uuid not null,
  created_at timestamptz not null default now(),
  bin_id uuid,
  primary key (account_id, space_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  -- What was deleted before the folder that it was in may outlive it: it is restored to the top.
  foreign key (account_id, space_id, parent_id) references workspace.folders on delete set null (parent_id),
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create unique index folders_names on workspace.folders (account_id, space_id, parent_id, name) nulls not distinct
  where bin_id is null;
create index folders_siblings on workspace.folders (account_id, space_id, parent_id, id);
create index folders_bin on workspace.folders (account_id, bin_id) where bin_id is not null;

-- Where its bytes are is storage_key, whatever its name is. folder_id null: at the top of its space.
create table workspace.documents (
  account_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  folder_id uuid,
  file_name text not null check (octet_length(file_name) between 1 and 255),
  content_type text not null check (length(content_type) between 1 and 255),
  file_size bigint not null check (file_size >= 0),
  storage_key text not null unique,
  status text not null default 'PENDING_UPLOAD' check (status in ('PENDING_UPLOAD', 'UPLOADED')),
  doc_origin text not null default 'UPLOADED' check (doc_origin = any (array['UPLOADED'])),
  live_content_type text not null check (live_content_type in ('MARKDOWN', 'NONE')),
  has_content boolean not null default false,
  uploaded_by uuid not null,
  created_at timestamptz not null default now(),
  bin_id uuid,
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, space_id, folder_id) references workspace.folders on delete set null (folder_id),
  foreign key (account_id, uploaded_by) references sealpost.users (account_id, id)
);
create unique index documents_names on workspace.documents (account_id, space_id, folder_id, file_name)
  nulls not distinct where bin_id is null;
create index documents_space on workspace.documents (account_id, space_id, id) where bin_id is null;
create index documents_bin on workspace.documents (account_id, bin_id) where bin_id is not null;
create index documents_folder on workspace.documents (account_id, space_id, folder_id, id);

-- By trigger, so that whoever makes documents counts them; what goes to the bin and comes back is counted there.
create function workspace.count_documents() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  update workspace.spaces as s
  set document_count = s.document_count + case tg_op when 'INSERT' then d.count else -d.count end
  from (select account_id, space_id, count(*) from changed where bin_id is null group by account_id, space_id) as d
  where s.account_id = d.account_id and s.id = d.space_id;
  return null;
end
$$;

create trigger count_added after insert on workspace.documents
referencing new table as changed for each statement execute function workspace.count_documents();
create trigger count_removed after delete on workspace.documents
referencing old table as changed for each statement execute function workspace.count_documents();

-- Which object store has the documents. One row. id: what the store says of itself, under a key of its own; null:
-- nothing has been stored yet. A process whose store says something else, or nothing, has another folder or bucket than
-- the others.
create table workspace.object_store (
  is_only boolean primary key default true check (is_only),
  id uuid
);
insert into workspace.object_store default values;

-- Keys are never used twice: what was read, planned or copied under one key is not mistaken for another's, however late
-- somebody comes with it.

-- A key under which something may be stored though no document names it: written before anything is, and taken away in
-- the transaction in which a document gets the key. Reserved: somebody may still bring it to a document. Otherwise
-- nobody can any more, and the object is removed, and then the row.
create table workspace.loose_objects (
  account_id uuid not null references workspace.workspaces,
  storage_key text not null,
  is_reserved boolean not null,
  -- That are stored, or may be: an upload's, as soon as it begins, and those of what was moved or given up.
  bytes bigint not null default 0 check (bytes >= 0),
  -- Who has uploaded or renamed; their share of what is stored has it. Null: nobody's.
  user_id uuid,
  -- Of an upload: the one of its document.
  space_id uuid,
  -- When it is looked at next.
  remove_at timestamptz not null,
  primary key (account_id, storage_key),
  foreign key (account_id, user_id) references sealpost.users (account_id, id)
);
create index loose_objects_due on workspace.loose_objects (account_id, remove_at);

-- Which document a key was made for: `spaces/<space>/<document>-<random>/<name>`.
create function workspace.document_of(storage_key text) returns text
language sql immutable parallel safe
return left(split_part(storage_key, '/', 3), 36);
create index loose_objects_of_document on workspace.loose_objects (account_id, workspace.document_of(storage_key));

-- What a rename leaves to do. document_id null: every document of the space has to be where its prefix says.
create table workspace.moves (
  account_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  document_id uuid,
  -- Counts the renames: a move that was asked for again begins again.
  asked integer not null default 1,
  -- Documents up to here are done.
  after_id uuid not null default '00000000-0000-0000-0000-000000000000',
  asked_at timestamptz not null default now(),
  -- Who did last; their share of what is stored has what it leaves.
  asked_by uuid,
  -- Since it was asked for; each one after it comes later.
  failures integer not null default 0,
  -- When somebody goes on with it; later while somebody does.
  next_at timestamptz not null default now(),
  primary key (account_id, id),
  unique nulls not distinct (account_id, space_id, document_id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, document_id) references workspace.documents,
  foreign key (account_id, asked_by) references sealpost.users (account_id, id)
);
create index moves_due on workspace.moves (account_id, next_at);

-- 3. Pages, their versions, and the links by which anybody can open one.

-- What is being written. A link shows a version, never this.
create table workspace.pages (
  account_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  title text not null check (length(title) between 1 and 200),
  markdown text not null check (octet_length(markdown) <= 262144),
  -- Counts what was saved: whoever saves says what they have seen.
  revision integer not null default 1,
  created_by uuid not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  bin_id uuid,
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create index pages_space on workspace.pages (account_id, space_id, id);

-- Never changed, but for what a newer renderer makes of its text. The page's current one has the highest number.
create table workspace.page_versions (
  account_id uuid not null references workspace.workspaces,
  id uuid not null default sealpost.uuid_v7(),
  page_id uuid not null,
  number integer not null check (number >= 1),
  title text not null,
  markdown text not null,
  -- What visitors are shown, and the version of the renderer that has made it of the text.
  html text not null,
  renderer integer not null,
  -- The page's, when it was published.
  revision integer not null,
  published_by uuid not null,
  published_at timestamptz not null default now(),
  primary key (account_id, id),
  unique (account_id, page_id, number),
  unique (account_id, page_id, id),
  foreign key (account_id, page_id) references workspace.pages,
  foreign key (account_id, published_by) references sealpost.users (account_id, id)
);

create function workspace.keep_page_version() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'version % of page % never changes', old.number, old.page_id;
end
$$;
create trigger keep_page_version before update on workspace.page_versions
  for each row when (to_jsonb(old) - 'html' - 'renderer' <> to_jsonb(new) - 'html' - 'renderer')
  execute function workspace.keep_page_version();

create table workspace.page_links (
  account_id uuid not null references workspace.workspaces,
  id uuid not null default sealpost.uuid_v7(),
  page_id uuid not null,
  -- Of what its URL ends in, which is kept nowhere: SHA-256.
  token_digest bytea not null unique check (octet_length(token_digest) = 32),
  -- Null: the link shows the page's current version, whichever that is.
  pinned_version_id uuid,
  label text not null check (length(label) between 1 and 200),
  status text not null default 'ACTIVE' check (status in ('ACTIVE', 'REVOKED')),
  -- With salt and cost. Null: nothing is asked.
  password_hash text,
  -- Counts the passwords, and their removals.
  auth_version integer not null default 1,
  expires_at timestamptz,
  max_visits integer check (max_visits >= 1),
  visit_count bigint not null default 0,
  last_visited_at timestamptz,
  created_by uuid not null,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (account_id, id),
  foreign key (account_id, page_id) references workspace.pages,
  foreign key (account_id, page_id, pinned_version_id) references workspace.page_versions (account_id, page_id, id),
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create index page_links_page on workspace.page_links (account_id, page_id, id);

-- 4. Workflows: a draft that is edited, and versions that are published of it and that runs carry out.

create table workspace.workflows (
  account_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  name text not null check (length(name) between 1 and 200),
  summary text not null default '' check (length(summary) <= 1000),
  status text not null default 'ACTIVE' check (status in ('ACTIVE', 'ARCHIVED')),
  -- False: no run of it begins.
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
  bin_id uuid,
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create index workflows_space on workspace.workflows (account_id, space_id, status, id);

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
  add foreign key (account_id, id, current_version) references workspace.workflow_versions
    on delete set null (current_version);

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

-- When the current version of a workflow is run by itself: as long as that begins at a schedule. Published, in the same
-- transaction, by whoever publishes.
create table workspace.schedules (
  account_id uuid not null references workspace.workspaces,
  workflow_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  node_id text not null,
  cron text not null,
  time_zone text not null,
  catch_up_seconds integer not null check (catch_up_seconds > 0),
  -- Due times up to here have had their run, or have none any more. It never goes back.
  done_until timestamptz not null default now(),
  -- When it is looked at next: the next due time, or sooner where one has still to get its run. Null: it is never due.
  next_at timestamptz,
  last_fired_at timestamptz,
  -- Why the last due time has no run. Null: it has one, or there was none.
  error_code text,
  primary key (account_id, workflow_id),
  foreign key (account_id, workflow_id) references workspace.workflows
);
create index schedules_due on workspace.schedules (next_at);
create index schedules_due_of_account on workspace.schedules (account_id, next_at);

-- The keys of URLs that run a workflow for whoever knows them: one, and while it is rotated the one before.
create table workspace.hooks (
  account_id uuid not null references workspace.workspaces,
  id uuid not null default sealpost.uuid_v7(),
  workflow_id uuid not null,
  -- SHA-256 of the key, which is kept nowhere.
  key_digest bytea not null unique check (octet_length(key_digest) = 32),
  -- What requests with this key are signed with, where the workflow asks for that: sealed.
  sealed_secret bytea not null,
  created_by uuid not null,
  created_at timestamptz not null default now(),
  -- Null: it is the current one.
  ends_at timestamptz,
  primary key (account_id, id),
  foreign key (account_id, workflow_id) references workspace.workflows,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create index hooks_workflow on workspace.hooks (account_id, workflow_id, id);

-- 5. Runs of workflows: what their nodes have done and handed on, and what happened when.

create table workspace.runs (
  account_id uuid not null,
  -- Of the same moment as created_at: lists go by it.
  id uuid not null default sealpost.uuid_v7(now()),
  space_id uuid not null,
  workflow_id uuid not null,
  version integer not null,
  status text not null default 'QUEUED'
    check (status in ('QUEUED', 'ACTIVE', 'WAITING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  input json not null,
  -- The run that it does again, which may be gone; null: none.
  retry_of uuid,
  -- It ends with this node, and publishes nothing; null: it is no test.
  test_node_id text,
  -- In normal form; null: its webhook goes to the account's endpoint.
  webhook_url text,
  traceparent text,
  requested_by uuid not null,
  -- With which key of that user: once it is revoked or has expired, nothing goes to the webhook_url. Null: a schedule
  -- or a hook began it, and that user has published what it carries out.
  requested_key_id uuid,
  -- Of workspace.schedules and workspace.hooks, which may have ended.
  trigger_id uuid,
  webhook_id uuid,
  -- The due time, or the request's Idempotency-Key: none has a second run of the workflow.
  begun_for text,
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
  -- What the run's sources brought it: its own limit follows that.
  brought_bytes bigint not null default 0,
  created_at timestamptz not null default now(),
  started_at timestamptz,
  completed_at timestamptz,
  check ((requested_key_id is null) = (num_nonnulls(trigger_id, webhook_id) = 1)),
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, workflow_id, version) references workspace.workflow_versions,
  foreign key (account_id, requested_by) references sealpost.users (account_id, id)
);
create index runs_workflow on workspace.runs (account_id, workflow_id, id);
create unique index runs_begun_for on workspace.runs (account_id, workflow_id, begun_for) where begun_for is not null;
create index runs_unfinished on workspace.runs (account_id, status) where completed_at is null;
create index runs_ended on workspace.runs (completed_at) where completed_at is not null;
-- Written once for each run, as it ends: those that go on are few, and lists find them in runs_unfinished.
create index runs_ended_space on workspace.runs (account_id, space_id, status, id) where completed_at is not null;
create index runs_ended_space_newest on workspace.runs (account_id, space_id, id) where completed_at is not null;
create index runs_ended_workflow on workspace.runs (account_id, workflow_id, status, id)
  where completed_at is not null;

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
  -- The analysis that ends the wait; null: it waits for none.
  awaited_analysis_id text,
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
create index node_runs_later_of_account on workspace.node_runs (account_id, next_at)
  where not is_ready and next_at is not null;
create index node_runs_awaiting on workspace.node_runs (account_id, awaited_analysis_id)
  where status = 'WAITING' and awaited_analysis_id is not null;

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

-- How far the feeds of accounts are read whose node runs wait for an analysis that somebody else publishes. What was
-- sequenced up to the position has woken whom it concerns. Who begins to wait locks the row until it has committed, and
-- so does who reads on: nothing comes between the two.
create table workspace.feed_readers (
  account_id uuid primary key references workspace.workspaces,
  position bigint not null
);

-- What a run published is of its space: for users who are not members of that, it does not exist; and it is stored
-- towards its requester's share. By the row of the run, so that whatever ends a run says so.
create function workspace.stamp_delivery() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  update sealpost.deliveries set space_id = new.space_id, user_id = new.requested_by
  where account_id = new.account_id and id = new.delivery_id;
  return null;
end
$$;

create trigger runs_stamp_delivery after insert or update of delivery_id on workspace.runs
for each row when (new.delivery_id is not null) execute function workspace.stamp_delivery();

-- A run's own URL is its requester's, as long as they may run workflows in its space and the key is valid that they
-- used. Found by the delivery alone, so that no plan reads all runs of an account; with the limits, each is a look-up.
create index runs_own_url on workspace.runs (delivery_id) where webhook_url is not null;

create or replace function sealpost.closed_url(of_account uuid, of_delivery uuid) returns setof uuid
language sql stable
begin atomic
  select r.delivery_id from workspace.runs as r
  where r.delivery_id = of_delivery and r.account_id is not distinct from of_account and r.webhook_url is not null
    and (
      select true from workspace.space_members as m
      where m.account_id = r.account_id and m.user_id = r.requested_by and m.space_id = r.space_id
        and m.role in ('ADMIN', 'EDITOR')
        and (
          select true from sealpost.api_keys as k
          where k.id = r.requested_key_id and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
          limit 1)
      limit 1) is null
  limit 1;
end;

-- Of a run that is deleted nobody can ask any more whose URL it was. What is not delivered there yet, or is replayed,
-- goes to the account's endpoint, as if it had been published for it: compare sealpost.send_to_endpoint.
create function workspace.close_own_url() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  -- The open row before the log's, as recording does. Who has its lease goes on: that attempt is under way.
  -- The window of what is due begins anew, too; what is not due has waited for no consent.
  update sealpost.open_deliveries
  set lane = sealpost.lane(old.account_id, null), run_started_at = case when due_at > now() then run_started_at end
  where delivery_id = old.delivery_id;
  update sealpost.deliveries set webhook_url = null
  where account_id = old.account_id and id = old.delivery_id and status <> 'succeeded'
    and reason is distinct from 'analysis_erased';
  if not found then
    return null;
  end if;
  update sealpost.bodies as b
  set webhook_url = null, reference = (
    select sealpost.reference_of(old.id::text, b.event, s.analyses_url)
    from sealpost.endpoints as e cross join sealpost.settings as s
    where e.account_id = old.account_id and e.sends_references)
  where b.delivery_id = old.delivery_id;
  insert into sealpost.forgetting (delivery_id, account_id, look_at)
  select old.delivery_id, old.account_id, now() from sealpost.endpoints as e
  where e.account_id = old.account_id and e.forgets_after_success
  on conflict do nothing;
  return null;
end
$$;

create trigger runs_close_own_url after delete on workspace.runs
for each row when (old.webhook_url is not null and old.delivery_id is not null)
execute function workspace.close_own_url();

-- 6. What each account's workspace stores, counted as it comes and goes, and refused beyond the limit of its kind
-- (sealpost.storage_limits) and the account's quotas (sealpost.quotas). All that an account has is one row, and so
-- exact however many write at once: whoever adds to it has it until they commit. For as long as anything is theirs,
-- each user has a row beside it, and each space with documents or folders.
create table workspace.storage (
  account_id uuid not null references workspace.workspaces,
  -- A user, or a space; the account's own id: all of it.
  holder_id uuid not null,
  -- Bytes, by kind.
  documents bigint not null default 0 check (documents >= 0),
  leftovers bigint not null default 0 check (leftovers >= 0),
  pages bigint not null default 0 check (pages >= 0),
  workflows bigint not null default 0 check (workflows >= 0),
  runs bigint not null default 0 check (runs >= 0),
  -- Of those of runs, what the ended ones keep.
  ended_runs bigint not null default 0 check (ended_runs >= 0),
  document_count bigint not null default 0 check (document_count >= 0),
  -- Runs that began on the day (UTC); null: none has.
  run_count bigint not null default 0,
  run_day date,
  primary key (account_id, holder_id)
) with (fillfactor = 50);

-- things_more: documents, or runs that begin. of_user, of_space: null, nobody's. Of a kind, a user may have as much as
-- is left for all others, as of answers. Leftovers are never refused here: what was begun has to be ended, and a rename
-- asks before it begins. The account's row is the first that is taken, so two who write for several holders never wait
-- for each other.
create function workspace.add_storage(
  of_account uuid, of_user uuid, of_space uuid, of_kind text, bytes_more bigint, things_more bigint, ended_more bigint
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  in_all workspace.storage;
  of_one workspace.storage;
  in_space workspace.storage;
  is_run constant boolean := of_kind = 'runs' and things_more > 0;
begin
  in_all := workspace.add_held(of_account, of_account, of_kind, bytes_more, things_more, ended_more);
  if of_user is not null then
    of_one := workspace.add_held(of_account, of_user, of_kind, bytes_more, things_more, ended_more);
  end if;
  if of_space is not null then
    in_space := workspace.add_held(of_account, of_space, of_kind, bytes_more, things_more, ended_more);
  end if;
  if of_kind = 'leftovers' or bytes_more <= 0 and things_more <= 0 then
    return;
  end if;
  perform sealpost.refuse_quota(beyond.quota, beyond.most) from (
    select q.quota, q.most from sealpost.quotas as q
    join (values
      ('bytes', case when bytes_more > 0 then in_all.documents + in_all.pages + in_all.workflows + in_all.runs end),
      ('documents', case when things_more > 0 and not is_run then in_all.document_count end),
      ('space_bytes', case when bytes_more > 0 then in_space.documents end),
      ('space_documents', case when things_more > 0 then in_space.document_count end),
      ('runs_per_day', case when is_run then in_all.run_count end),
      ('ended_run_bytes', case when is_run then in_all.ended_runs end)
    ) as used (quota, amount) on used.quota = q.quota
    where q.account_id = of_account and used.amount > q.most order by q.quota limit 1
  ) as beyond;
  perform sealpost.refuse_storage(of_kind, l.bytes_max) from sealpost.storage_limits as l
  where l.kind = of_kind and bytes_more > 0 and l.bytes_max
    < (to_jsonb(in_all) ->> of_kind)::bigint + coalesce((to_jsonb(of_one) ->> of_kind)::bigint, 0);
end
$$;

-- Returns what the holder has now. One that is not the account has no row once it has nothing.
create function workspace.add_held(
  of_account uuid, of_holder uuid, of_kind text, bytes_more bigint, things_more bigint, ended_more bigint
) returns workspace.storage
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  held workspace.storage;
  today constant date := (now() at time zone 'UTC')::date;
begin
  loop
    update workspace.storage as s set
      documents = s.documents + case of_kind when 'documents' then bytes_more else 0 end,
      leftovers = s.leftovers + case of_kind when 'leftovers' then bytes_more else 0 end,
      pages = s.pages + case of_kind when 'pages' then bytes_more else 0 end,
      workflows = s.workflows + case of_kind when 'workflows' then bytes_more else 0 end,
      runs = s.runs + case of_kind when 'runs' then bytes_more else 0 end,
      ended_runs = s.ended_runs + ended_more,
      document_count = s.document_count + case of_kind when 'documents' then things_more else 0 end,
      -- Runs that are gone have begun all the same.
      run_count = case when of_kind <> 'runs' or things_more <= 0 then s.run_count
        when s.run_day >= today then s.run_count + things_more else things_more end,
      run_day = case when of_kind <> 'runs' or things_more <= 0 then s.run_day else greatest(s.run_day, today) end
    where s.account_id = of_account and s.holder_id = of_holder
    returning s.* into held;
    exit when found;
    insert into workspace.storage (account_id, holder_id) values (of_account, of_holder)
    on conflict (account_id, holder_id) do nothing;
  end loop;
  if of_holder <> of_account
    and 0 = all (array[held.documents, held.leftovers, held.pages, held.workflows, held.runs, held.document_count])
  then
    delete from workspace.storage as s where s.account_id = of_account and s.holder_id = of_holder;
  end if;
  return held;
end
$$;

-- For the tables below: the kind, the user, the space, the bytes, the things and the bytes that an ended run keeps of a
-- row, as SQL. In one order of accounts, whoever it is that changes rows of several, and what becomes less first.
create function workspace.count_storage() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  counted constant text := format(
    'account_id, %s as kind, %s as user_id, %s as space_id, %s as bytes, %s as things, %s as ended', variadic tg_argv);
  added constant text := format('select 1 as sign, %s from fresh', counted);
  taken constant text := format('select -1 as sign, %s from gone', counted);
  part record;
begin
  for part in execute format(
    'select account_id, kind, user_id, space_id, sum(sign * bytes)::bigint as bytes,
       sum(sign * things)::bigint as things, sum(sign * ended)::bigint as ended
     from (%s) as changed group by account_id, kind, user_id, space_id
     having sum(sign * bytes) <> 0 or sum(sign * things) <> 0 order by account_id, kind, bytes, user_id, space_id',
    case tg_op when 'INSERT' then added when 'DELETE' then taken else added || ' union all ' || taken end)
  loop
    perform workspace.add_storage(
      part.account_id, part.user_id, part.space_id, part.kind, part.bytes, part.things, part.ended);
  end loop;
  return null;
end
$$;

-- With a run's nodes and events 1 KiB each, and 256 bytes each of its items.
create function workspace.run_bytes(input json, item_bytes bigint, item_count integer, node_run_count integer)
returns bigint
language sql immutable
set search_path = pg_catalog, pg_temp
return 1024 + octet_length(input::text) + item_bytes + 256 * item_count::bigint + 1024 * node_run_count::bigint;

create function workspace.count_run() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  -- The input is read only once the run has ended. Whoever changes it counts that.
  perform workspace.add_storage(new.account_id, new.requested_by, null, 'runs',
    new.item_bytes - old.item_bytes + 256 * (new.item_count - old.item_count)::bigint
      + 1024 * (new.node_run_count - old.node_run_count)::bigint,
    0,
    case when new.completed_at is null then 0
      else workspace.run_bytes(new.input, new.item_bytes, new.item_count, new.node_run_count) end
    - case when old.completed_at is null then 0
      else workspace.run_bytes(old.input, old.item_bytes, old.item_count, old.node_run_count) end);
  return null;
end
$$;

-- A row counts 1 KiB besides its text.
do $$
declare
  part record;
begin
  for part in
    select name, is_resized, format('%L, %L, %L, %L, %L, %L', kind, owner, space, bytes, things, ended) as counted
    from (values
      ('spaces', '''documents''', 'owner_id', 'null::uuid', '1024', '0', '0', false),
      ('folders', '''documents''', 'created_by', 'space_id', '1024', '0', '0', false),
      ('documents', '''documents''', 'uploaded_by', 'space_id',
        '1024 + case when has_content then file_size else 0 end', '1', '0', true),
      ('loose_objects', 'case when is_reserved then ''documents'' else ''leftovers'' end', 'user_id',
        'case when is_reserved then space_id end', 'bytes + case when is_reserved then 0 else 1024 end', '0', '0',
        true),
      ('pages', '''pages''', 'created_by', 'null::uuid', '1024 + octet_length(markdown)', '0', '0', true),
      ('page_versions', '''pages''', 'published_by', 'null::uuid',
        '1024 + octet_length(markdown) + octet_length(html)', '0', '0', true),
      ('page_links', '''pages''', 'created_by', 'null::uuid', '1024', '0', '0', false),
      ('workflows', '''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(draft::text)', '0', '0', true),
      ('workflow_versions', '''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(definition::text)',
        '0', '0', false),
      ('runs', '''runs''', 'requested_by', 'null::uuid',
        'workspace.run_bytes(input, item_bytes, item_count, node_run_count)', '1',
        'case when completed_at is null then 0
         else workspace.run_bytes(input, item_bytes, item_count, node_run_count) end', false)
    ) as counted (name, kind, owner, space, bytes, things, ended, is_resized)
  loop
    execute format(
      'create trigger storage_added after insert on workspace.%I referencing new table as fresh
       for each statement execute function workspace.count_storage(%s)', part.name, part.counted);
    execute format(
      'create trigger storage_removed after delete on workspace.%I referencing old table as gone
       for each statement execute function workspace.count_storage(%s)', part.name, part.counted);
    if part.is_resized then
      execute format(
        'create trigger storage_resized after update on workspace.%I referencing old table as gone new table as fresh
         for each statement execute function workspace.count_storage(%s)', part.name, part.counted);
    end if;
  end loop;
end
$$;
-- A run's row changes several times a step, so nearly always this does nothing.
create trigger storage_resized after update on workspace.runs for each row
when ((old.item_bytes, old.item_count, old.node_run_count, old.completed_at is null)
  is distinct from (new.item_bytes, new.item_count, new.node_run_count, new.completed_at is null))
execute function workspace.count_run();

-- 7. The bin: what was deleted, and can be restored until gone_at. To all others than its list, restoring and deleting
-- for good, what is in it is as what does not exist, and its name is free.
create table workspace.bin (
  account_id uuid not null,
  -- Of the deletion: what it took has it as its bin_id.
  id uuid not null default sealpost.uuid_v7(),
  space_id uuid not null,
  kind text not null check (kind in ('space', 'folder', 'document', 'page', 'workflow')),
  item_id uuid not null,
  name text not null,
  deleted_by uuid not null,
  deleted_at timestamptz not null default now(),
  -- -infinity: it is being deleted for good, so nobody restores a part.
  gone_at timestamptz not null,
  -- When somebody goes on with that; later while somebody does.
  next_at timestamptz not null,
  primary key (account_id, id),
  unique (account_id, kind, item_id),
  foreign key (account_id, space_id) references workspace.spaces on delete cascade,
  foreign key (account_id, deleted_by) references sealpost.users (account_id, id)
);
create index bin_space on workspace.bin (account_id, space_id, id);
create index bin_due on workspace.bin (account_id, next_at);

revoke execute on function
  workspace.stamp_delivery(), workspace.close_own_url(),
  workspace.add_storage(uuid, uuid, uuid, text, bigint, bigint, bigint),
  workspace.add_held(uuid, uuid, text, bigint, bigint, bigint), workspace.count_storage(),
  workspace.run_bytes(json, bigint, integer, integer), workspace.count_run()
  from public;
