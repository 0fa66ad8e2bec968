-- What is stored of documents, and what has to be moved or removed. Keys are never used twice: what was read, planned
-- or copied under one key is not mistaken for another's, however late somebody comes with it.

-- A folder's documents in the order of their list.
create index documents_folder on workspace.documents (account_id, space_id, folder_id, id);

-- A key under which something may be stored though no document names it: written before anything is, and taken away in
-- the transaction in which a document gets the key. Reserved: somebody may still bring it to a document. Otherwise
-- nobody can any more, and the object is removed, and then the row.
create table workspace.loose_objects (
  account_id uuid not null references workspace.workspaces,
  storage_key text not null,
  is_reserved boolean not null,
  -- When it is looked at next.
  remove_at timestamptz not null,
  primary key (account_id, storage_key)
);
create index loose_objects_due on workspace.loose_objects (remove_at);

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
  -- When somebody goes on with it; later while somebody does.
  next_at timestamptz not null default now(),
  primary key (account_id, id),
  unique nulls not distinct (account_id, space_id, document_id),
  foreign key (account_id, space_id) references workspace.spaces,
  foreign key (account_id, document_id) references workspace.documents
);
create index moves_due on workspace.moves (next_at);
