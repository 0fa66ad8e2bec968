-- Accounts: their people and keys, what they are told and may store, and moving them to another cell.

-- 1. People.

create table sealpost.users (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null references sealpost.accounts,
  -- Who it is at the account's identity provider.
  idp_user_id text not null check (length(idp_user_id) between 1 and 200),
  email text not null check (length(email) between 1 and 254),
  name text not null check (length(name) between 1 and 200),
  image_url text check (length(image_url) <= 2048),
  created_at timestamptz not null default now(),
  -- From then on nobody acts for it: its keys are revoked, and none are made. Null: enabled.
  disabled_at timestamptz,
  unique (account_id, id),
  unique (account_id, idp_user_id)
);

-- 2. What happens to endpoints, and who is told.

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

-- 3. Writes.

-- Whether a key has neither been revoked nor expired by now, but for what this transaction itself has done: a key may
-- revoke itself, as its last. Whoever has none (a person of the staff) has no such row.
create function sealpost.is_key_good(of_key uuid) returns boolean
language sql volatile
begin atomic
  select not exists (
    select from sealpost.api_keys
    where id = any (array[of_key]) and (revoked_at is not null or expires_at <= clock_timestamp())
      and xmin is distinct from pg_current_xact_id_if_assigned()::xid);
end;

-- Claims Idempotency-Keys until the transaction ends, and finds what was answered under them. Never waits: an insert
-- would, for whoever has claimed the same key, hence the advisory locks. is_ours: the lock was to be had.
--
-- is_key_good: see sealpost.is_key_good; a request may have begun half a minute ago. No key is good for an account
-- that is erased, whose own may be gone.
--
-- Every write asks here first whether its account has moved. Then even what was answered is not answered again: at the
-- target it is. To processes of the version before the key is in progress.
create function sealpost.claim_idempotency_keys(account_ids uuid[], key_ids uuid[], idempotency_keys text[])
returns table (
  n bigint, lock bigint, is_ours boolean, is_held boolean,
  fingerprint bytea, status integer, headers json, body bytea, is_sealed boolean, moved_to text, is_key_good boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
  locks bigint[];
  ours boolean[];
begin
  select array_agg(named.lock order by named.n), array_agg(pg_try_advisory_xact_lock(named.lock) order by named.n)
  into locks, ours
  from (
    select input.n, hashtextextended(account_id || ' ' || key_id || ' ' || idempotency_key, 1) as lock
    from unnest(account_ids, key_ids, idempotency_keys) with ordinality
      as input (account_id, key_id, idempotency_key, n)
    offset 0
  ) as named;
  -- A statement of its own, so that it sees what the holder before us committed. An answer is final, with or without
  -- the lock.
  return query
  select input.n, locks[input.n], ours[input.n] and a.moved_to is null,
    coalesce(k.status is null and k.claim_until > now(), false),
    k.fingerprint, case when a.moved_to is null then k.status end, k.headers, k.body, k.is_sealed, a.moved_to,
    a.erased_at is null and sealpost.is_key_good(input.key_id)
  from unnest(account_ids, key_ids, idempotency_keys) with ordinality
    as input (account_id, key_id, idempotency_key, n)
  left join sealpost.idempotency_keys as k
    on k.account_id = any (array[input.account_id]) and k.key_id = any (array[input.key_id])
      and k.idempotency_key = any (array[input.idempotency_key])
  left join sealpost.accounts as a on a.id = any (array[input.account_id])
  order by input.n;
end
$$;

-- 4. What an account may store, by kind, and what of it is not counted elsewhere: what writes leave, and what was
-- published.

-- migrate writes the limits (src/base/model/storage.ts). Of a kind that has no row, or null, there may be any amount.
create table sealpost.storage_limits (
  kind text primary key check (kind in (
    'analyses', 'replays', 'answers', 'audit', 'documents', 'leftovers', 'pages', 'workflows', 'runs')),
  bytes_max bigint check (bytes_max > 0)
);

-- Refuses what would bring an account beyond a limit; the API makes a problem of it.
create function sealpost.refuse_storage(of_kind text, bytes_max bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'SP009',
    message = format('the account may store %s bytes of the kind "%s", and this is more', bytes_max, of_kind),
    detail = json_build_object('kind', of_kind, 'bytesMax', bytes_max),
    hint = 'Remove what is not needed, or raise ACCOUNT_STORAGE_BYTES_MAX and run migrate again.';
end
$$;

-- What one account may have of the workspace, where an operator says so (`sealpost account quota`).
create table sealpost.quotas (
  account_id uuid not null references sealpost.accounts,
  quota text not null check (quota in (
    'bytes', 'documents', 'space_bytes', 'space_documents', 'runs_per_day', 'ended_run_bytes')),
  most bigint not null check (most >= 0),
  primary key (account_id, quota)
);

create function sealpost.refuse_quota(quota text, most bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception using errcode = 'SP009',
    message = format('the account''s quota "%s" is %s, and this is more', quota, most),
    detail = json_build_object('quota', quota, 'most', most),
    hint = 'Remove what is not needed, or raise it with: sealpost account quota.';
end
$$;

-- What writes leave, added up by the day (UTC): the answers that are stored for their Idempotency-Keys, which the
-- limit on `answers` has for a day, and their rows of the audit log, which that on `audit` has for as long as these
-- are kept. Answers to publishing something new are not in it: they are small, and go with what was published.
-- user_id: for whom the keys acted; the account's own id: all of them; nil: what users have beyond their own.
create table sealpost.write_bytes (
  account_id uuid not null,
  user_id uuid not null,
  day date not null,
  answer_bytes bigint not null,
  audit_bytes bigint not null,
  primary key (account_id, user_id, day)
) with (fillfactor = 50);

-- Called last in a transaction: until it ends, the account's other writes wait here. A key that was revoked meanwhile
-- writes nothing (SP010), however long the write took. A user may have as much as is
-- left for all others: however many take what they can, something is. of_user: null where a key acts for none. What
-- has to be possible all the same is not refused before twice as much. What users have beyond their own counts to none
-- but themselves, and of that, too, each may have as much as it leaves.
create function sealpost.count_write(
  of_account uuid, of_key uuid, of_user uuid, answer_more bigint, audit_more bigint, is_refused boolean
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  nobody constant uuid := '00000000-0000-0000-0000-000000000000';
  growing constant text[] := array_remove(array[
    case when answer_more > 0 then 'answers' end, case when audit_more > 0 then 'audit' end], null);
  beyond record;
begin
  perform sealpost.add_write_bytes(of_account, of_account, answer_more, audit_more);
  if of_user is not null then
    perform sealpost.add_write_bytes(of_account, of_user, answer_more, audit_more);
  end if;
  if not sealpost.is_key_good(of_key)
    or exists (select from sealpost.accounts where id = of_account and erased_at is not null)
  then
    raise exception using errcode = 'SP010', message = 'the key was revoked, or has expired, while it was used';
  end if;
  select l.kind, l.bytes_max, written.bytes > 2 * l.bytes_max as is_twice into beyond
  from sealpost.storage_limits as l
  cross join lateral (
    select sealpost.written_bytes(of_account, of_account, l.kind) + sealpost.written_bytes(of_account, of_user, l.kind)
  ) as written (bytes)
  where l.kind = any (growing) and written.bytes > l.bytes_max
  order by written.bytes::float8 / l.bytes_max desc limit 1;
  if not found then
    return;
  end if;
  if is_refused or of_user is null and beyond.is_twice then
    perform sealpost.refuse_storage(beyond.kind, beyond.bytes_max);
  end if;
  if of_user is null then
    return;
  end if;
  perform sealpost.add_write_bytes(of_account, of_account, -answer_more, -audit_more);
  perform sealpost.add_write_bytes(of_account, nobody, answer_more, audit_more);
  perform sealpost.refuse_storage(l.kind, l.bytes_max)
  from sealpost.storage_limits as l
  where l.kind = any (growing)
    and sealpost.written_bytes(of_account, of_user, l.kind) + sealpost.written_bytes(of_account, nobody, l.kind)
      > 2 * l.bytes_max;
end
$$;

create function sealpost.add_write_bytes(of_account uuid, of_user uuid, answer_more bigint, audit_more bigint)
returns void
language sql
set search_path = pg_catalog, pg_temp
begin atomic
  insert into sealpost.write_bytes as w (account_id, user_id, day, answer_bytes, audit_bytes)
  values (of_account, of_user, (now() at time zone 'UTC')::date, answer_more, audit_more)
  on conflict (account_id, user_id, day) do update
  set answer_bytes = w.answer_bytes + excluded.answer_bytes, audit_bytes = w.audit_bytes + excluded.audit_bytes;
end;

-- The answers of several writes that share a transaction, each counted or refused by itself; in an order in which two
-- of these never wait for each other. Null where there is room, else the limit.
create function sealpost.count_answers(account_ids uuid[], user_ids uuid[], answers_more bigint[]) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  answer record;
  refused bigint[] := array_fill(null::bigint, array[cardinality(account_ids)]);
begin
  for answer in
    select * from unnest(account_ids, user_ids, answers_more) with ordinality as a (account_id, user_id, bytes, n)
    order by account_id, n
  loop
    begin
      perform sealpost.count_write(answer.account_id, null, answer.user_id, answer.bytes, 0, true);
    exception when sqlstate 'SP009' then
      refused[answer.n] := (select bytes_max from sealpost.storage_limits where kind = 'answers');
    end;
  end loop;
  return refused;
end
$$;

-- What was published, by the day it was counted. bytes: of the analyses as they are stored. attempt_bytes: of the
-- attempts of the deliveries of that day, which the log keeps as long as these; an attempt that is written down later
-- than others of its time, such as one that was interrupted, may be missing. user_id: whose run it comes from; zeros:
-- replays' attempts; the account's own id: all else.
create table sealpost.published (
  account_id uuid not null,
  user_id uuid not null,
  day date not null,
  analyses bigint not null default 0,
  bytes bigint not null default 0,
  attempt_bytes bigint not null default 0,
  primary key (account_id, user_id, day)
) with (fillfactor = 50);

-- Its one row: what was published with a serial up to here is counted, and attempts that ended before ended_to.
create table sealpost.published_state (
  only_row boolean primary key default true check (only_row),
  serial bigint not null default 0,
  ended_to timestamptz not null default now(),
  counted_at timestamptz not null default now()
);
insert into sealpost.published_state default values;

-- One step: counts at most rows_max of what was published since, and attempts that ended since, up to `lag` ago, by
-- 256 bytes and their texts, because a receiver's answer makes one ten times as large as another. It judges the
-- accounts of both, and those that were full. A serial that may still be committed is waited for: nothing published is
-- missed or counted twice. Neither publishing nor recording does anything for it: on a row they would queue.
create function sealpost.count_published(rows_max integer, log_bytes integer, lag interval, out is_behind boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  nobody constant uuid := '00000000-0000-0000-0000-000000000000';
  since bigint;
  upto bigint;
  reached bigint;
  touched uuid[];
  ended_from timestamptz;
  ended_upto timestamptz;
  attempted uuid[];
  most bigint;
begin
  is_behind := false;
  select s.serial, s.ended_to into since, ended_from from sealpost.published_state as s for update skip locked;
  if since is null then
    return;
  end if;
  select least(steps.serial, (select min(lower(g.serials)) - 1 from unnest(steps.gaps) as g)) into upto
  from sealpost.feed_steps as steps order by steps.step desc limit 1;
  upto := greatest(upto, since);

  with fresh as (
    select serial, account_id, delivery_id, pg_column_size(analysis) as bytes from sealpost.bodies
    where serial > since and serial <= upto order by serial limit rows_max
  ), added as (
    insert into sealpost.published as p (account_id, user_id, day, analyses, bytes)
    select account_id, coalesce((
        select user_id from sealpost.deliveries as d where d.account_id = f.account_id and d.id = f.delivery_id
          and f.account_id in (select account_id from sealpost.users)
      ), account_id), (now() at time zone 'UTC')::date, count(*), sum(bytes)
    from fresh as f group by 1, 2
    on conflict (account_id, user_id, day) do update
    set analyses = p.analyses + excluded.analyses, bytes = p.bytes + excluded.bytes
    returning account_id
  )
  select case when count(*) = rows_max then max(serial) else upto end, count(*) = rows_max,
    (select array_agg(account_id) from added)
  into reached, is_behind, touched
  from fresh;

  ended_upto := greatest(ended_from, least(ended_from + interval '5 minutes', clock_timestamp() - lag));
  is_behind := is_behind or ended_upto = ended_from + interval '5 minutes';
  with added as (
    insert into sealpost.published as p (account_id, user_id, day, attempt_bytes)
    select account_id, case when run > 1 then nobody else coalesce((
        select user_id from sealpost.deliveries as d where d.account_id = a.account_id and d.id = a.delivery_id
          and a.account_id in (select account_id from sealpost.users)
      ), account_id) end,
      (sealpost.uuid_v7_time(delivery_id) at time zone 'UTC')::date,
      sum(256 + coalesce(pg_column_size(target_url), 0) + coalesce(pg_column_size(response_headers), 0)
        + coalesce(pg_column_size(response_excerpt), 0))
    from sealpost.attempts as a where ended_at >= ended_from and ended_at < ended_upto group by 1, 2, 3
    on conflict (account_id, user_id, day) do update set attempt_bytes = p.attempt_bytes + excluded.attempt_bytes
    returning account_id
  )
  select array_agg(account_id) into attempted from added;
  touched := touched || attempted;
  update sealpost.published_state set serial = reached, ended_to = ended_upto, counted_at = clock_timestamp();

  select l.bytes_max into most from sealpost.storage_limits as l where l.kind = 'analyses';
  if most is null and not exists (select from sealpost.accounts where is_full) then
    return;
  end if;
  -- Full only with half of it its own. An account that is being moved is somebody else's now: it is judged next time.
  update sealpost.accounts as a
  set is_full = judged.is_full
  from (
    select id, coalesce(sealpost.published_bytes(id, null, log_bytes) >= most
      and 2 * sealpost.published_bytes(id, id, log_bytes) >= most, false) as is_full
    from (
      select id from sealpost.accounts
      where (is_full or id = any (touched)) and erased_at is null order by id for no key update skip locked
    ) as free
  ) as judged
  where a.id = judged.id and a.is_full <> judged.is_full;
end
$$;

-- Written by who is asked whether the database can be written to: a new file, and room in it.
create unlogged table sealpost.write_probe (filler bytea);
alter table sealpost.write_probe alter column filler set storage plain;

-- 5. Moving an account to another cell, which is another database (src/cells/). The account is closed here, all that
-- is open of it is parked, its rows are copied, and then it appears there in one transaction.

-- One for each account that was moved, in both databases, under one id.
--
-- direction       out: this is the source; in: the target
-- step            begun; still (source only: nothing of the account changes any more, and copying may begin); opening
--                 (source only: from before the account may be open at the target; until then whoever calls the move
--                 off needs no word of the target, because nobody opens the account without passing here); done (it is
--                 open at the target); deleting (what was copied is going, and its rows prove nothing any more: at the
--                 source after a move, at the target when it was called off); deleted (source only: it is gone)
-- other_cell      the other one's name; null: it has none
-- other_database  which one the other is: system identifier and oid. A move belongs to its target: another database
--                 under the same name would be a second home for the account.
-- feed_ends_at    the source's last position: no cursor that is given from then on is beyond it
-- copied          of the target: the key of each table up to which its rows are here
create table sealpost.moves (
  account_id uuid primary key,
  id uuid not null,
  direction text not null check (direction in ('out', 'in')),
  step text not null default 'begun' check (step in ('begun', 'still', 'opening', 'done', 'deleting', 'deleted')),
  other_cell text,
  other_database text,
  feed_ends_at bigint,
  copied json not null default '{}',
  begun_at timestamptz not null default now(),
  ended_at timestamptz,
  check ((step in ('done', 'deleting', 'deleted')) = (ended_at is not null))
);

-- 6. What is altered of tables that are in use: late, because everybody waits until this file has ended, and in an
-- order in which nobody has one of these and asks for one before it. A publisher begins with the settings, and a write
-- ends with the audit log. The deliveries and their bodies are here so that publishers wait once for all of it.

-- cell               which one this database is of. `migrate` writes CELL once; null: none of several. What has it set
--                    refuses the database of another cell.
-- secrets_canary     a text that is sealed with SECRETS_KEY: whoever cannot open it has another key than this
--                    database's secrets. Sealed with the first of these, or by `migrate` where there are some. Null:
--                    nothing has been sealed since. …_next: the same with the other key, while it is rotated.
-- proven_from        from when on the log has been looked through for receivers that have succeeded; null: not at all
-- …_retention_ms     how long this database's rows are kept, as the leader last kept house; null: none has yet. An
--                    account is not moved to where it would be forgotten sooner.
alter table sealpost.settings
  add column cell text check (cell ~ '^[a-z][a-z0-9-]{0,31}$'),
  add column analysis_retention_ms bigint,
  add column log_retention_ms bigint,
  add column audit_retention_ms bigint,
  add column idempotency_retention_ms bigint,
  add column secrets_canary text,
  add column secrets_canary_next text,
  add column proven_from timestamptz;

-- moved_to  where the account has gone, or is going: the name of a cell, for its callers. Null: it is here. Publishing
--           and writes are refused; reads go on.
-- is_full   it has published what it may, and is refused more until some of it is forgotten. Only where the operator
--           has set a limit.
-- erased_at when it was erased, for good; null: not erased. What is left of it goes in steps, and its name becomes
--           `erased` once nothing is (src/cells/erase-account.ts). It is never full.
-- came_from the cells where it was before, each of which may still have what it left there; the last one comes last
-- Publishing reads the first three from a row that it reads in any case.
alter table sealpost.accounts
  add column moved_to text check (length(moved_to) between 1 and 100),
  add column is_full boolean not null default false,
  add column erased_at timestamptz,
  add column came_from text[] not null default '{}';
create index accounts_full on sealpost.accounts (id) where is_full;

-- What was erased: ids and times only, so that it can be erased again after a restore (`sealpost erasures reapply`).
-- analysis_id null: the account itself.
create table sealpost.erasures (
  account_id uuid not null,
  analysis_id text,
  erased_at timestamptz not null default now(),
  unique nulls not distinct (account_id, analysis_id)
);

-- Who may read a delivery, and what it carries. Null: whoever may read the account's log. Else the members of a space:
-- whoever keeps spaces says so in the transaction that publishes. What a user's key sees is said in
-- src/delivery/visibility.ts. user_id: whose run published it, towards whose share it is stored; null: no user's.
alter table sealpost.deliveries add column space_id uuid, add column user_id uuid,
  drop constraint deliveries_reason_check,
  add constraint deliveries_reason_check check (
    reason in
      ('attempts_exhausted', 'no_target', 'target_refused', 'refused_by_receiver', 'window_ended', 'analysis_expired',
      'analysis_erased', 'interrupted')) not valid;

-- What the feed counts by (0012_feed.sql): one number, given in whatever transaction and by whatever version
-- publishes. Null in what was published before: the feed begins here.
create sequence sealpost.event_serials;
alter table sealpost.bodies
  add column serial bigint,
  alter column serial set default nextval('sealpost.event_serials');

create index signing_secrets_expires on sealpost.signing_secrets (expires_at) where expires_at is not null;

-- user_id: for whom the key acts; null: for the account alone. Never changed. Where a moved account's rows are deleted
-- its keys stay, and its users go. What is the account's is not for a key that acts for one of its users: who changed
-- what, the endpoint and who is told of it, the signing secrets. The same list is in src/base/model/api-keys.ts.
alter table sealpost.api_keys
  add column user_id uuid,
  add constraint api_keys_user foreign key (account_id, user_id)
    references sealpost.users (account_id, id) on delete set null (user_id),
  add constraint api_keys_user_account check (user_id is null or account_id is not null),
  add constraint api_keys_user_scopes
    check (user_id is null or not scopes && array['audit:read', 'users:write', 'webhooks:secrets', 'webhooks:write']);

-- Who changed something: every write through the API but publishing has a row, and so has every change from the
-- command line; these may concern no account (a staff key).
--
-- actor        staff: whom a proxy in front vouches for; they have no key, and who they are is in `viewer`. Null: a
-- row
--              of version 1.0, running or gone; its key says what it is.
-- actor_name   the key's, at that time; null: it has none
-- session_id   of the console, in which it was made, and `viewer` whose that was; null: none
alter table sealpost.audit_log
  alter column account_id drop not null,
  add column actor text check (actor in ('key', 'staff_key', 'staff', 'command_line')),
  add column actor_name text,
  add column session_id uuid,
  add column viewer text;

-- For how many days bodies, the log and the audit log are kept, the day under way included: partitions are dropped by
-- whole days.
create function sealpost.days_kept(out bodies integer, out log integer, out audit integer)
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select ceil(coalesce(s.analysis_retention_ms, 604800000) / 86400000.0)::integer + 1,
    ceil(coalesce(s.log_retention_ms, 2592000000) / 86400000.0)::integer + 1,
    ceil(coalesce(s.audit_retention_ms, 31536000000) / 86400000.0)::integer + 1
  from sealpost.settings as s;
end;

-- What an account's writes, or those of one of its users, have left of a kind: answers today, or rows of the audit
-- log.
create function sealpost.written_bytes(of_account uuid, of_user uuid, of_kind text) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(sum(case of_kind when 'answers' then w.answer_bytes when 'audit' then w.audit_bytes end), 0)::bigint
  from sealpost.write_bytes as w
  where w.account_id = of_account and w.user_id = of_user
    and w.day > (now() at time zone 'UTC')::date
      - case of_kind when 'answers' then 1 else (select kept.audit from sealpost.days_kept() as kept) end;
end;

-- What an account's analyses take (of_user: null for all), with so much for each one's log rows, and their attempts.
create function sealpost.published_bytes(of_account uuid, of_user uuid, log_bytes integer) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce(
    sum(p.bytes) filter (where p.day > (now() at time zone 'UTC')::date - kept.bodies)
      + sum(p.analyses * log_bytes + p.attempt_bytes), 0)::bigint
  from sealpost.published as p cross join sealpost.days_kept() as kept
  where p.account_id = of_account and (of_user is null or p.user_id = of_user)
    and p.day > (now() at time zone 'UTC')::date - kept.log;
end;

-- 7. Sessions of the console, and the links that open them. Of a link and of a session only the SHA-256 digest of 256
-- random bits is stored.

-- account_id null: a session of support staff, which has no link. key_id: the key that opened it; when that is revoked
-- or expires, the session ends. Null: the command line. permissions: scopes, each of which that key had. viewer_*:
-- whom the host page's owner says it is for.
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

revoke execute on all functions in schema sealpost from public;
