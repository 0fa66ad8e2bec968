-- Bulk replays: who made one and why, which deliveries' runs it has started, and counts that say what is over.

-- created_by_key_id null: the command line, or a process of the version before.
alter table sealpost.replays add column note text check (char_length(note) <= 500);
alter table sealpost.replays add column created_by_key_id uuid;

-- Which replay started a delivery's run. Each item is written once and changed once, so this costs two entries.
create index replay_items_delivery on sealpost.replay_items (delivery_id);

-- As before, but `failed` are those that have ended without a success. One whose next attempt is to come was among
-- them, so the number went down again. The rest of the replayed have an attempt to come.
create or replace function sealpost.count_replay(
  of_replay uuid, of_account uuid, out succeeded integer, out failed integer
)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
  select count(*) filter (where d.status = 'succeeded')::integer,
    count(*) filter (where d.status = 'abandoned')::integer
  from sealpost.replay_items i
  -- The offset keeps this a lookup for each item, whatever the planner thinks of the account.
  cross join lateral (
    select status from sealpost.deliveries where account_id = of_account and id = i.delivery_id offset 0) as d
  where i.replay_id = of_replay and i.outcome = 'replayed'
$$;

-- As before, but one that is delivering is counted every minute, or it would be done for up to two hours before it
-- said so; a large one still not sooner than a millisecond for each of its items.
create or replace function sealpost.take_replay_to_count(at timestamptz) returns uuid
language sql
set search_path = pg_catalog, pg_temp
as $$
  update sealpost.replays
  set count_at = at + greatest(
    interval '5 seconds',
    case when status = 'delivering' then least((at - created_at) / 10, interval '1 minute')
      else (at - created_at) / 10 end,
    replayed * interval '1 millisecond')
  where id = (
    select id from sealpost.replays where count_at <= at order by count_at, id limit 1 for update skip locked)
  returning id
$$;

revoke execute on all functions in schema sealpost from public;
