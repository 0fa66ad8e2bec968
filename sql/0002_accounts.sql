-- Tenants, who may call in their name, where their webhooks go, and what signs them.

create table sealpost.accounts (
  id uuid primary key default sealpost.uuid_v7(),
  name text not null check (length(name) between 1 and 200),
  created_at timestamptz not null default now()
);

-- account_id null: a staff key, good for every account. Only the SHA-256 digest of a key is ever stored.
create table sealpost.api_keys (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid references sealpost.accounts,
  digest bytea not null unique check (length(digest) = 32),
  class text not null check (class in ('live', 'test')),
  name text,
  scopes text[] not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz
);
create index api_keys_account on sealpost.api_keys (account_id);

-- One endpoint per account for now; it has an id of its own so that more can come.
create table sealpost.endpoints (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null unique references sealpost.accounts,
  url text not null check (length(url) <= 2048),
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

-- The secret's text is sealed (AES-256-GCM) before it reaches the database.
-- expires_at null: the current secret. A rotated one stays valid, second in the signature, until it expires.
create table sealpost.signing_secrets (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null references sealpost.accounts,
  sealed bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz
);
create unique index signing_secrets_current on sealpost.signing_secrets (account_id) where expires_at is null;
create index signing_secrets_account on sealpost.signing_secrets (account_id, id desc);
