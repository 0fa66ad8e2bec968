-- What the files beside this one make of an empty database: for reading, never run. Without partitions by
-- the day, and without functions' texts: each names the file that has it. Written by
-- npx vitest run test/base/database/schema.test.ts -u

create sequence sealpost.event_serials;

create type sealpost.feed_gap as (serials int8multirange, holders text[]);

create type sealpost.read_analysis as (id text, event text, digest bytea, bytes integer, state text, code text, fault text);

create table sealpost.accounts (
  id uuid default sealpost.uuid_v7() not null,
  name text not null,
  created_at timestamptz default now() not null,
  moved_to text,
  is_full boolean default false not null,
  erased_at timestamptz,
  came_from text[] default '{}'[] not null,
  constraint accounts_pkey PRIMARY KEY (id),
  constraint accounts_moved_to_check CHECK (((length(moved_to) >= 1) AND (length(moved_to) <= 100))),
  constraint accounts_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
);
CREATE INDEX accounts_full ON sealpost.accounts USING btree (id) WHERE is_full;

create table sealpost.activity (
  account_id uuid not null,
  bucket timestamptz not null,
  target_host text collate "C" not null,
  outcome text not null,
  error_code text,
  attempts integer not null,
  duration_ms bigint not null,
  first_at timestamptz not null,
  last_at timestamptz not null,
  constraint activity_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded', 'rejected', 'timed_out', 'unreachable', 'tls_failed', 'target_refused', 'interrupted']))),
  constraint activity_key UNIQUE NULLS NOT DISTINCT (account_id, bucket, target_host, outcome, error_code)
) with (fillfactor=70, autovacuum_analyze_threshold=100000);
CREATE INDEX activity_bucket ON sealpost.activity USING btree (bucket, account_id);
CREATE INDEX activity_target_host ON sealpost.activity USING btree (target_host, account_id);

create table sealpost.activity_state (
  only_row boolean default true not null,
  counted_to timestamptz not null,
  fold_at timestamptz not null,
  folded_account uuid default '00000000-0000-0000-0000-000000000000'::uuid not null,
  constraint activity_state_pkey PRIMARY KEY (only_row),
  constraint activity_state_only_row_check CHECK (only_row)
);

create table sealpost.analyses (
  account_id uuid not null,
  id text not null,
  delivery_id uuid not null,
  digest bytea not null,
  constraint analyses_pkey PRIMARY KEY (account_id, id)
) with (autovacuum_analyze_threshold=100000);

create table sealpost.announcing (
  only_row boolean default true not null,
  constraint announcing_pkey PRIMARY KEY (only_row),
  constraint announcing_only_row_check CHECK (only_row)
);

create table sealpost.answered_lanes (
  account_id uuid not null,
  lane bigint not null,
  answered_at timestamptz default now() not null,
  suspended_at timestamptz,
  constraint answered_lanes_pkey PRIMARY KEY (account_id, lane)
) with (autovacuum_vacuum_scale_factor=0.1);

create table sealpost.api_keys (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid,
  digest bytea not null,
  class text not null,
  name text,
  scopes text[] not null,
  created_at timestamptz default now() not null,
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz,
  user_id uuid,
  constraint api_keys_pkey PRIMARY KEY (id),
  constraint api_keys_class_check CHECK ((class = ANY (ARRAY['live', 'test']))),
  constraint api_keys_digest_check CHECK ((length(digest) = 32)),
  constraint api_keys_user_account CHECK (((user_id IS NULL) OR (account_id IS NOT NULL))),
  constraint api_keys_user_scopes CHECK (((user_id IS NULL) OR (NOT (scopes && ARRAY['audit:read', 'users:write', 'webhooks:secrets', 'webhooks:write'])))),
  constraint api_keys_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id),
  constraint api_keys_user FOREIGN KEY (account_id, user_id) REFERENCES sealpost.users(account_id, id) ON DELETE SET NULL (user_id),
  constraint api_keys_digest_key UNIQUE (digest)
);
CREATE INDEX api_keys_account ON sealpost.api_keys USING btree (account_id);

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
  outcome text not null,
  error_code text,
  target_url text,
  remote_address text,
  response_headers text,
  response_excerpt text,
  constraint attempts_pkey PRIMARY KEY (delivery_id, run, number),
  constraint attempts_check CHECK (((outcome = 'succeeded') = (error_code IS NULL))),
  constraint attempts_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded', 'rejected', 'timed_out', 'unreachable', 'tls_failed', 'target_refused', 'interrupted'])))
) partition by RANGE (delivery_id);
CREATE INDEX attempts_ended ON ONLY sealpost.attempts USING brin (ended_at) WITH (pages_per_range='32', autosummarize='on');
CREATE TRIGGER note_late_attempt AFTER INSERT ON sealpost.attempts FOR EACH ROW WHEN ((new.ended_at < (now() - '00:00:05'::interval))) EXECUTE FUNCTION sealpost.note_late_attempt();

create table sealpost.audit_log (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid,
  key_id uuid,
  request_id text,
  operation_key text not null,
  details json,
  actor text,
  actor_name text,
  session_id uuid,
  viewer text,
  constraint audit_log_pkey PRIMARY KEY (id),
  constraint audit_log_actor_check CHECK ((actor = ANY (ARRAY['key', 'staff_key', 'staff', 'command_line'])))
);
CREATE INDEX audit_log_account ON sealpost.audit_log USING btree (account_id, id);

create table sealpost.bodies (
  delivery_id uuid not null,
  account_id uuid not null,
  event text not null,
  webhook_url text,
  traceparent text,
  analysis json not null,
  serial bigint default nextval('sealpost.event_serials'::regclass),
  reference text,
  constraint bodies_pkey PRIMARY KEY (delivery_id)
) partition by RANGE (delivery_id);
CREATE INDEX bodies_serial ON ONLY sealpost.bodies USING btree (serial);

create table sealpost.console_sessions (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid,
  key_id uuid,
  permissions text[] not null,
  viewer_id text,
  viewer_label text,
  embed_origin text,
  time_zone text,
  theme text,
  link_digest bytea,
  link_expires_at timestamptz,
  path text,
  digest bytea,
  created_at timestamptz default now() not null,
  entered_at timestamptz,
  expires_at timestamptz not null,
  last_active_at timestamptz,
  revoked_at timestamptz,
  constraint console_sessions_pkey PRIMARY KEY (id),
  constraint console_sessions_check CHECK (((digest IS NULL) = (entered_at IS NULL))),
  constraint console_sessions_digest_check CHECK ((length(digest) = 32)),
  constraint console_sessions_link_digest_check CHECK ((length(link_digest) = 32)),
  constraint console_sessions_theme_check CHECK ((theme = ANY (ARRAY['light', 'dark']))),
  constraint console_sessions_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id),
  constraint console_sessions_key_id_fkey FOREIGN KEY (key_id) REFERENCES sealpost.api_keys(id),
  constraint console_sessions_digest_key UNIQUE (digest),
  constraint console_sessions_link_digest_key UNIQUE (link_digest)
);
CREATE INDEX console_sessions_account ON sealpost.console_sessions USING btree (account_id, id);
CREATE INDEX console_sessions_expires ON sealpost.console_sessions USING btree (expires_at);

create table sealpost.deliveries (
  id uuid not null,
  account_id uuid not null,
  run integer default 1 not null,
  attempts_count integer default 0 not null,
  last_status_code integer,
  is_example boolean default false not null,
  event text not null,
  status text not null,
  reason text,
  analysis_id text not null,
  webhook_url text,
  endpoint_url text,
  last_error_code text,
  space_id uuid,
  user_id uuid,
  constraint deliveries_pkey PRIMARY KEY (account_id, id),
  constraint deliveries_check CHECK (((status = 'abandoned') = (reason IS NOT NULL))),
  constraint deliveries_event_check CHECK ((event = ANY (ARRAY['analysis.succeeded', 'analysis.failed']))),
  constraint deliveries_reason_check CHECK ((reason = ANY (ARRAY['attempts_exhausted', 'no_target', 'target_refused', 'refused_by_receiver', 'window_ended', 'analysis_expired', 'analysis_erased', 'interrupted']))) NOT VALID,
  constraint deliveries_status_check CHECK ((status = ANY (ARRAY['pending', 'failed', 'succeeded', 'abandoned'])))
) partition by RANGE (id);
CREATE INDEX deliveries_undelivered ON ONLY sealpost.deliveries USING btree (account_id, status, id) WHERE (status = ANY (ARRAY['failed', 'abandoned']));

create table sealpost.endpoint_certificates (
  account_id uuid not null,
  host text not null,
  ends_at timestamptz not null,
  seen_at timestamptz default now() not null,
  constraint endpoint_certificates_pkey PRIMARY KEY (account_id)
);
CREATE INDEX endpoint_certificates_ends ON sealpost.endpoint_certificates USING btree (ends_at);

create table sealpost.endpoint_health (
  account_id uuid not null,
  url text,
  failing_since timestamptz,
  failed_attempts integer default 0 not null,
  abandoned integer default 0 not null,
  last_error_code text,
  succeeded_at timestamptz,
  is_failing boolean default false not null,
  told_at timestamptz,
  constraint endpoint_health_pkey PRIMARY KEY (account_id),
  constraint endpoint_health_check CHECK ((is_failing <= (told_at IS NOT NULL)))
) with (fillfactor=70, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);

create table sealpost.endpoints (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  url text not null,
  created_at timestamptz default now() not null,
  updated_at timestamptz default now() not null,
  paused_at timestamptz,
  gather_at timestamptz,
  gather_from uuid,
  sends_references boolean default false not null,
  forgets_after_success boolean default false not null,
  signs_standard boolean default false not null,
  sealed_headers bytea,
  constraint endpoints_pkey PRIMARY KEY (id),
  constraint endpoints_options CHECK ((NOT (forgets_after_success AND sends_references))),
  constraint endpoints_url_check CHECK ((length(url) <= 2048)),
  constraint endpoints_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id),
  constraint endpoints_account_id_key UNIQUE (account_id)
);
CREATE INDEX endpoints_gather ON sealpost.endpoints USING btree (gather_at) WHERE (gather_at IS NOT NULL);
CREATE INDEX endpoints_paused ON sealpost.endpoints USING btree (account_id) WHERE (paused_at IS NOT NULL);
CREATE INDEX endpoints_updated ON sealpost.endpoints USING btree (updated_at);

create table sealpost.erasures (
  account_id uuid not null,
  analysis_id text,
  erased_at timestamptz default now() not null,
  constraint erasures_account_id_analysis_id_key UNIQUE NULLS NOT DISTINCT (account_id, analysis_id)
);
CREATE INDEX erasures_in_order ON sealpost.erasures USING btree (erased_at, account_id, COALESCE(analysis_id, ''));

create table sealpost.feed (
  account_id uuid not null,
  "position" bigint not null,
  delivery_id uuid not null,
  constraint feed_pkey PRIMARY KEY (account_id, "position")
) partition by RANGE ("position");

create table sealpost.feed_consumers (
  account_id uuid not null,
  name text not null,
  "position" bigint not null,
  updated_at timestamptz not null,
  key_id uuid not null,
  other_seen_at timestamptz,
  constraint feed_consumers_pkey PRIMARY KEY (account_id, name)
);

create table sealpost.feed_steps (
  step bigint not null,
  holder uuid not null,
  lease_until timestamptz not null,
  "position" bigint not null,
  serial bigint not null,
  gaps sealpost.feed_gap[] default '{}'::sealpost.feed_gap[] not null,
  caught_up_at timestamptz not null,
  constraint feed_steps_pkey PRIMARY KEY (step)
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=5000);

create table sealpost.forgetting (
  delivery_id uuid not null,
  account_id uuid not null,
  look_at timestamptz not null,
  constraint forgetting_pkey PRIMARY KEY (delivery_id)
);
CREATE INDEX forgetting_look_at ON sealpost.forgetting USING btree (account_id, look_at);

create table sealpost.held_deliveries (
  account_id uuid not null,
  delivery_id uuid not null,
  wait_s double precision default 0 not null,
  run_age_s double precision,
  run integer default 1 not null,
  attempts_in_run integer default 0 not null,
  interruptions integer default 0 not null,
  body_bytes integer not null,
  constraint held_deliveries_pkey PRIMARY KEY (account_id, delivery_id)
) with (autovacuum_vacuum_scale_factor=0.05);

create table sealpost.idempotency_keys (
  account_id uuid not null,
  key_id uuid not null,
  idempotency_key text not null,
  operation_key text not null,
  fingerprint bytea not null,
  created_at timestamptz default now() not null,
  claim_token uuid,
  claim_until timestamptz,
  status integer,
  headers json,
  body bytea,
  is_sealed boolean default false not null,
  constraint idempotency_keys_pkey PRIMARY KEY (account_id, key_id, idempotency_key),
  constraint idempotency_keys_check CHECK (((status IS NULL) = (claim_token IS NOT NULL))),
  constraint idempotency_keys_idempotency_key_check CHECK (((length(idempotency_key) >= 1) AND (length(idempotency_key) <= 200)))
);
CREATE INDEX idempotency_keys_created ON sealpost.idempotency_keys USING btree (created_at);

create table sealpost.late_attempts (
  account_id uuid not null,
  target_url text,
  outcome text not null,
  error_code text,
  started_at timestamptz not null,
  ended_at timestamptz not null,
  constraint late_attempts_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded', 'rejected', 'timed_out', 'unreachable', 'tls_failed', 'target_refused', 'interrupted'])))
);

create table sealpost.leader (
  only_row boolean default true not null,
  holder uuid not null,
  until timestamptz not null,
  looked_from timestamptz,
  constraint leader_pkey PRIMARY KEY (only_row),
  constraint leader_only_row_check CHECK (only_row)
);

create table sealpost.migration_lock (
);

create table sealpost.migrations (
  name text not null,
  applied_at timestamptz default now() not null,
  digest text not null,
  constraint migrations_pkey PRIMARY KEY (name)
);

create table sealpost.moves (
  account_id uuid not null,
  id uuid not null,
  direction text not null,
  step text default 'begun' not null,
  other_cell text,
  other_database text,
  feed_ends_at bigint,
  copied json default '{}'::json not null,
  begun_at timestamptz default now() not null,
  ended_at timestamptz,
  constraint moves_pkey PRIMARY KEY (account_id),
  constraint moves_check CHECK (((step = ANY (ARRAY['done', 'deleting', 'deleted'])) = (ended_at IS NOT NULL))),
  constraint moves_direction_check CHECK ((direction = ANY (ARRAY['out', 'in']))),
  constraint moves_step_check CHECK ((step = ANY (ARRAY['begun', 'still', 'opening', 'done', 'deleting', 'deleted'])))
);

create table sealpost.notice_mails (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  recipient_id uuid not null,
  address text not null,
  batch uuid,
  status text default 'waiting' not null,
  tries integer default 0 not null,
  due_at timestamptz default now() not null,
  claim_token uuid,
  claimed_until timestamptz,
  ended_at timestamptz,
  error text,
  constraint notice_mails_pkey PRIMARY KEY (id),
  constraint notice_mails_check CHECK (((status = 'sending') = (claim_token IS NOT NULL))),
  constraint notice_mails_check1 CHECK (((status = 'sending') = (claimed_until IS NOT NULL))),
  constraint notice_mails_check2 CHECK (((status = ANY (ARRAY['sent', 'perhaps_sent', 'failed'])) = (ended_at IS NOT NULL))),
  constraint notice_mails_status_check CHECK ((status = ANY (ARRAY['waiting', 'sending', 'sent', 'perhaps_sent', 'failed'])))
);
CREATE INDEX notice_mails_batch ON sealpost.notice_mails USING btree (batch) WHERE (batch IS NOT NULL);
CREATE INDEX notice_mails_claimed ON sealpost.notice_mails USING btree (claimed_until) WHERE (status = 'sending');
CREATE INDEX notice_mails_confirmations ON sealpost.notice_mails USING btree (lower(address), id) WHERE (batch IS NULL);
CREATE INDEX notice_mails_due ON sealpost.notice_mails USING btree (due_at) WHERE (status = 'waiting');
CREATE INDEX notice_mails_recipient ON sealpost.notice_mails USING btree (recipient_id, id);

create table sealpost.notice_recipients (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  address text not null,
  created_at timestamptz default now() not null,
  confirmed_at timestamptz,
  token_digest bytea,
  token_expires_at timestamptz,
  constraint notice_recipients_pkey PRIMARY KEY (id),
  constraint notice_recipients_address_check CHECK (((length(address) >= 3) AND (length(address) <= 254))),
  constraint notice_recipients_check CHECK (((token_digest IS NULL) = (token_expires_at IS NULL))),
  constraint notice_recipients_token_digest_check CHECK ((length(token_digest) = 32)),
  constraint notice_recipients_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id),
  constraint notice_recipients_token_digest_key UNIQUE (token_digest)
);
CREATE UNIQUE INDEX notice_recipients_address ON sealpost.notice_recipients USING btree (account_id, lower(address));

create table sealpost.notice_turn (
  only_row boolean default true not null,
  next_at timestamptz default now() not null,
  constraint notice_turn_pkey PRIMARY KEY (only_row),
  constraint notice_turn_only_row_check CHECK (only_row)
);

create table sealpost.notices (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  kind text not null,
  subject text not null,
  details json not null,
  collected_at timestamptz,
  batch uuid,
  constraint notices_pkey PRIMARY KEY (id),
  constraint notices_check CHECK (((batch IS NULL) OR (collected_at IS NOT NULL))),
  constraint notices_kind_check CHECK ((kind = ANY (ARRAY['endpoint.failing', 'endpoint.recovered', 'secret.expiring', 'certificate.expiring'])))
);
CREATE INDEX notices_account ON sealpost.notices USING btree (account_id, id);
CREATE INDEX notices_collected ON sealpost.notices USING btree (account_id, kind, collected_at) WHERE (batch IS NOT NULL);
CREATE INDEX notices_uncollected ON sealpost.notices USING btree (account_id, kind) WHERE (collected_at IS NULL);
CREATE UNIQUE INDEX notices_subject ON sealpost.notices USING btree (account_id, kind, subject);

create table sealpost.open_deliveries (
  delivery_id uuid not null,
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
  lease_alone boolean default false not null,
  run integer default 1 not null,
  attempts_in_run integer default 0 not null,
  interruptions integer default 0 not null,
  body_bytes integer not null,
  constraint open_deliveries_pkey PRIMARY KEY (delivery_id),
  constraint open_deliveries_check CHECK (((lease_token IS NULL) = (lease_until IS NULL)))
) with (fillfactor=60, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=50000);
CREATE INDEX open_deliveries_wake ON sealpost.open_deliveries USING btree (wake_at);

create table sealpost.parked_deliveries (
  account_id uuid not null,
  delivery_id uuid not null,
  is_held boolean not null,
  lane bigint,
  due_at timestamptz,
  run_started_at timestamptz,
  lease_run integer,
  lease_alone boolean,
  wait_s double precision,
  run_age_s double precision,
  run integer not null,
  attempts_in_run integer not null,
  interruptions integer not null,
  body_bytes integer not null,
  constraint parked_deliveries_pkey PRIMARY KEY (account_id, delivery_id),
  constraint parked_deliveries_check CHECK ((is_held = (due_at IS NULL)))
);

create table sealpost.published (
  account_id uuid not null,
  user_id uuid not null,
  day date not null,
  analyses bigint default 0 not null,
  bytes bigint default 0 not null,
  attempt_bytes bigint default 0 not null,
  constraint published_pkey PRIMARY KEY (account_id, user_id, day)
) with (fillfactor=50);

create table sealpost.published_state (
  only_row boolean default true not null,
  serial bigint default 0 not null,
  ended_to timestamptz default now() not null,
  counted_at timestamptz default now() not null,
  constraint published_state_pkey PRIMARY KEY (only_row),
  constraint published_state_only_row_check CHECK (only_row)
);

create table sealpost.quarantine_lock (
);

create table sealpost.quotas (
  account_id uuid not null,
  quota text not null,
  most bigint not null,
  constraint quotas_pkey PRIMARY KEY (account_id, quota),
  constraint quotas_most_check CHECK ((most >= 0)),
  constraint quotas_quota_check CHECK ((quota = ANY (ARRAY['bytes', 'documents', 'space_bytes', 'space_documents', 'runs_per_day', 'ended_run_bytes']))),
  constraint quotas_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id)
);

create unlogged table sealpost.rate_limits (
  key character varying(255) not null,
  points integer default 0 not null,
  expire bigint,
  constraint rate_limits_pkey PRIMARY KEY (key)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);

create table sealpost.receiver_addresses (
  address text not null,
  next_at timestamptz not null,
  constraint receiver_addresses_pkey PRIMARY KEY (address)
);

create table sealpost.receivers (
  account_id uuid not null,
  origin text not null,
  proven_at timestamptz,
  proven_since timestamptz,
  next_at timestamptz,
  busy_until timestamptz,
  address text,
  constraint receivers_pkey PRIMARY KEY (account_id, origin)
) with (autovacuum_vacuum_scale_factor=0.1);
CREATE INDEX receivers_old ON sealpost.receivers USING btree (next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX receivers_proven ON sealpost.receivers USING btree (proven_at) WHERE (next_at IS NULL);
CREATE INDEX receivers_resting ON sealpost.receivers USING btree (account_id, next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX receivers_waiting ON sealpost.receivers USING btree (address, next_at) WHERE (next_at IS NOT NULL);

create table sealpost.refusals (
  account_id uuid not null,
  url text not null,
  refused_at timestamptz default now() not null,
  lifted_at timestamptz,
  constraint refusals_pkey PRIMARY KEY (account_id, url)
);

create table sealpost.replay_items (
  replay_id uuid not null,
  "position" integer not null,
  delivery_id uuid not null,
  run integer,
  outcome text,
  constraint replay_items_pkey PRIMARY KEY (replay_id, "position"),
  constraint replay_items_outcome_check CHECK ((outcome = ANY (ARRAY['replayed', 'skipped']))),
  constraint replay_items_replay_id_fkey FOREIGN KEY (replay_id) REFERENCES sealpost.replays(id) ON DELETE CASCADE
);
CREATE INDEX replay_items_delivery ON sealpost.replay_items USING btree (delivery_id);
CREATE INDEX replay_items_waiting ON sealpost.replay_items USING btree (replay_id, "position") WHERE (outcome IS NULL);

create table sealpost.replays (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  status text not null,
  filter json not null,
  rate_per_second integer not null,
  matched integer not null,
  replayed integer default 0 not null,
  skipped integer default 0 not null,
  succeeded integer default 0 not null,
  failed integer default 0 not null,
  created_at timestamptz not null,
  paced_at timestamptz not null,
  ended_at timestamptz,
  count_at timestamptz default now(),
  note text,
  created_by_key_id uuid,
  created_by text,
  created_by_viewer text,
  space_ids uuid[],
  failing integer default 0 not null,
  failing_causes json default '[]'::json not null,
  constraint replays_pkey PRIMARY KEY (id),
  constraint replays_check CHECK (((status = ANY (ARRAY['running', 'delivering'])) = (ended_at IS NULL))),
  constraint replays_created_by_check CHECK ((created_by = ANY (ARRAY['key', 'staff_key', 'staff', 'command_line']))),
  constraint replays_note_check CHECK ((char_length(note) <= 500)),
  constraint replays_rate_per_second_check CHECK ((rate_per_second > 0)),
  constraint replays_status_check CHECK ((status = ANY (ARRAY['running', 'delivering', 'done', 'cancelled'])))
);
CREATE INDEX replays_account ON sealpost.replays USING btree (account_id, id);
CREATE INDEX replays_count_at ON sealpost.replays USING btree (count_at) WHERE (count_at IS NOT NULL);
CREATE INDEX replays_running ON sealpost.replays USING btree (id) WHERE (status = 'running');
CREATE INDEX replays_running_account ON sealpost.replays USING btree (account_id) WHERE (status = 'running');

create table sealpost.settings (
  only_row boolean default true not null,
  analysis_bytes_max integer default 1048576 not null,
  unsafe_allowed_targets text[] default '{}'[] not null,
  cell text,
  analysis_retention_ms bigint,
  log_retention_ms bigint,
  audit_retention_ms bigint,
  idempotency_retention_ms bigint,
  secrets_canary text,
  secrets_canary_next text,
  proven_from timestamptz,
  analyses_url text default '/v1/analyses/' not null,
  constraint settings_pkey PRIMARY KEY (only_row),
  constraint settings_analysis_bytes_max_check CHECK ((analysis_bytes_max > 0)),
  constraint settings_cell_check CHECK ((cell ~ '^[a-z][a-z0-9-]{0,31}$')),
  constraint settings_only_row_check CHECK (only_row)
);

create table sealpost.signing_secrets (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  sealed bytea not null,
  created_at timestamptz default now() not null,
  expires_at timestamptz,
  constraint signing_secrets_pkey PRIMARY KEY (id),
  constraint signing_secrets_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id)
);
CREATE INDEX signing_secrets_account ON sealpost.signing_secrets USING btree (account_id, id DESC);
CREATE INDEX signing_secrets_expires ON sealpost.signing_secrets USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE UNIQUE INDEX signing_secrets_current ON sealpost.signing_secrets USING btree (account_id) WHERE (expires_at IS NULL);

create table sealpost.storage_limits (
  kind text not null,
  bytes_max bigint,
  constraint storage_limits_pkey PRIMARY KEY (kind),
  constraint storage_limits_bytes_max_check CHECK ((bytes_max > 0)),
  constraint storage_limits_kind_check CHECK ((kind = ANY (ARRAY['analyses', 'replays', 'answers', 'audit', 'documents', 'leftovers', 'pages', 'workflows', 'runs'])))
);

create table sealpost.users (
  id uuid default sealpost.uuid_v7() not null,
  account_id uuid not null,
  idp_user_id text not null,
  email text not null,
  name text not null,
  image_url text,
  created_at timestamptz default now() not null,
  disabled_at timestamptz,
  constraint users_pkey PRIMARY KEY (id),
  constraint users_email_check CHECK (((length(email) >= 1) AND (length(email) <= 254))),
  constraint users_idp_user_id_check CHECK (((length(idp_user_id) >= 1) AND (length(idp_user_id) <= 200))),
  constraint users_image_url_check CHECK ((length(image_url) <= 2048)),
  constraint users_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint users_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id),
  constraint users_account_id_id_key UNIQUE (account_id, id),
  constraint users_account_id_idp_user_id_key UNIQUE (account_id, idp_user_id)
);

create table sealpost.write_bytes (
  account_id uuid not null,
  user_id uuid not null,
  day date not null,
  answer_bytes bigint not null,
  audit_bytes bigint not null,
  constraint write_bytes_pkey PRIMARY KEY (account_id, user_id, day)
) with (fillfactor=50);

create unlogged table sealpost.write_probe (
  filler bytea storage plain
);

create table workspace.bin (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  space_id uuid not null,
  kind text not null,
  item_id uuid not null,
  name text not null,
  deleted_by uuid not null,
  deleted_at timestamptz default now() not null,
  gone_at timestamptz not null,
  next_at timestamptz not null,
  constraint bin_pkey PRIMARY KEY (account_id, id),
  constraint bin_kind_check CHECK ((kind = ANY (ARRAY['space', 'folder', 'document', 'page', 'workflow']))),
  constraint bin_account_id_deleted_by_fkey FOREIGN KEY (account_id, deleted_by) REFERENCES sealpost.users(account_id, id),
  constraint bin_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id) ON DELETE CASCADE,
  constraint bin_account_id_kind_item_id_key UNIQUE (account_id, kind, item_id)
);
CREATE INDEX bin_due ON workspace.bin USING btree (account_id, next_at);
CREATE INDEX bin_space ON workspace.bin USING btree (account_id, space_id, id);

create table workspace.documents (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  space_id uuid not null,
  folder_id uuid,
  file_name text not null,
  content_type text not null,
  file_size bigint not null,
  storage_key text not null,
  status text default 'PENDING_UPLOAD' not null,
  doc_origin text default 'UPLOADED' not null,
  live_content_type text not null,
  has_content boolean default false not null,
  uploaded_by uuid not null,
  created_at timestamptz default now() not null,
  bin_id uuid,
  constraint documents_pkey PRIMARY KEY (account_id, id),
  constraint documents_content_type_check CHECK (((length(content_type) >= 1) AND (length(content_type) <= 255))),
  constraint documents_doc_origin_check CHECK ((doc_origin = ANY (ARRAY['UPLOADED']))),
  constraint documents_file_name_check CHECK (((octet_length(file_name) >= 1) AND (octet_length(file_name) <= 255))),
  constraint documents_file_size_check CHECK ((file_size >= 0)),
  constraint documents_live_content_type_check CHECK ((live_content_type = ANY (ARRAY['MARKDOWN', 'NONE']))),
  constraint documents_status_check CHECK ((status = ANY (ARRAY['PENDING_UPLOAD', 'UPLOADED']))),
  constraint documents_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id),
  constraint documents_account_id_space_id_folder_id_fkey FOREIGN KEY (account_id, space_id, folder_id) REFERENCES workspace.folders(account_id, space_id, id) ON DELETE SET NULL (folder_id),
  constraint documents_account_id_uploaded_by_fkey FOREIGN KEY (account_id, uploaded_by) REFERENCES sealpost.users(account_id, id),
  constraint documents_storage_key_key UNIQUE (storage_key)
);
CREATE INDEX documents_bin ON workspace.documents USING btree (account_id, bin_id) WHERE (bin_id IS NOT NULL);
CREATE INDEX documents_folder ON workspace.documents USING btree (account_id, space_id, folder_id, id);
CREATE INDEX documents_space ON workspace.documents USING btree (account_id, space_id, id) WHERE (bin_id IS NULL);
CREATE UNIQUE INDEX documents_names ON workspace.documents USING btree (account_id, space_id, folder_id, file_name) NULLS NOT DISTINCT WHERE (bin_id IS NULL);
CREATE TRIGGER count_added AFTER INSERT ON workspace.documents REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_documents();
CREATE TRIGGER count_removed AFTER DELETE ON workspace.documents REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_documents();
CREATE TRIGGER storage_added AFTER INSERT ON workspace.documents REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'uploaded_by', 'space_id', '1024 + case when has_content then file_size else 0 end', '1', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.documents REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'uploaded_by', 'space_id', '1024 + case when has_content then file_size else 0 end', '1', '0');
CREATE TRIGGER storage_resized AFTER UPDATE ON workspace.documents REFERENCING OLD TABLE AS gone NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'uploaded_by', 'space_id', '1024 + case when has_content then file_size else 0 end', '1', '0');

create table workspace.feed_readers (
  account_id uuid not null,
  "position" bigint not null,
  constraint feed_readers_pkey PRIMARY KEY (account_id),
  constraint feed_readers_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id)
);

create table workspace.folders (
  account_id uuid not null,
  space_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  parent_id uuid,
  name text not null,
  created_by uuid not null,
  created_at timestamptz default now() not null,
  bin_id uuid,
  constraint folders_pkey PRIMARY KEY (account_id, space_id, id),
  constraint folders_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint folders_account_id_created_by_fkey FOREIGN KEY (account_id, created_by) REFERENCES sealpost.users(account_id, id),
  constraint folders_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id),
  constraint folders_account_id_space_id_parent_id_fkey FOREIGN KEY (account_id, space_id, parent_id) REFERENCES workspace.folders(account_id, space_id, id) ON DELETE SET NULL (parent_id)
);
CREATE INDEX folders_bin ON workspace.folders USING btree (account_id, bin_id) WHERE (bin_id IS NOT NULL);
CREATE INDEX folders_siblings ON workspace.folders USING btree (account_id, space_id, parent_id, id);
CREATE UNIQUE INDEX folders_names ON workspace.folders USING btree (account_id, space_id, parent_id, name) NULLS NOT DISTINCT WHERE (bin_id IS NULL);
CREATE TRIGGER storage_added AFTER INSERT ON workspace.folders REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'created_by', 'space_id', '1024', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.folders REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'created_by', 'space_id', '1024', '0', '0');

create table workspace.hooks (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  workflow_id uuid not null,
  key_digest bytea not null,
  sealed_secret bytea not null,
  created_by uuid not null,
  created_at timestamptz default now() not null,
  ends_at timestamptz,
  constraint hooks_pkey PRIMARY KEY (account_id, id),
  constraint hooks_key_digest_check CHECK ((octet_length(key_digest) = 32)),
  constraint hooks_account_id_created_by_fkey FOREIGN KEY (account_id, created_by) REFERENCES sealpost.users(account_id, id),
  constraint hooks_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint hooks_account_id_workflow_id_fkey FOREIGN KEY (account_id, workflow_id) REFERENCES workspace.workflows(account_id, id),
  constraint hooks_key_digest_key UNIQUE (key_digest)
);
CREATE INDEX hooks_workflow ON workspace.hooks USING btree (account_id, workflow_id, id);

create table workspace.loose_objects (
  account_id uuid not null,
  storage_key text not null,
  is_reserved boolean not null,
  bytes bigint default 0 not null,
  user_id uuid,
  space_id uuid,
  remove_at timestamptz not null,
  constraint loose_objects_pkey PRIMARY KEY (account_id, storage_key),
  constraint loose_objects_bytes_check CHECK ((bytes >= 0)),
  constraint loose_objects_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint loose_objects_account_id_user_id_fkey FOREIGN KEY (account_id, user_id) REFERENCES sealpost.users(account_id, id)
);
CREATE INDEX loose_objects_due ON workspace.loose_objects USING btree (account_id, remove_at);
CREATE INDEX loose_objects_of_document ON workspace.loose_objects USING btree (account_id, workspace.document_of(storage_key));
CREATE TRIGGER storage_added AFTER INSERT ON workspace.loose_objects REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('case when is_reserved then ''documents'' else ''leftovers'' end', 'user_id', 'case when is_reserved then space_id end', 'bytes + case when is_reserved then 0 else 1024 end', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.loose_objects REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('case when is_reserved then ''documents'' else ''leftovers'' end', 'user_id', 'case when is_reserved then space_id end', 'bytes + case when is_reserved then 0 else 1024 end', '0', '0');
CREATE TRIGGER storage_resized AFTER UPDATE ON workspace.loose_objects REFERENCING OLD TABLE AS gone NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('case when is_reserved then ''documents'' else ''leftovers'' end', 'user_id', 'case when is_reserved then space_id end', 'bytes + case when is_reserved then 0 else 1024 end', '0', '0');

create table workspace.moves (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  space_id uuid not null,
  document_id uuid,
  asked integer default 1 not null,
  after_id uuid default '00000000-0000-0000-0000-000000000000'::uuid not null,
  asked_at timestamptz default now() not null,
  asked_by uuid,
  failures integer default 0 not null,
  next_at timestamptz default now() not null,
  constraint moves_pkey PRIMARY KEY (account_id, id),
  constraint moves_account_id_asked_by_fkey FOREIGN KEY (account_id, asked_by) REFERENCES sealpost.users(account_id, id),
  constraint moves_account_id_document_id_fkey FOREIGN KEY (account_id, document_id) REFERENCES workspace.documents(account_id, id),
  constraint moves_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id),
  constraint moves_account_id_space_id_document_id_key UNIQUE NULLS NOT DISTINCT (account_id, space_id, document_id)
);
CREATE INDEX moves_due ON workspace.moves USING btree (account_id, next_at);

create table workspace.node_items (
  account_id uuid not null,
  run_id uuid not null,
  sequence integer not null,
  index integer not null,
  item json not null,
  constraint node_items_pkey PRIMARY KEY (account_id, run_id, sequence, index),
  constraint node_items_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint node_items_account_id_run_id_sequence_fkey FOREIGN KEY (account_id, run_id, sequence) REFERENCES workspace.node_runs(account_id, run_id, sequence) ON DELETE CASCADE
);

create table workspace.node_runs (
  account_id uuid not null,
  run_id uuid not null,
  sequence integer not null,
  id uuid default sealpost.uuid_v7() not null,
  node_id text not null,
  status text default 'QUEUED' not null,
  attempt integer default 1 not null,
  input_count integer not null,
  item_count integer default 0 not null,
  error_item_count integer default 0 not null,
  error_code text,
  error_message text,
  wake_at timestamptz,
  awaited_analysis_id text,
  started_at timestamptz,
  completed_at timestamptz,
  "position" json,
  is_ready boolean default true not null,
  next_at timestamptz default now(),
  lease_token uuid,
  constraint node_runs_pkey PRIMARY KEY (account_id, run_id, sequence),
  constraint node_runs_node_id_check CHECK (((length(node_id) >= 1) AND (length(node_id) <= 64))),
  constraint node_runs_status_check CHECK ((status = ANY (ARRAY['QUEUED', 'ACTIVE', 'WAITING', 'SUCCEEDED', 'FAILED', 'CANCELLED']))),
  constraint node_runs_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint node_runs_account_id_run_id_fkey FOREIGN KEY (account_id, run_id) REFERENCES workspace.runs(account_id, id) ON DELETE CASCADE,
  constraint node_runs_account_id_run_id_node_id_key UNIQUE (account_id, run_id, node_id)
);
CREATE INDEX node_runs_awaiting ON workspace.node_runs USING btree (account_id, awaited_analysis_id) WHERE ((status = 'WAITING') AND (awaited_analysis_id IS NOT NULL));
CREATE INDEX node_runs_later ON workspace.node_runs USING btree (next_at) WHERE ((NOT is_ready) AND (next_at IS NOT NULL));
CREATE INDEX node_runs_later_of_account ON workspace.node_runs USING btree (account_id, next_at) WHERE ((NOT is_ready) AND (next_at IS NOT NULL));
CREATE INDEX node_runs_ready ON workspace.node_runs USING btree (account_id, next_at) WHERE is_ready;

create table workspace.object_store (
  is_only boolean default true not null,
  id uuid,
  constraint object_store_pkey PRIMARY KEY (is_only),
  constraint object_store_is_only_check CHECK (is_only)
);

create table workspace.page_links (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  page_id uuid not null,
  token_digest bytea not null,
  pinned_version_id uuid,
  label text not null,
  status text default 'ACTIVE' not null,
  password_hash text,
  auth_version integer default 1 not null,
  expires_at timestamptz,
  max_visits integer,
  visit_count bigint default 0 not null,
  last_visited_at timestamptz,
  created_by uuid not null,
  created_at timestamptz default now() not null,
  updated_at timestamptz default now() not null,
  constraint page_links_pkey PRIMARY KEY (account_id, id),
  constraint page_links_label_check CHECK (((length(label) >= 1) AND (length(label) <= 200))),
  constraint page_links_max_visits_check CHECK ((max_visits >= 1)),
  constraint page_links_status_check CHECK ((status = ANY (ARRAY['ACTIVE', 'REVOKED']))),
  constraint page_links_token_digest_check CHECK ((octet_length(token_digest) = 32)),
  constraint page_links_account_id_created_by_fkey FOREIGN KEY (account_id, created_by) REFERENCES sealpost.users(account_id, id),
  constraint page_links_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint page_links_account_id_page_id_fkey FOREIGN KEY (account_id, page_id) REFERENCES workspace.pages(account_id, id),
  constraint page_links_account_id_page_id_pinned_version_id_fkey FOREIGN KEY (account_id, page_id, pinned_version_id) REFERENCES workspace.page_versions(account_id, page_id, id),
  constraint page_links_token_digest_key UNIQUE (token_digest)
);
CREATE INDEX page_links_page ON workspace.page_links USING btree (account_id, page_id, id);
CREATE TRIGGER storage_added AFTER INSERT ON workspace.page_links REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'created_by', 'null::uuid', '1024', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.page_links REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'created_by', 'null::uuid', '1024', '0', '0');

create table workspace.page_versions (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  page_id uuid not null,
  number integer not null,
  title text not null,
  markdown text not null,
  html text not null,
  renderer integer not null,
  revision integer not null,
  published_by uuid not null,
  published_at timestamptz default now() not null,
  constraint page_versions_pkey PRIMARY KEY (account_id, id),
  constraint page_versions_number_check CHECK ((number >= 1)),
  constraint page_versions_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint page_versions_account_id_page_id_fkey FOREIGN KEY (account_id, page_id) REFERENCES workspace.pages(account_id, id),
  constraint page_versions_account_id_published_by_fkey FOREIGN KEY (account_id, published_by) REFERENCES sealpost.users(account_id, id),
  constraint page_versions_account_id_page_id_id_key UNIQUE (account_id, page_id, id),
  constraint page_versions_account_id_page_id_number_key UNIQUE (account_id, page_id, number)
);
CREATE TRIGGER keep_page_version BEFORE UPDATE ON workspace.page_versions FOR EACH ROW WHEN ((((to_jsonb(old.*) - 'html') - 'renderer') <> ((to_jsonb(new.*) - 'html') - 'renderer'))) EXECUTE FUNCTION workspace.keep_page_version();
CREATE TRIGGER storage_added AFTER INSERT ON workspace.page_versions REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'published_by', 'null::uuid', '1024 + octet_length(markdown) + octet_length(html)', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.page_versions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'published_by', 'null::uuid', '1024 + octet_length(markdown) + octet_length(html)', '0', '0');
CREATE TRIGGER storage_resized AFTER UPDATE ON workspace.page_versions REFERENCING OLD TABLE AS gone NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'published_by', 'null::uuid', '1024 + octet_length(markdown) + octet_length(html)', '0', '0');

create table workspace.pages (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  space_id uuid not null,
  title text not null,
  markdown text not null,
  revision integer default 1 not null,
  created_by uuid not null,
  created_at timestamptz default now() not null,
  updated_at timestamptz default now() not null,
  bin_id uuid,
  constraint pages_pkey PRIMARY KEY (account_id, id),
  constraint pages_markdown_check CHECK ((octet_length(markdown) <= 262144)),
  constraint pages_title_check CHECK (((length(title) >= 1) AND (length(title) <= 200))),
  constraint pages_account_id_created_by_fkey FOREIGN KEY (account_id, created_by) REFERENCES sealpost.users(account_id, id),
  constraint pages_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id)
);
CREATE INDEX pages_space ON workspace.pages USING btree (account_id, space_id, id);
CREATE TRIGGER storage_added AFTER INSERT ON workspace.pages REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'created_by', 'null::uuid', '1024 + octet_length(markdown)', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.pages REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'created_by', 'null::uuid', '1024 + octet_length(markdown)', '0', '0');
CREATE TRIGGER storage_resized AFTER UPDATE ON workspace.pages REFERENCING OLD TABLE AS gone NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''pages''', 'created_by', 'null::uuid', '1024 + octet_length(markdown)', '0', '0');

create table workspace.run_events (
  account_id uuid not null,
  run_id uuid not null,
  sequence integer not null,
  kind text not null,
  node_id text,
  details json,
  created_at timestamptz default now() not null,
  constraint run_events_pkey PRIMARY KEY (account_id, run_id, sequence),
  constraint run_events_kind_check CHECK ((kind = ANY (ARRAY['run.created', 'run.started', 'run.waiting', 'run.succeeded', 'run.failed', 'run.cancelled', 'node.started', 'node.resumed', 'node.progressed', 'node.waiting', 'node.retried', 'node.succeeded', 'node.failed', 'node.cancelled']))),
  constraint run_events_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint run_events_account_id_run_id_fkey FOREIGN KEY (account_id, run_id) REFERENCES workspace.runs(account_id, id) ON DELETE CASCADE
);

create table workspace.runs (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7(now()) not null,
  space_id uuid not null,
  workflow_id uuid not null,
  version integer not null,
  status text default 'QUEUED' not null,
  input json not null,
  retry_of uuid,
  test_node_id text,
  webhook_url text,
  traceparent text,
  requested_by uuid not null,
  requested_key_id uuid,
  trigger_id uuid,
  webhook_id uuid,
  begun_for text,
  error_code text,
  error_message text,
  error_details json,
  delivery_id uuid,
  node_run_count integer default 0 not null,
  event_count integer default 0 not null,
  item_count integer default 0 not null,
  item_bytes bigint default 0 not null,
  brought_bytes bigint default 0 not null,
  created_at timestamptz default now() not null,
  started_at timestamptz,
  completed_at timestamptz,
  constraint runs_pkey PRIMARY KEY (account_id, id),
  constraint runs_check CHECK (((requested_key_id IS NULL) = (num_nonnulls(trigger_id, webhook_id) = 1))),
  constraint runs_status_check CHECK ((status = ANY (ARRAY['QUEUED', 'ACTIVE', 'WAITING', 'SUCCEEDED', 'FAILED', 'CANCELLED']))),
  constraint runs_account_id_requested_by_fkey FOREIGN KEY (account_id, requested_by) REFERENCES sealpost.users(account_id, id),
  constraint runs_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id),
  constraint runs_account_id_workflow_id_version_fkey FOREIGN KEY (account_id, workflow_id, version) REFERENCES workspace.workflow_versions(account_id, workflow_id, version)
);
CREATE INDEX runs_ended ON workspace.runs USING btree (completed_at) WHERE (completed_at IS NOT NULL);
CREATE INDEX runs_ended_space ON workspace.runs USING btree (account_id, space_id, status, id) WHERE (completed_at IS NOT NULL);
CREATE INDEX runs_ended_space_newest ON workspace.runs USING btree (account_id, space_id, id) WHERE (completed_at IS NOT NULL);
CREATE INDEX runs_ended_workflow ON workspace.runs USING btree (account_id, workflow_id, status, id) WHERE (completed_at IS NOT NULL);
CREATE INDEX runs_own_url ON workspace.runs USING btree (delivery_id) WHERE (webhook_url IS NOT NULL);
CREATE INDEX runs_unfinished ON workspace.runs USING btree (account_id, status) WHERE (completed_at IS NULL);
CREATE INDEX runs_workflow ON workspace.runs USING btree (account_id, workflow_id, id);
CREATE UNIQUE INDEX runs_begun_for ON workspace.runs USING btree (account_id, workflow_id, begun_for) WHERE (begun_for IS NOT NULL);
CREATE TRIGGER runs_close_own_url AFTER DELETE ON workspace.runs FOR EACH ROW WHEN (((old.webhook_url IS NOT NULL) AND (old.delivery_id IS NOT NULL))) EXECUTE FUNCTION workspace.close_own_url();
CREATE TRIGGER runs_stamp_delivery AFTER INSERT OR UPDATE OF delivery_id ON workspace.runs FOR EACH ROW WHEN ((new.delivery_id IS NOT NULL)) EXECUTE FUNCTION workspace.stamp_delivery();
CREATE TRIGGER storage_added AFTER INSERT ON workspace.runs REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''runs''', 'requested_by', 'null::uuid', 'workspace.run_bytes(input, item_bytes, item_count, node_run_count)', '1', 'case when completed_at is null then 0
         else workspace.run_bytes(input, item_bytes, item_count, node_run_count) end');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.runs REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''runs''', 'requested_by', 'null::uuid', 'workspace.run_bytes(input, item_bytes, item_count, node_run_count)', '1', 'case when completed_at is null then 0
         else workspace.run_bytes(input, item_bytes, item_count, node_run_count) end');
CREATE TRIGGER storage_resized AFTER UPDATE ON workspace.runs FOR EACH ROW WHEN (((((old.item_bytes IS DISTINCT FROM new.item_bytes) OR (old.item_count IS DISTINCT FROM new.item_count)) OR (old.node_run_count IS DISTINCT FROM new.node_run_count)) OR ((old.completed_at IS NULL) IS DISTINCT FROM (new.completed_at IS NULL)))) EXECUTE FUNCTION workspace.count_run();

create table workspace.schedules (
  account_id uuid not null,
  workflow_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  node_id text not null,
  cron text not null,
  time_zone text not null,
  catch_up_seconds integer not null,
  done_until timestamptz default now() not null,
  next_at timestamptz,
  last_fired_at timestamptz,
  error_code text,
  constraint schedules_pkey PRIMARY KEY (account_id, workflow_id),
  constraint schedules_catch_up_seconds_check CHECK ((catch_up_seconds > 0)),
  constraint schedules_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint schedules_account_id_workflow_id_fkey FOREIGN KEY (account_id, workflow_id) REFERENCES workspace.workflows(account_id, id)
);
CREATE INDEX schedules_due ON workspace.schedules USING btree (next_at);
CREATE INDEX schedules_due_of_account ON workspace.schedules USING btree (account_id, next_at);

create table workspace.space_members (
  account_id uuid not null,
  user_id uuid not null,
  space_id uuid not null,
  role text not null,
  created_at timestamptz default now() not null,
  bin_id uuid,
  constraint space_members_pkey PRIMARY KEY (account_id, user_id, space_id),
  constraint space_members_role_check CHECK ((role = ANY (ARRAY['ADMIN', 'EDITOR', 'VIEWER']))),
  constraint space_members_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id) ON DELETE CASCADE,
  constraint space_members_account_id_user_id_fkey FOREIGN KEY (account_id, user_id) REFERENCES sealpost.users(account_id, id)
);
CREATE UNIQUE INDEX space_members_space ON workspace.space_members USING btree (account_id, space_id, user_id);

create table workspace.spaces (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  owner_id uuid not null,
  name text not null,
  storage_prefix text not null,
  document_count integer default 0 not null,
  created_at timestamptz default now() not null,
  bin_id uuid,
  constraint spaces_pkey PRIMARY KEY (account_id, id),
  constraint spaces_document_count_check CHECK ((document_count >= 0)),
  constraint spaces_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint spaces_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint spaces_account_id_owner_id_fkey FOREIGN KEY (account_id, owner_id) REFERENCES sealpost.users(account_id, id),
  constraint spaces_storage_prefix_key UNIQUE (storage_prefix)
);
CREATE UNIQUE INDEX spaces_prefix_digits ON workspace.spaces USING btree ("right"((id), 12));
CREATE TRIGGER storage_added AFTER INSERT ON workspace.spaces REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'owner_id', 'null::uuid', '1024', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.spaces REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''documents''', 'owner_id', 'null::uuid', '1024', '0', '0');

create table workspace.storage (
  account_id uuid not null,
  holder_id uuid not null,
  documents bigint default 0 not null,
  leftovers bigint default 0 not null,
  pages bigint default 0 not null,
  workflows bigint default 0 not null,
  runs bigint default 0 not null,
  ended_runs bigint default 0 not null,
  document_count bigint default 0 not null,
  run_count bigint default 0 not null,
  run_day date,
  constraint storage_pkey PRIMARY KEY (account_id, holder_id),
  constraint storage_document_count_check CHECK ((document_count >= 0)),
  constraint storage_documents_check CHECK ((documents >= 0)),
  constraint storage_ended_runs_check CHECK ((ended_runs >= 0)),
  constraint storage_leftovers_check CHECK ((leftovers >= 0)),
  constraint storage_pages_check CHECK ((pages >= 0)),
  constraint storage_runs_check CHECK ((runs >= 0)),
  constraint storage_workflows_check CHECK ((workflows >= 0)),
  constraint storage_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id)
) with (fillfactor=50);

create table workspace.workflow_versions (
  account_id uuid not null,
  workflow_id uuid not null,
  version integer not null,
  id uuid default sealpost.uuid_v7() not null,
  definition jsonb not null,
  change_note text,
  created_by uuid not null,
  created_at timestamptz default now() not null,
  constraint workflow_versions_pkey PRIMARY KEY (account_id, workflow_id, version),
  constraint workflow_versions_change_note_check CHECK (((length(change_note) >= 1) AND (length(change_note) <= 1000))),
  constraint workflow_versions_version_check CHECK ((version > 0)),
  constraint workflow_versions_account_id_created_by_fkey FOREIGN KEY (account_id, created_by) REFERENCES sealpost.users(account_id, id),
  constraint workflow_versions_account_id_fkey FOREIGN KEY (account_id) REFERENCES workspace.workspaces(account_id),
  constraint workflow_versions_account_id_workflow_id_fkey FOREIGN KEY (account_id, workflow_id) REFERENCES workspace.workflows(account_id, id),
  constraint workflow_versions_account_id_id_key UNIQUE (account_id, id)
);
CREATE TRIGGER keep_version BEFORE UPDATE ON workspace.workflow_versions FOR EACH ROW EXECUTE FUNCTION workspace.keep_version();
CREATE TRIGGER storage_added AFTER INSERT ON workspace.workflow_versions REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(definition)', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.workflow_versions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(definition)', '0', '0');

create table workspace.workflows (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  space_id uuid not null,
  name text not null,
  summary text default '' not null,
  status text default 'ACTIVE' not null,
  enabled boolean default true not null,
  draft jsonb not null,
  draft_revision integer default 1 not null,
  draft_updated_at timestamptz default now() not null,
  current_version integer,
  created_by uuid not null,
  created_at timestamptz default now() not null,
  updated_at timestamptz default now() not null,
  bin_id uuid,
  constraint workflows_pkey PRIMARY KEY (account_id, id),
  constraint workflows_draft_revision_check CHECK ((draft_revision > 0)),
  constraint workflows_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
  constraint workflows_status_check CHECK ((status = ANY (ARRAY['ACTIVE', 'ARCHIVED']))),
  constraint workflows_summary_check CHECK ((length(summary) <= 1000)),
  constraint workflows_account_id_created_by_fkey FOREIGN KEY (account_id, created_by) REFERENCES sealpost.users(account_id, id),
  constraint workflows_account_id_id_current_version_fkey FOREIGN KEY (account_id, id, current_version) REFERENCES workspace.workflow_versions(account_id, workflow_id, version) ON DELETE SET NULL (current_version),
  constraint workflows_account_id_space_id_fkey FOREIGN KEY (account_id, space_id) REFERENCES workspace.spaces(account_id, id)
);
CREATE INDEX workflows_space ON workspace.workflows USING btree (account_id, space_id, status, id);
CREATE TRIGGER storage_added AFTER INSERT ON workspace.workflows REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(draft)', '0', '0');
CREATE TRIGGER storage_removed AFTER DELETE ON workspace.workflows REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(draft)', '0', '0');
CREATE TRIGGER storage_resized AFTER UPDATE ON workspace.workflows REFERENCING OLD TABLE AS gone NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION workspace.count_storage('''workflows''', 'created_by', 'null::uuid', '1024 + octet_length(draft)', '0', '0');

create table workspace.workspaces (
  account_id uuid not null,
  id uuid default sealpost.uuid_v7() not null,
  constraint workspaces_pkey PRIMARY KEY (account_id),
  constraint workspaces_account_id_fkey FOREIGN KEY (account_id) REFERENCES sealpost.accounts(id),
  constraint workspaces_id_key UNIQUE (id)
);

CREATE CONSTRAINT TRIGGER sealpost_announce_wakeups AFTER INSERT ON graphile_worker._private_jobs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sealpost.announce_wakeups();

CREATE TRIGGER sealpost_keep_task BEFORE DELETE ON graphile_worker._private_tasks FOR EACH ROW WHEN ((old.identifier = 'deliver')) EXECUTE FUNCTION sealpost.keep_task();

alter table graphile_worker._private_jobs set (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=10000);

function sealpost.add_wakeups(delivery_ids uuid[], lanes bigint[]) returns void
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0010_delivery.sql
function sealpost.add_write_bytes(of_account uuid, of_user uuid, answer_more bigint, audit_more bigint) returns void
  sql, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.advance_holds(analysis_retention interval, at timestamptz, account_max integer, rows_max integer, OUT released integer, OUT expired integer, OUT is_gathering boolean) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_partition_pruning=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0010_delivery.sql
function sealpost.advance_replays(analysis_retention interval, at timestamptz) returns integer
  sql, 0011_log.sql
function sealpost.advance_replays(analysis_retention interval, at timestamptz, items_max integer) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.announce_events() returns void
  sql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.announce_wakeups() returns trigger
  plpgsql, security definer, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.claim_idempotency_keys(account_ids uuid[], key_ids uuid[], idempotency_keys text[]) returns TABLE(n bigint, lock bigint, is_ours boolean, is_held boolean, fingerprint bytea, status integer, headers json, body bytea, is_sealed boolean, moved_to text, is_key_good boolean)
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, 0009_accounts.sql
function sealpost.closed_url(of_account uuid, of_delivery uuid) returns SETOF uuid
  sql, stable, workspace/0001_workspace.sql
function sealpost.count_activity(lag interval, span_max interval, late_max integer, OUT counted_to timestamptz, OUT is_behind boolean) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0011_log.sql
function sealpost.count_answers(account_ids uuid[], user_ids uuid[], answers_more bigint[]) returns bigint[]
  plpgsql, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.count_published(rows_max integer, log_bytes integer, lag interval, OUT is_behind boolean) returns boolean
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0009_accounts.sql
function sealpost.count_replay(of_replay uuid, of_account uuid, OUT succeeded integer, OUT failed integer) returns record
  sql, stable, search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0007_replays.sql
function sealpost.count_replay_open(of_replay uuid, of_account uuid) returns integer
  sql, stable, search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0011_log.sql
function sealpost.count_write(of_account uuid, of_key uuid, of_user uuid, answer_more bigint, audit_more bigint, is_refused boolean) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.days_kept(OUT bodies integer, OUT log integer, OUT audit integer) returns record
  sql, stable, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.end_turn(whose uuid, of_origin text, of_url text, is_proof boolean) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.erase_analysis(of_account uuid, of_analysis text, OUT its_delivery uuid, OUT in_flight boolean) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0011_log.sql
function sealpost.fold_activity(after interval, accounts_max integer) returns boolean
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0011_log.sql
function sealpost.forget_answered_lanes(retention interval, lanes_max integer, rows_max integer) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.forget_receivers(rows_max integer) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, enable_seqscan=off, 0010_delivery.sql
function sealpost.gather(of_account uuid, from_id uuid, looks_max integer, OUT next_id uuid) returns uuid
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0010_delivery.sql
function sealpost.hold(delivery_ids uuid[]) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0010_delivery.sql
function sealpost.hold_leased(delivery_ids uuid[], token uuid, at timestamptz) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0010_delivery.sql
function sealpost.is_erased(analysis json) returns boolean
  sql, stable, parallel safe, 0011_log.sql
function sealpost.is_key_good(of_key uuid) returns boolean
  sql, 0009_accounts.sql
function sealpost.is_normalized_origin(origin text) returns boolean
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.is_paused(of_account uuid, of_lane bigint) returns boolean
  sql, stable, 0010_delivery.sql
function sealpost.is_too_deep(analysis text) returns boolean
  plpgsql, immutable, parallel safe, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.keep_task() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, 0005_publish.sql
function sealpost.lane(account_id uuid, webhook_url text) returns bigint
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.lead(of_holder uuid, lease interval, wake_from timestamptz, OUT leads boolean, OUT is_due boolean, OUT is_paced boolean, OUT at timestamptz) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0010_delivery.sql
function sealpost.make_partitions(first_day date, days integer) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, lock_timeout=2s, 0012_feed.sql
function sealpost.note_late_attempt() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.origin(url text) returns text
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.park_deliveries(of_account uuid, rows_max integer, OUT rest integer, OUT cut uuid[]) returns record
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.pause_endpoint(of_account uuid, looks_max integer) returns boolean
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.promote(at timestamptz, rows_max integer, lane_max integer, waiting_jobs_max integer, OUT looked integer, OUT woken integer) returns record
  sql, 0010_delivery.sql
function sealpost.promote(at timestamptz, rows_max integer, lane_max integer, waiting_jobs_max integer, wake_from timestamptz, jobs_from timestamptz, OUT looked integer, OUT woken integer) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0010_delivery.sql
function sealpost.prove_from_log() returns boolean
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.publication_faults(account_ids uuid[], analyses json[], webhook_urls text[]) returns TABLE(n bigint, state text, code text, fault text, hint text)
  plpgsql, stable, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.publish(account_ids uuid[], analyses json[], webhook_urls text[], is_example boolean, at timestamptz) returns uuid[]
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.publish_analyses(account_ids uuid[], analyses json[], webhook_urls text[]) returns uuid[]
  sql, security definer, search_path=pg_catalog, pg_temp, standard_conforming_strings=on, 0005_publish.sql
function sealpost.publish_analysis(account_id uuid, analysis json, webhook_url text DEFAULT NULL) returns uuid
  plpgsql, security definer, search_path=pg_catalog, pg_temp, standard_conforming_strings=on, 0010_delivery.sql
function sealpost.publish_each(account_ids uuid[], analyses json[], webhook_urls text[], traceparents text[], is_example boolean, at timestamptz, OUT delivery_ids uuid[], OUT codes text[]) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0010_delivery.sql
function sealpost.publish_fault(state text, element integer, code text, message text, hint text) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0005_publish.sql
function sealpost.publish_fresh(account_id uuid, analysis json, traceparent text) returns uuid
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0010_delivery.sql
function sealpost.publish_writes(account_ids uuid[], key_ids uuid[], user_ids uuid[], idempotency_keys text[], fingerprints bytea[], analyses json[], webhook_urls text[], traceparents text[], answers_before text[], answers_after text[], of_operation text, status integer, headers json, answer_bytes bigint, lock_wait_ms integer, OUT delivery_ids uuid[], OUT codes text[], OUT answers_max bigint) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0010_delivery.sql
function sealpost.published_bytes(of_account uuid, of_user uuid, log_bytes integer) returns bigint
  sql, stable, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.read_analysis(analysis json, bytes_max integer) returns sealpost.read_analysis
  plpgsql, immutable, 0005_publish.sql
function sealpost.reference_of(analysis_id text, event text, url text) returns text
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.refuse_publication(account_ids uuid[], analyses json[], webhook_urls text[]) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.refuse_quota(quota text, most bigint) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.refuse_storage(of_kind text, bytes_max bigint) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function sealpost.replay_bytes(of_account uuid, of_user uuid) returns bigint
  sql, stable, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.replay_delivery(of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, OUT outcome text, OUT next_run integer) returns record
  sql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.replay_delivery(of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, runs_max integer, OUT outcome text, OUT next_run integer) returns record
  plpgsql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.replay_shares(at timestamptz, items_max integer) returns TABLE(id uuid, account_id uuid, rate_per_second integer, paced_from timestamptz, allowed integer)
  plpgsql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.replay_standing(of_replay uuid, of_account uuid, OUT succeeded integer, OUT failed integer, OUT failing integer, OUT failing_causes json) returns record
  sql, stable, search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0011_log.sql
function sealpost.resume_endpoint(of_account uuid) returns boolean
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.send_to_endpoint(of_deliveries uuid[], token uuid, at timestamptz) returns void
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_partition_pruning=off, jit=off, 0010_delivery.sql
function sealpost.sequence_events(of_holder uuid, lease interval, rows_max integer, OUT leads boolean, OUT sequenced integer, OUT is_full boolean) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off, 0012_feed.sql
function sealpost.start_next_run(of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, runs_max integer, OUT outcome text, OUT next_run integer, OUT wakes_lane bigint) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, 0011_log.sql
function sealpost.store_count_of_replay(of_replay uuid, at timestamptz) returns void
  plpgsql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.sweep_jobs(at timestamptz, limit_rows integer) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, 0006_promote.sql
function sealpost.take_let_go(of_accounts uuid[], of_lanes bigint[], from_ids uuid[], rows_max integer[], at timestamptz) returns TABLE(number bigint, ids uuid[], next_id uuid)
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0013_turns_and_erasures.sql
function sealpost.take_replay_to_count(at timestamptz) returns uuid
  sql, search_path=pg_catalog, pg_temp, 0011_log.sql
function sealpost.take_turn(whose uuid, of_origin text, at_address text, is_first boolean, is_further boolean, lease interval, receiver_every interval, address_every interval, OUT is_proven boolean, OUT wait_ms double precision) returns record
  plpgsql, search_path=pg_catalog, pg_temp, enable_seqscan=off, 0013_turns_and_erasures.sql
function sealpost.unpark_deliveries(of_account uuid) returns integer
  plpgsql, search_path=pg_catalog, pg_temp, 0010_delivery.sql
function sealpost.uuid_v7(at timestamptz DEFAULT clock_timestamp()) returns uuid
  sql, parallel safe, 0010_delivery.sql
function sealpost.uuid_v7_floor(at timestamptz) returns uuid
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.uuid_v7_of(prefix bytea) returns uuid
  sql, parallel safe, 0010_delivery.sql
function sealpost.uuid_v7_prefix(at timestamptz) returns bytea
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.uuid_v7_time(id uuid) returns timestamptz
  sql, immutable, parallel safe, 0010_delivery.sql
function sealpost.wake_proven(since timestamptz, lane_max integer, for_seconds integer, at timestamptz, OUT woken integer, OUT is_all boolean) returns record
  plpgsql, search_path=pg_catalog, pg_temp, plan_cache_mode=force_generic_plan, enable_seqscan=off, jit=off, enable_hashjoin=off, enable_mergejoin=off, 0013_turns_and_erasures.sql
function sealpost.webhook_url_fault(url text, unsafe text[]) returns text
  plpgsql, immutable, parallel safe, 0010_delivery.sql
function sealpost.without_escapes(body text) returns json
  plpgsql, immutable, 0010_delivery.sql
function sealpost.written_bytes(of_account uuid, of_user uuid, of_kind text) returns bigint
  sql, stable, search_path=pg_catalog, pg_temp, 0009_accounts.sql
function workspace.add_held(of_account uuid, of_holder uuid, of_kind text, bytes_more bigint, things_more bigint, ended_more bigint) returns workspace.storage
  plpgsql, search_path=pg_catalog, pg_temp, workspace/0001_workspace.sql
function workspace.add_storage(of_account uuid, of_user uuid, of_space uuid, of_kind text, bytes_more bigint, things_more bigint, ended_more bigint) returns void
  plpgsql, search_path=pg_catalog, pg_temp, workspace/0001_workspace.sql
function workspace.close_own_url() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, enable_seqscan=off, workspace/0001_workspace.sql
function workspace.count_documents() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, for everybody, workspace/0001_workspace.sql
function workspace.count_run() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, workspace/0001_workspace.sql
function workspace.count_storage() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, workspace/0001_workspace.sql
function workspace.document_of(storage_key text) returns text
  sql, immutable, parallel safe, for everybody, workspace/0001_workspace.sql
function workspace.keep_page_version() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, for everybody, workspace/0001_workspace.sql
function workspace.keep_version() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, for everybody, workspace/0001_workspace.sql
function workspace.run_bytes(input json, item_bytes bigint, item_count integer, node_run_count integer) returns bigint
  sql, immutable, search_path=pg_catalog, pg_temp, workspace/0001_workspace.sql
function workspace.stamp_delivery() returns trigger
  plpgsql, search_path=pg_catalog, pg_temp, enable_seqscan=off, workspace/0001_workspace.sql
