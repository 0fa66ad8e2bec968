-- Replaying: one delivery, or a fixed set of them at a pace.

-- Starts the next run of one delivery. Locks the open row before the log's row, as recording does.
-- An attempt that is under way keeps its lease: the run that begins here starts when that lease is given back or ends.
-- outcome: replayed, not_found, not_replayable (pending or succeeded), expired (the analysis is no longer readable).
create function sealpost.replay_delivery(
  of_account uuid, of_delivery uuid, analysis_retention interval, at timestamptz, out outcome text, out next_run integer
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  opened record;
  is_open boolean;
  logged record;
  of_lane bigint;
begin
  select lease_until into opened
  from sealpost.open_deliveries where delivery_id = of_delivery and account_id = of_account for update;
  is_open := found;
  select status, run, webhook_url into logged
  from sealpost.deliveries where account_id = of_account and id = of_delivery for update;
  if not found then
    outcome := 'not_found';
    return;
  end if;
  if logged.status not in ('failed', 'abandoned') then
    outcome := 'not_replayable';
    return;
  end if;
  if at >= sealpost.uuid_v7_time(of_delivery) + analysis_retention then
    outcome := 'expired';
    return;
  end if;

  next_run := logged.run + 1;
  of_lane := sealpost.lane(of_account, logged.webhook_url);
  if is_open then
    update sealpost.open_deliveries
    set run = next_run, attempts_in_run = 0, run_started_at = null, interruptions = 0, due_at = at,
      wake_at = case when lease_until > at then at else at + interval '15 seconds' end
    where delivery_id = of_delivery and account_id = of_account;
  else
    insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, run, body_bytes)
    select of_delivery, of_account, of_lane, at, at + interval '15 seconds', next_run, octet_length(analysis::text)
    from sealpost.bodies where delivery_id = of_delivery;
    if not found then
      outcome := 'expired';
      next_run := null;
      return;
    end if;
  end if;
  update sealpost.deliveries set status = 'pending', reason = null, run = next_run
  where account_id = of_account and id = of_delivery;
  if opened.lease_until is null or opened.lease_until <= at then
    perform sealpost.add_wakeups(array[of_delivery], array[of_lane]);
  end if;
  outcome := 'replayed';
end
$$;

-- filter: the list's filters, as they were asked for. paced_at: up to where the pace has been used up.
-- replayed, skipped: items that had their turn; always exact.
-- succeeded, failed: of the replayed, as they were when last counted; a list of replays shows these, because counting
-- millions of items takes seconds. count_at: when they are counted again; null: they will not change any more.
create table sealpost.replays (
  id uuid primary key default sealpost.uuid_v7(),
  account_id uuid not null,
  status text not null check (status in ('running', 'done', 'cancelled')),
  filter json not null,
  rate_per_second integer not null check (rate_per_second > 0),
  matched integer not null,
  replayed integer not null default 0,
  skipped integer not null default 0,
  succeeded integer not null default 0,
  failed integer not null default 0,
  created_at timestamptz not null,
  paced_at timestamptz not null,
  ended_at timestamptz,
  count_at timestamptz default now(),
  check ((status = 'running') = (ended_at is null))
);
create index replays_account on sealpost.replays (account_id, id);
create index replays_running on sealpost.replays (id) where status = 'running';
create index replays_count_at on sealpost.replays (count_at) where count_at is not null;

-- The set, fixed at creation. outcome null: its turn has not come.
create table sealpost.replay_items (
  replay_id uuid not null references sealpost.replays on delete cascade,
  position integer not null,
  delivery_id uuid not null,
  run integer,
  outcome text check (outcome in ('replayed', 'skipped')),
  primary key (replay_id, position)
);
create index replay_items_waiting on sealpost.replay_items (replay_id, position) where outcome is null;

-- How the replayed deliveries of one replay stand now. Up to 100,000 lookups by key; anything else would read the log.
create function sealpost.count_replay(of_replay uuid, of_account uuid, out succeeded integer, out failed integer)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*) filter (where d.status = 'succeeded')::integer,
    count(*) filter (where d.status in ('failed', 'abandoned'))::integer
  from sealpost.replay_items i
  -- The offset keeps this a lookup for each item, whatever the planner thinks of the account.
  cross join lateral (
    select status from sealpost.deliveries where account_id = of_account and id = i.delivery_id offset 0) as d
  where i.replay_id = of_replay and i.outcome = 'replayed'
$$;

-- Takes the one replay whose turn it is to be counted for the list, and says when it is counted again. The older or
-- larger a replay, the more seldom: every 5 seconds at first, later after a tenth of its age, and never sooner than a
-- millisecond for each of its items, some 200 times what counting takes. It is a transaction of its own, so that one
-- that cannot be counted in time lets the others have their turns. Null: nobody's turn.
create function sealpost.take_replay_to_count(at timestamptz) returns uuid
language sql
set search_path = pg_catalog, pg_temp
as $$
  update sealpost.replays
  set count_at = at + greatest(interval '5 seconds', (at - created_at) / 10, replayed * interval '1 millisecond')
  where id = (
    select id from sealpost.replays where count_at <= at order by count_at, id limit 1 for update skip locked)
  returning id
$$;

-- A run has ended a day or so after it began; eight days after a replay has, nothing of it changes.
create function sealpost.store_count_of_replay(of_replay uuid, at timestamptz) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
  update sealpost.replays as r
  set succeeded = counted.succeeded, failed = counted.failed,
    count_at = case
      when r.status = 'running' or (counted.succeeded < r.replayed and at <= r.ended_at + interval '8 days')
      then r.count_at
    end
  from (
    select c.* from sealpost.replays, lateral sealpost.count_replay(id, account_id) as c where id = of_replay
  ) as counted
  where r.id = of_replay
$$;

-- One step of every running replay: as many items as its pace allows since the last step. A step is one transaction,
-- so a crash repeats at most what it had not committed. At most two seconds' worth at once, or a leader that was away
-- would come back with a flood; and at most items_max of all replays together, or ten fast ones would make a step that
-- its timeout ends, again and again. Whoever is furthest behind comes first. Returns how many items had their turn.
create function sealpost.advance_replays(analysis_retention interval, at timestamptz) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  items_max constant integer := 1000;
  replay record;
  item record;
  turn record;
  paced_from timestamptz;
  allowed integer;
  taken integer;
  started integer;
  total integer := 0;
begin
  for replay in
    select * from sealpost.replays where status = 'running' order by paced_at, id for update skip locked
  loop
    exit when total >= items_max;
    paced_from := greatest(replay.paced_at, at - interval '2 seconds');
    allowed := least(floor(extract(epoch from at - paced_from) * replay.rate_per_second), items_max - total);
    continue when allowed < 1;
    taken := 0;
    started := 0;
    for item in
      select position, delivery_id from sealpost.replay_items
      where replay_id = replay.id and outcome is null
      order by position
      limit allowed
    loop
      select * into turn
      from sealpost.replay_delivery(replay.account_id, item.delivery_id, analysis_retention, at);
      update sealpost.replay_items
      set outcome = case turn.outcome when 'replayed' then 'replayed' else 'skipped' end, run = turn.next_run
      where replay_id = replay.id and position = item.position;
      taken := taken + 1;
      if turn.outcome = 'replayed' then
        started := started + 1;
      end if;
    end loop;
    total := total + taken;
    update sealpost.replays
    set replayed = replayed + started, skipped = skipped + taken - started,
      paced_at = paced_from + allowed::float8 / rate_per_second * interval '1 second',
      status = case when taken < allowed then 'done' else status end,
      ended_at = case when taken < allowed then at end
    where id = replay.id;
  end loop;
  return total;
end
$$;

revoke execute on all functions in schema sealpost from public;
