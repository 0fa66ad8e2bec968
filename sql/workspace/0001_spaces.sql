-- Spaces with their members, folders and documents. Every key begins with the account, and so does every list's index.
create schema workspace;
revoke all on schema workspace from public;

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
  created_at timestamptz not null default now(),
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
  primary key (account_id, user_id, space_id),
  foreign key (account_id, user_id) references sealpost.users (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces
);
create unique index space_members_space on workspace.space_members (account_id, space_id, user_id);

-- parent_id null: at the top of its space.
create table workspace.folders (
  account_id uuid not null,
  space_id uuid not null,
  id uuid not null default sealpost.uuid_v7(),
  parent_id uuid,
  name text not null check (length(name) between 1 and 200),
  created_by uuid not null,
  created_at timestamptz not null default now(),
  primary key (account_id, space_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, space_id, parent_id) references workspace.folders,
  foreign key (account_id, created_by) references sealpost.users (account_id, id)
);
create unique index folders_names on workspace.folders (account_id, space_id, parent_id, name) nulls not distinct;
create index folders_siblings on workspace.folders (account_id, space_id, parent_id, id);

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
  primary key (account_id, id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, space_id, folder_id) references workspace.folders,
  foreign key (account_id, uploaded_by) references sealpost.users (account_id, id)
);
create unique index documents_names on workspace.documents (account_id, space_id, folder_id, file_name)
  nulls not distinct;
create index documents_space on workspace.documents (account_id, space_id, id);
