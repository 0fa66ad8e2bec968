-- Receivers: suspended beyond a restart, and turns that names from elsewhere do not take from others. Erasures in their
-- order, of which one account may write millions.

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
