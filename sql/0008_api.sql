-- What the API keeps beside the deliveries themselves.

-- One row per Idempotency-Key of an API key. status null: claimed for a call to somebody else that is under way, until
-- claim_until. Otherwise the stored answer; is_sealed: the body holds a secret and is encrypted like one.
create table sealpost.idempotency_keys (
  account_id uuid not null,
  key_id uuid not null,
  idempotency_key text not null check (length(idempotency_key) between 1 and 200),
  operation_key text not null,
  fingerprint bytea not null,
  created_at timestamptz not null default now(),
  claim_token uuid,
  claim_until timestamptz,
  status integer,
  headers json,
  body bytea,
  is_sealed boolean not null default false,
  primary key (account_id, key_id, idempotency_key),
  check ((status is null) = (claim_token is not null))
);
create index idempotency_keys_created on sealpost.idempotency_keys (created_at);

-- What was changed through the API with a staff key, and every receiver check. Its time is in its id.
create table sealpost.audit_log (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null,
  key_id uuid,
  request_id text,
  operation_key text not null,
  details json
);
create index audit_log_account on sealpost.audit_log (account_id, id);

-- Counts of the windows under way, in the form that rate-limiter-flexible keeps them. Unlogged: a crash forgives.
create unlogged table sealpost.rate_limits (
  key varchar(255) primary key,
  points integer not null default 0,
  expire bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
