-- Sessions of the console, and the links that open them. Of a link and of a session only the SHA-256 digest of 256
-- random bits is stored.

-- account_id null: a session of support staff, which has no link. key_id: the key that opened it; when that is revoked
-- or expires, the session ends. Null: the command line. permissions: scopes, each of which that key had. viewer_*: whom
-- the host page's owner says it is for.
create table sealpost.console_sessions (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid references sealpost.accounts,
  key_id uuid references sealpost.api_keys,
  permissions text[] not null,
  viewer_id text,
  viewer_label text,
  embed_origin text,
  time_zone text,
  theme text check (theme in ('light', 'dark')),
  -- Until it is entered: the link's. Then the session's own.
  link_digest bytea unique check (length(link_digest) = 32),
  link_expires_at timestamptz,
  path text,
  digest bytea unique check (length(digest) = 32),
  created_at timestamptz not null default now(),
  entered_at timestamptz,
  expires_at timestamptz not null,
  last_active_at timestamptz,
  revoked_at timestamptz,
  check ((digest is null) = (entered_at is null))
);
create index console_sessions_account on sealpost.console_sessions (account_id, id);
create index console_sessions_expires on sealpost.console_sessions (expires_at);

-- Whose session of the console a change was made in; null: none.
alter table sealpost.audit_log add column session_id uuid, add column viewer text;

revoke execute on all functions in schema sealpost from public;
