-- What happens to endpoints, and who is told.

-- Endpoints that do not take everything. A row is written by the dispatchers every few seconds, never by an attempt's
-- own statement, and goes away when all is well again; endpoints that take everything have none.
--
-- url              where the failing attempts went: the streak of another URL is another streak
-- failing_since    the first failed attempt since the last success; null: the last attempt succeeded
-- abandoned        deliveries abandoned that nobody was told of yet
-- is_failing       `endpoint.failing` was told, and no `endpoint.recovered` since
-- told_at          when that was
create table sealpost.endpoint_health (
  account_id uuid primary key,
  url text,
  failing_since timestamptz,
  failed_attempts integer not null default 0,
  abandoned integer not null default 0,
  last_error_code text,
  succeeded_at timestamptz,
  is_failing boolean not null default false,
  told_at timestamptz,
  check (is_failing <= (told_at is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The certificate that an account's endpoint showed last. Written when it is another one than before.
create table sealpost.endpoint_certificates (
  account_id uuid primary key,
  host text not null,
  ends_at timestamptz not null,
  seen_at timestamptz not null default now()
);
create index endpoint_certificates_ends on sealpost.endpoint_certificates (ends_at);
create index signing_secrets_expires on sealpost.signing_secrets (expires_at) where expires_at is not null;

-- What happened. Its time is in its id. The subject (a secret, a certificate, a streak) is told of once.
-- collected_at: when mails were made of it, or were not, because nobody had asked for any. batch: those mails.
create table sealpost.notices (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null,
  kind text not null check (
    kind in ('endpoint.failing', 'endpoint.recovered', 'secret.expiring', 'certificate.expiring')),
  subject text not null,
  details json not null,
  collected_at timestamptz,
  batch uuid,
  check (batch is null or collected_at is not null)
);
create index notices_account on sealpost.notices (account_id, id);
create unique index notices_subject on sealpost.notices (account_id, kind, subject);
create index notices_uncollected on sealpost.notices (account_id, kind) where collected_at is null;
create index notices_collected on sealpost.notices (account_id, kind, collected_at) where batch is not null;

-- Who gets mails. token_digest: SHA-256 of the 256 random bits in the link that confirms the address, made when the
-- mail with it is sent; good until token_expires_at.
create table sealpost.notice_recipients (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null references sealpost.accounts,
  address text not null check (length(address) between 3 and 254),
  created_at timestamptz not null default now(),
  confirmed_at timestamptz,
  token_digest bytea unique check (length(token_digest) = 32),
  token_expires_at timestamptz,
  check ((token_digest is null) = (token_expires_at is null))
);
create unique index notice_recipients_address on sealpost.notice_recipients (account_id, lower(address));

-- Every mail, made before it is sent, and kept to be shown. batch null: it asks its recipient to confirm.
-- `sending` until claimed_until: whoever claimed it has died if it still is by then, perhaps after the mail had left.
create table sealpost.notice_mails (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null,
  recipient_id uuid not null,
  address text not null,
  batch uuid,
  status text not null default 'waiting' check (
    status in ('waiting', 'sending', 'sent', 'perhaps_sent', 'failed')),
  tries integer not null default 0,
  due_at timestamptz not null default now(),
  claim_token uuid,
  claimed_until timestamptz,
  ended_at timestamptz,
  error text,
  check ((status = 'sending') = (claim_token is not null)),
  check ((status = 'sending') = (claimed_until is not null)),
  check ((status in ('sent', 'perhaps_sent', 'failed')) = (ended_at is not null))
);
create index notice_mails_due on sealpost.notice_mails (due_at) where status = 'waiting';
create index notice_mails_claimed on sealpost.notice_mails (claimed_until) where status = 'sending';
create index notice_mails_batch on sealpost.notice_mails (batch) where batch is not null;
create index notice_mails_confirmations on sealpost.notice_mails (lower(address), id) where batch is null;
create index notice_mails_recipient on sealpost.notice_mails (recipient_id, id);

-- Its one row says when somebody looks for news again: one process of all, and whichever comes first.
create table sealpost.notice_turn (
  only_row boolean primary key default true check (only_row),
  next_at timestamptz not null default now()
);
insert into sealpost.notice_turn default values;
