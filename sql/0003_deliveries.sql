-- The delivery log and what is still open. `deliveries`, `bodies` and `attempts` are partitioned by the day in
-- which the delivery was made, read from its UUIDv7; see sealpost.make_partitions.

-- A narrow registry: which analysis became which delivery. It alone makes publishing idempotent.
create table sealpost.analyses (
  account_id uuid not null,
  id text not null,
  delivery_id uuid not null,
  digest bytea not null,
  primary key (account_id, id)
) with (autovacuum_analyze_threshold = 100000);

-- What is sent, and never changes: all that a claim needs besides the open row, so that it reads one partition only.
-- The exact text: `json`, never `jsonb`, which would refuse \u0000, drop duplicate keys and rewrite numbers.
create table sealpost.bodies (
  delivery_id uuid not null,
  account_id uuid not null,
  event text not null,
  webhook_url text,
  traceparent text,
  analysis json not null,
  primary key (delivery_id)
) partition by range (delivery_id);

-- The log's row, one per delivery. Its created_at is in its id.
-- endpoint_url: where the last attempt went when there is no webhook_url; null before the first.
create table sealpost.deliveries (
  id uuid not null,
  account_id uuid not null,
  run integer not null default 1,
  attempts_count integer not null default 0,
  last_status_code integer,
  is_example boolean not null default false,
  event text not null check (event in ('analysis.succeeded', 'analysis.failed')),
  status text not null check (status in ('pending', 'failed', 'succeeded', 'abandoned')),
  reason text check (
    reason in
      ('attempts_exhausted', 'no_target', 'target_refused', 'window_ended', 'analysis_expired', 'interrupted')),
  analysis_id text not null,
  webhook_url text,
  endpoint_url text,
  last_error_code text,
  check ((status = 'abandoned') = (reason is not null)),
  primary key (account_id, id)
) partition by range (id);
create index deliveries_undelivered on sealpost.deliveries (account_id, status, id)
  where status in ('failed', 'abandoned');

-- One row per attempt, in the partition of its delivery's day, so that both leave together.
create table sealpost.attempts (
  delivery_id uuid not null,
  account_id uuid not null,
  run integer not null,
  number integer not null,
  started_at timestamptz not null,
  ended_at timestamptz not null,
  dns_ms real,
  connect_ms real,
  tls_ms real,
  first_byte_ms real,
  status_code integer,
  outcome text not null check (
    outcome in
      ('succeeded', 'rejected', 'timed_out', 'unreachable', 'tls_failed', 'target_refused', 'interrupted')),
  error_code text,
  target_url text,
  remote_address text,
  response_headers text,
  response_excerpt text,
  check ((outcome = 'succeeded') = (error_code is null)),
  primary key (delivery_id, run, number)
) partition by range (delivery_id);

-- What still has attempts to come, and nothing else: small, never partitioned, so that a claim stays cheap
-- while the log grows. A row leaves when its delivery ends.
--
-- lane              (account, origin of the webhook_url or "its endpoint"), hashed: who waits for whom
-- due_at            not before this moment
-- wake_at           when the promoter looks at the row (again)
-- run_started_at    start of the run's first attempt; null before it
-- attempts_in_run   counted attempts of this run that have ended
-- interruptions     attempts in a row whose dispatcher died
-- body_bytes        size of the analysis's text: how much a claim may take is bounded in bytes
-- lease_*           the attempt under way; lease_token null: nobody has it. lease_number null: no attempt is under
--                   way, the lease is only for ending the run.
--                   With leases of 15 s and more a claim changes no indexed column, so it stays HOT (a measured
--                   third of its cost).
create table sealpost.open_deliveries (
  delivery_id uuid primary key,
  account_id uuid not null,
  lane bigint not null,
  due_at timestamptz not null,
  wake_at timestamptz not null,
  run_started_at timestamptz,
  lease_until timestamptz,
  lease_started_at timestamptz,
  lease_token uuid,
  lease_run integer,
  lease_number integer,
  lease_alone boolean not null default false,
  run integer not null default 1,
  attempts_in_run integer not null default 0,
  interruptions integer not null default 0,
  body_bytes integer not null,
  check ((lease_token is null) = (lease_until is null))
) with (
  fillfactor = 60,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_analyze_scale_factor = 0,
  autovacuum_analyze_threshold = 50000
);
create index open_deliveries_wake on sealpost.open_deliveries (wake_at);
