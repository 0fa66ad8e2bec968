-- Receivers: suspended beyond a restart, turns that names from elsewhere do not take from others, and what has waited
-- for a proof. Erasures in their order, of which one account may write millions.

create index erasures_in_order on sealpost.erasures (erased_at, account_id, coalesce(analysis_id, ''));

-- suspended_at: since when it has one attempt at a time, until its next 2xx; null: it is not suspended.
alter table sealpost.answered_lanes add column suspended_at timestamptz;

-- Whether an attempt at a receiver may connect to the address now, which takes the turn for `lease` at most, or in how
-- many milliseconds to ask again. A proven receiver needs no turn. `is_further`: another address for the same attempt.
--
-- Of one receiver: one at a time, and `receiver_every` from one to the next. Of one address: `address_every`. Nobody
-- queues there, as whoever came with a thousand names would fill the queue: each is told to come again after so long
-- that all of an account's together come as often as those of any other account, and all accounts' twice as often as
-- there are turns; retries half as often as first attempts. A new name comes behind those of others that wait. An
-- attempt that comes with a further address, or whose name led elsewhere before, asks when it likes, for any of a
-- thousand names that begin elsewhere. So while others wait there, all such attempts of an account together get one
-- turn in twice as many as there are accounts: as they ask more often, they would get nearly all. (To let them wait for
-- good was the other way: a name whose first address is dead, or that leads to another one each time, would use up its
-- attempts.)
create or replace function sealpost.take_turn(
  whose uuid, of_origin text, at_address text, is_first boolean, is_further boolean,
  lease interval, receiver_every interval, address_every interval,
  out is_proven boolean, out wait_ms float8
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
  look_again constant interval := '1 second';
  waiting_max constant integer := 2000;
  -- Of one account, and fewer once there are more than 20: together they are half of those that are counted.
  kept_max integer := 50;
  wait_max constant interval := '20 minutes';
  receiver sealpost.receivers;
  address_at timestamptz;
  is_free boolean;
  is_from_elsewhere boolean;
  is_new boolean;
  -- It has had, or waited for, a turn at another address.
  has_moved boolean;
  own integer;
  others integer;
  accounts integer;
  at timestamptz;
  wait interval;
begin
  -- What a server that crashes forgets of the last turns is less than a receiver has room for in a minute.
  perform set_config('synchronous_commit', 'off', true);
  if at_address like '%:%' then
    at_address := network(set_masklen(at_address::inet, 64));
  end if;
  insert into sealpost.receivers (account_id, origin, next_at)
  select whose, of_origin, '-infinity'
  where not exists (select from sealpost.accounts where id = whose and erased_at is not null)
  on conflict do nothing;
  select * into receiver from sealpost.receivers where account_id = whose and origin = of_origin for update;
  -- Of an erased account: whoever waits for its turn finds the delivery gone.
  if not found then
    is_proven := false;
    wait_ms := extract(epoch from look_again) * 1000;
    return;
  end if;
  is_proven := receiver.proven_at is not null and receiver.proven_at > now() - interval '30 days';
  if is_proven then
    return;
  end if;
  insert into sealpost.receiver_addresses (address, next_at) values (at_address, '-infinity') on conflict do nothing;
  select next_at into address_at from sealpost.receiver_addresses where address = at_address;
  at := clock_timestamp();
  -- What is further ahead than any is ever set is of a clock that has been set back. It is as after a turn now, no
  -- sooner: the last one may only just have begun.
  if greatest(receiver.next_at, receiver.busy_until) > at + wait_max then
    update sealpost.receivers
    set next_at = case when next_at > at + wait_max then at + receiver_every else next_at end,
      busy_until = case when busy_until > at + wait_max then at + lease else busy_until end
    where account_id = whose and origin = of_origin
    returning * into receiver;
  end if;
  if address_at > at + address_every then
    address_at := at + address_every;
    update sealpost.receiver_addresses set next_at = address_at where address = at_address;
  end if;
  is_from_elsewhere := receiver.address is distinct from at_address and not is_further;
  is_new := is_from_elsewhere and receiver.address is null;
  has_moved := is_further or is_from_elsewhere and not is_new;
  is_free := address_at <= at;
  loop
    if is_from_elsewhere or is_further or not is_free then
      select count(*) filter (where account_id = whose), count(*) filter (where account_id <> whose),
        greatest(1, count(distinct account_id))
      into own, others, accounts
      from (
        select account_id from sealpost.receivers
        where address = at_address and next_at > at - interval '1 minute' order by next_at limit waiting_max
      ) as those;
      kept_max := least(kept_max, greatest(1, waiting_max / (2 * accounts)));
    end if;
    wait := case
      when receiver.busy_until > at and not is_further then look_again
      when receiver.next_at > at and not is_further then receiver.next_at - at
      -- Whoever has waited comes before another account's new name.
      when not is_free or is_new and others > 0 or has_moved and others > 0 and exists (
        select from sealpost.receivers
        where account_id = whose and origin = at_address and next_at > at
          and next_at <= at + (waiting_max + 1) * address_every)
      then
        -- Spread behind the bound: who were all told the same would come together, and all but one for nothing.
        least(wait_max / 1.5, greatest(1, own) * accounts * address_every * case when is_first then 0.5 else 1 end)
          * (0.5 + random())
    end;
    exit when wait is not null;
    -- Of all that find it free one has it, and nobody waits for another's commit: all others' attempts would, too.
    perform from sealpost.receiver_addresses where address = at_address and next_at <= at for update skip locked;
    exit when found;
    is_free := false;
  end loop;
  if wait is null then
    update sealpost.receiver_addresses set next_at = at + address_every where address = at_address;
    update sealpost.receivers
    set proven_at = null, next_at = at + receiver_every, busy_until = at + lease, address = at_address
    where account_id = whose and origin = of_origin;
    if has_moved and others > 0 then
      insert into sealpost.receivers (account_id, origin, next_at)
      values (whose, at_address, at + least(2 * (accounts + (own = 0)::integer), waiting_max + 1) * address_every)
      on conflict (account_id, origin) do update set next_at = excluded.next_at;
    end if;
    return;
  end if;
  wait_ms := extract(epoch from wait) * 1000;
  -- Once all that are counted are taken, an account's names take up no more than that: those beyond ask as often
  -- without a place, and get none. So everybody is counted, and an account's names come as often as another's one.
  if not is_further and own - (not is_from_elsewhere)::integer >= kept_max and own + others >= waiting_max then
    update sealpost.receivers set next_at = greatest(next_at, at + wait), address = null
    where account_id = whose and origin = of_origin;
  elsif is_further then
    -- So that others know of the account; more of them would hide who else waits.
    update sealpost.receivers set address = at_address
    where account_id = whose and origin = of_origin and own < kept_max;
  else
    update sealpost.receivers
    set next_at = greatest(next_at, at + wait), address = at_address
    where account_id = whose and origin = of_origin and not coalesce(busy_until > at, false);
  end if;
end
$$;

-- So that what waited at the endpoint before is found when it leads to a proven receiver.
create index endpoints_updated on sealpost.endpoints (updated_at);

-- Has what the promoter has put off for receivers that are proven since `since` woken soon, whatever became of those
-- who knew of it: of a lane as many in a second as the promoter wakes of one in a step, and a fifth less, or it would
-- put off for a minute what is too much; twice as many of an account. What would come later than in `for_seconds` stays
-- where it is: is_all is false then, and the next call has to say the same `since`.
create function sealpost.wake_proven(
  since timestamptz, lane_max integer, for_seconds integer, at timestamptz, out woken integer, out is_all boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  -- What is due earlier is at hand, or taken back: see take_let_go; put off is for four minutes at most.
  earliest constant timestamptz := at + interval '17 seconds';
  latest constant timestamptz := at + interval '5 minutes';
  of_lane constant float8 := 0.8 * lane_max;
  lanes constant bigint[] := array(
    with proven as materialized (
      select account_id, origin from sealpost.receivers
      where next_at is null and proven_at >= since and proven_since >= since
    )
    select sealpost.lane(account_id, origin || port) from proven, unnest(array['', ':443']) as port
    union
    select sealpost.lane(e.account_id, null)
    from proven as p join sealpost.endpoints as e on e.account_id = any (array[p.account_id])
    where sealpost.origin(e.url) = p.origin
    union
    select sealpost.lane(e.account_id, null)
    from sealpost.endpoints as e
    join sealpost.receivers as r on r.account_id = any (array[e.account_id])
      and r.origin = any (array[sealpost.origin(e.url)])
    where e.updated_at >= since and r.proven_at > at - interval '30 days');
begin
  woken := 0;
  is_all := true;
  if cardinality(lanes) = 0 then
    return;
  end if;
  with mine as (
    select ctid as place, delivery_id, account_id,
      row_number() over (partition by account_id, lane order by delivery_id) - 1 as lane_rank
    from sealpost.open_deliveries
    where wake_at >= earliest and wake_at <= latest
      -- Not a join: of thousands of lanes each row would be compared with each.
      and coalesce(lane in (select unnest(lanes)), false)
      and due_at <= at and (lease_until is null or lease_until <= at)
  ), ranked as materialized (
    select place, delivery_id, greatest(lane_rank / of_lane,
      (row_number() over (partition by account_id order by lane_rank, delivery_id) - 1) / (2 * of_lane)) as wait_s
    from mine
  ), free as (
    select o.ctid as place, wait_s
    from ranked join sealpost.open_deliveries as o on o.ctid = ranked.place
    where o.delivery_id = ranked.delivery_id and wait_s < for_seconds
    for update of o skip locked
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + wait_s * interval '1 second'
    from free where o.ctid = free.place
    returning true
  )
  select (select count(*) from moved), not exists (select from ranked where wait_s >= for_seconds)
  into woken, is_all;
end
$$;
revoke execute on function sealpost.wake_proven(timestamptz, integer, integer, timestamptz) from public;

-- As in 0010_delivery.sql, but that it looks at rows from the smallest of from_ids on: where each batch of thousands of
-- lanes began at its first one's, those behind it got nothing, and it ran further ahead. Of accounts that have nothing
-- to take back no row is compared with each lane.
create or replace function sealpost.take_let_go(
  of_accounts uuid[], of_lanes bigint[], from_ids uuid[], rows_max integer[], at timestamptz
)
returns table (number bigint, ids uuid[], next_id uuid)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
  wake_after constant interval := '15 seconds';
  taken_for constant interval := '1 second';
  looks_max constant integer := 10000;
  first_id constant uuid := (select f from unnest(from_ids) as f order by f limit 1);
begin
  return query
  with asked as materialized (
    select a.n, a.account_id, a.lane, a.from_id, a.rows_max
    from unnest(of_accounts, of_lanes, from_ids, rows_max) with ordinality as a (account_id, lane, from_id, rows_max, n)
    where not sealpost.is_paused(a.account_id, a.lane)
  ), looked as materialized (
    select ctid as place, delivery_id, account_id, lane
    from sealpost.open_deliveries
    where delivery_id >= first_id
    order by delivery_id
    limit looks_max
  ), mine as materialized (
    select * from looked where account_id = any (of_accounts)
  ), page as materialized (
    select a.n, a.rows_max, l.place, l.delivery_id, row_number() over (partition by a.n order by l.delivery_id) as nth
    from mine as l
    join asked as a on a.account_id = l.account_id and a.lane = l.lane
    where l.delivery_id >= a.from_id
  ), free as (
    select o.ctid as place, page.n
    from page join sealpost.open_deliveries as o on o.ctid = page.place
    where page.nth <= page.rows_max and o.delivery_id = page.delivery_id
      and o.due_at <= at and (o.lease_until is null or o.lease_until <= at)
      and (o.wake_at <= at + wake_after or o.wake_at > at + wake_after + 2 * taken_for)
    for update of o skip locked
  ), moved as (
    update sealpost.open_deliveries as o
    set wake_at = at + wake_after + taken_for
    from free
    where o.ctid = free.place
    returning free.n, o.delivery_id
  ), further as materialized (
    select page.n, delivery_id from page where nth = page.rows_max + 1
  ), last as materialized (
    select delivery_id from looked order by delivery_id offset looks_max - 1 limit 1
  )
  select a.n,
    array(select delivery_id from moved where moved.n = a.n order by delivery_id),
    case
      when further.delivery_id is not null then further.delivery_id
      when last.delivery_id is not null then greatest(last.delivery_id, a.from_id)
    end
  from asked as a left join further on further.n = a.n left join last on true;
end
$$;
