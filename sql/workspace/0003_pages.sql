-- Pages, their versions, and the links by which anybody can open one.

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
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create index pages_space on workspace.pages (account_id, space_id, id);

-- Never changed. The page's current one has the highest number.
create table workspace.page_versions (
  account_id uuid not null references workspace.workspaces,
  id uuid not null default sealpost.uuid_v7(),
  page_id uuid not null,
  number integer not null check (number >= 1),
  title text not null,
  markdown text not null,
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
  for each row execute function workspace.keep_page_version();

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
