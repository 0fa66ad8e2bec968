-- Claims Idempotency-Keys until the transaction ends, and finds what was answered under them. Never waits: an insert
-- would, for whoever has claimed the same key, hence the advisory locks. is_ours: the lock was to be had.
create function sealpost.claim_idempotency_keys(account_ids uuid[], key_ids uuid[], idempotency_keys text[])
returns table (
  n bigint, lock bigint, is_ours boolean, is_held boolean,
  fingerprint bytea, status integer, headers json, body bytea, is_sealed boolean)
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
  select input.n, locks[input.n], ours[input.n], coalesce(k.status is null and k.claim_until > now(), false),
    k.fingerprint, k.status, k.headers, k.body, k.is_sealed
  from unnest(account_ids, key_ids, idempotency_keys) with ordinality
    as input (account_id, key_id, idempotency_key, n)
  left join sealpost.idempotency_keys as k
    on k.account_id = any (array[input.account_id]) and k.key_id = any (array[input.key_id])
      and k.idempotency_key = any (array[input.idempotency_key])
  order by input.n;
end
$$;

revoke execute on function sealpost.claim_idempotency_keys(uuid[], uuid[], text[]) from public;
